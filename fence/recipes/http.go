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

// Fenced lets the requests of one term at a time through to a handler: those of the newest that has been seen. Requests of
// the same term run side by side. The first of a newer one shuts out all that are older, waits for those that the handler is
// still at, and only then goes on; so the effects of two terms never mix.
//
// It answers 400 to a request without a token, or with none that is one, 412 to one of an older term, which no retry and no
// look at the resource can mend, and 503 if the token could not be kept.
func Fenced(guard *fence.Guard, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// All of the body first: a leader that was stopped while it sent it must not hold up the next one.
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

// GuardIn returns a guard that keeps its tokens in a file, and begins with the one that is there.
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

// replace gives a file other content, all of it or, if anything goes wrong, none.
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
	return errors.Join(dir.Sync(), dir.Close()) // or the new name may be gone after a loss of power; Windows has no such call
}

// Put is the leader's side: a request with the token of its term.
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
