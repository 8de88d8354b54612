package recipes

import (
	"context"
	"crypto/md5"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/fence"
)

// store is an object store as far as these recipes need one. Its ETag is the MD5 of the content, and of nothing else, as
// that of S3 is for what is uploaded in one part: an object that is written again with other metadata keeps it.
type store struct {
	mu      sync.Mutex
	objects map[string]string
	delay   func(*http.Request) // called before a request is looked at
}

func (s *stage) store() (*store, Objects) {
	o := &store{objects: make(map[string]string), delay: func(*http.Request) {}}
	server := httptest.NewServer(o)
	s.Cleanup(server.Close)
	return o, Objects{URL: server.URL, Client: server.Client()}
}

func (o *store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	o.delay(r)
	o.mu.Lock()
	defer o.mu.Unlock()
	content, found := o.objects[r.URL.Path]
	etag := fmt.Sprintf(`"%x"`, md5.Sum([]byte(content)))
	match, noneMatch := r.Header.Get("If-Match"), r.Header.Get("If-None-Match")
	switch {
	case !found && (r.Method == http.MethodGet || match != ""):
		w.WriteHeader(http.StatusNotFound)
	case r.Method == http.MethodGet:
		w.Header().Set("ETag", etag)
		_, _ = io.WriteString(w, content)
	case found && (noneMatch == "*" || match != "" && match != etag):
		w.WriteHeader(http.StatusPreconditionFailed)
	default:
		o.objects[r.URL.Path] = string(body)
	}
}

func to(text string) func([]byte) ([]byte, error) {
	return func([]byte) ([]byte, error) { return []byte(text), nil }
}

func (s *stage) object(o Objects, name string) string {
	data, err := o.Get(ctx, name)
	s.Expect(err).NotTo(HaveOccurred())
	return string(data)
}

func TestObjectRefusesWhatAnOlderTermWritesAfterANewerOne(t *testing.T) {
	s := newStage(t)
	_, o := s.store()
	s.Expect(o.Update(ctx, s.old, "x", to("of old"))).To(Succeed())
	s.Expect(o.Update(ctx, s.now, "x", to("of new"))).To(Succeed())
	s.Expect(o.Update(ctx, s.old, "x", to("late"))).To(MatchError(fence.ErrFenced))
	s.Expect(s.object(o, "x")).To(Equal("of new"))
	s.Expect(o.Update(ctx, s.now, "x", to("again"))).To(Succeed())
}

// holdUp has the next write reach the store only after meanwhile has run, which may write itself.
func (o *store) holdUp(meanwhile func()) {
	var held atomic.Bool
	o.delay = func(r *http.Request) {
		if r.Method == http.MethodPut && held.CompareAndSwap(false, true) {
			meanwhile()
		}
	}
}

func TestWriteOfAnOlderTermThatArrivesLateIsRefused(t *testing.T) {
	for name, before := range map[string]string{"made": "", "replaced": "x"} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			held, o := s.store()
			if before != "" {
				s.Expect(o.Update(ctx, s.old, "x", to(before))).To(Succeed())
			}
			held.holdUp(func() { s.Check(o.Update(ctx, s.now, "x", to("of new"))) })
			s.Expect(o.Update(ctx, s.old, "x", to("late"))).To(MatchError(fence.ErrFenced))
			s.Expect(s.object(o, "x")).To(Equal("of new"))
		})
	}
}

// The newer leader takes the object over as it is. Were the token no part of the content, the ETag would stay the same.
func TestLateWriteIsRefusedAlsoWhereTheNewerTermChangedNothing(t *testing.T) {
	s := newStage(t)
	held, o := s.store()
	s.Expect(o.Update(ctx, s.old, "x", to("1"))).To(Succeed())
	held.holdUp(func() { s.Check(o.Update(ctx, s.now, "x", to("1"))) })
	s.Expect(o.Update(ctx, s.old, "x", to("late"))).To(MatchError(fence.ErrFenced))
	s.Expect(s.object(o, "x")).To(Equal("1"))
}

func TestNewerTermStartsFromWhatCameInBetween(t *testing.T) {
	s := newStage(t)
	held, o := s.store()
	add := func(text string) func([]byte) ([]byte, error) {
		return func(data []byte) ([]byte, error) { return append(data, text...), nil }
	}
	held.holdUp(func() { s.Check(o.Update(ctx, s.old, "x", add("old "))) })
	s.Expect(o.Update(ctx, s.now, "x", add("new "))).To(Succeed())
	s.Expect(s.object(o, "x")).To(Equal("old new "))
}

func TestUpdatesOfBothTermsAtOnceNeverMix(t *testing.T) {
	s := newStage(t)
	_, o := s.store()
	var both sync.WaitGroup
	for name, term := range map[string]election.Term{"old": s.old, "new": s.now} {
		both.Go(func() {
			for i := range 50 {
				err := o.Update(ctx, term, "x", func(data []byte) ([]byte, error) { return fmt.Appendf(data, "%s ", name), nil })
				if errors.Is(err, fence.ErrFenced) && name == "old" {
					t.Logf("the older one was refused after %d", i)
					return
				}
				s.Check(err)
			}
		})
	}
	both.Wait()
	s.Expect(s.object(o, "x")).To(MatchRegexp(`^(old )*(new ){50}$`))
}

func TestObjectWithoutATokenIsLeftAlone(t *testing.T) {
	s := newStage(t)
	other, o := s.store()
	for _, content := range []string{"", "no line", "no token\n"} {
		other.objects["/x"] = content
		s.Expect(o.Update(ctx, s.now, "x", to("1"))).NotTo(Succeed())
		s.Expect(other.objects["/x"]).To(Equal(content))
	}
}

func TestObjectOfABucketThatIsNotThereIsAnError(t *testing.T) {
	s := newStage(t)
	nothing := httptest.NewServer(http.NotFoundHandler())
	s.Cleanup(nothing.Close)
	limited, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	calls := 0
	err := Objects{URL: nothing.URL, Client: nothing.Client()}.Update(limited, s.now, "x", func([]byte) ([]byte, error) {
		calls++
		return nil, nil
	})
	s.Expect(err).To(MatchError(ContainSubstring("404 Not Found")))
	s.Expect(calls).To(Equal(1))
}

func TestObjectThatIsDeletedMeanwhileIsMadeAgain(t *testing.T) {
	s := newStage(t)
	held, o := s.store()
	s.Expect(o.Update(ctx, s.now, "x", to("1"))).To(Succeed())
	held.holdUp(func() {
		held.mu.Lock()
		defer held.mu.Unlock()
		delete(held.objects, "/x")
	})
	s.Expect(o.Update(ctx, s.now, "x", to("2"))).To(Succeed())
	s.Expect(s.object(o, "x")).To(Equal("2"))
}
