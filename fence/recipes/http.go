package recipes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/fence"
)

const largestBody = 1 << 20

// Fenced passes the requests of one term at a time to a handler: those of the newest term that it has seen. Requests of one term run
// concurrently. The first request of a newer term shuts out all older ones, waits until the handler has answered those under way, and only
// then goes on; so the effects of two terms never mix.
//
// Fenced answers 400 to a request without a valid token, 412 to a request of an older term, which no retry can help, and 503 if the token
// could not be kept.
func Fenced(guard *fence.Guard, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Read the whole body first: a leader that stops while it sends a request must not delay the next leader.
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, largestBody))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))

		err = guard.Do(r.Header.Get(fence.TokenHeader), func() error {
			next.ServeHTTP(w, r)
			return nil
		})
		switch {
		case errors.Is(err, fence.ErrInvalidToken):
			http.Error(w, err.Error(), http.StatusBadRequest)
		case errors.Is(err, fence.ErrFenced):
			http.Error(w, err.Error(), http.StatusPreconditionFailed)
		case err != nil:
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})
}

// GuardIn returns a guard that keeps its tokens in a file, and begins with the token in that file.
func GuardIn(path string) (*fence.Guard, error) {
	guard := new(fence.Guard)
	highest, err := os.ReadFile(path)
	switch {
	case err == nil:
		err = guard.Admit(string(highest))
	case errors.Is(err, fs.ErrNotExist):
		err = nil
	}
	guard.Keep = func(token string) error { return replace(path, token) }
	return guard, err
}

// replace replaces the content of a file, all of it or, if anything goes wrong, nothing.
func replace(path, content string) error {
	next, err := os.Create(path + ".new")
	if err != nil {
		return err
	}
	_, err = next.WriteString(content)
	if err = errors.Join(err, next.Sync(), next.Close()); err != nil {
		return err
	}
	if err := os.Rename(next.Name(), path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close()) // else the new name may be lost with the power; Windows has no such call
}

// Put sends a leader's request, with the token of its term.
func Put(ctx context.Context, client *http.Client, t election.Term, url string, data []byte) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPut, url, bytes.NewReader(data))
	if err != nil {
		return err
	}
	r.Header.Set(fence.TokenHeader, t.Token())
	answer, err := client.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	switch {
	case answer.StatusCode == http.StatusPreconditionFailed:
		return fmt.Errorf("%w: %s answered %s", fence.ErrFenced, url, answer.Status)
	case answer.StatusCode >= 300:
		return fmt.Errorf("%s answered %s", url, answer.Status)
	}
	return nil
}
