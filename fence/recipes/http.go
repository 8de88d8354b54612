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
	"sync"

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
type Fenced struct {
	next  http.Handler
	keep  func(token string) error
	guard fence.Guard

	mu   sync.RWMutex // held for reading while the handler runs
	kept string       // the token of the term whose requests may run; changes under both locks
	turn sync.Mutex   // held while the requests of a new term wait for those of the one before
}

// NewFenced puts a Fenced before a handler. It begins with the highest token that was kept before, "" for none, and keeps a
// newer one before anything is done for it.
func NewFenced(next http.Handler, highest string, keep func(token string) error) (*Fenced, error) {
	f := &Fenced{next: next, keep: keep, kept: highest}
	if highest == "" {
		return f, nil
	}
	return f, f.guard.Admit(highest)
}

func (f *Fenced) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// All of the body first: a leader that was stopped while it sent it must not hold up the next one.
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, largestBody))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))

	leave, err := f.enter(r.Header.Get(fence.TokenHeader))
	switch {
	case errors.Is(err, fence.ErrInvalidToken):
		http.Error(w, err.Error(), http.StatusBadRequest)
	case errors.Is(err, fence.ErrFenced):
		http.Error(w, err.Error(), http.StatusPreconditionFailed)
	case err != nil:
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	default:
		defer leave()
		f.next.ServeHTTP(w, r)
	}
}

// enter returns when a request with that token may run; call leave when it has.
func (f *Fenced) enter(token string) (leave func(), err error) {
	for {
		if err := f.guard.Admit(token); err != nil { // at once, and without a wait for anybody
			return nil, err
		}
		f.mu.RLock()
		if f.kept == token {
			return f.mu.RUnlock, nil
		}
		f.mu.RUnlock()
		if err := f.turnTo(token); err != nil {
			return nil, err
		}
	}
}

// turnTo waits for the requests of the term before, and lets those with the token run unless a newer one has come.
func (f *Fenced) turnTo(token string) error {
	f.turn.Lock()
	defer f.turn.Unlock()
	if f.kept == token { // another request of the same term was here first, and may run already
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.guard.Highest() != token {
		return nil
	}
	if err := f.keep(token); err != nil {
		return err
	}
	f.kept = token
	return nil
}

// InFile keeps a token in a file, and returns the one that it holds, "" if there is none yet.
func InFile(path string) (highest string, keep func(token string) error, err error) {
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", nil, err
	}
	return string(data), func(token string) error {
		next, err := os.Create(path + ".new")
		if err != nil {
			return err
		}
		_, err = next.WriteString(token)
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
	}, nil
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
