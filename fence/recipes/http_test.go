package recipes

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/fence"
)

// receiver is a server that keeps, in order, what was put there.
type receiver struct {
	*httptest.Server
	mu   sync.Mutex
	took []string
	at   func(body string) // called before something is kept
}

func (s *stage) receiver(guard *fence.Guard) *receiver {
	r := &receiver{at: func(string) {}}
	fenced := Fenced(guard, http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body)
		r.at(string(body))
		r.mu.Lock()
		defer r.mu.Unlock()
		r.took = append(r.took, string(body))
	}))
	r.Server = httptest.NewServer(fenced)
	s.Cleanup(r.Close)
	return r
}

func (s *stage) put(r *receiver, t election.Term, text string) error {
	return Put(ctx, r.Client(), t, r.URL, []byte(text))
}

func TestHandlerSeesNothingOfAnOlderTermAfterANewerOne(t *testing.T) {
	s := newStage(t)
	r := s.receiver(new(fence.Guard))
	s.Expect(s.put(r, s.old, "of old")).To(Succeed())
	s.Expect(s.put(r, s.now, "of new")).To(Succeed())
	s.Expect(s.put(r, s.old, "late")).To(MatchError(fence.ErrFenced))
	s.Expect(s.put(r, s.now, "again")).To(Succeed())
	s.Expect(r.took).To(Equal([]string{"of old", "of new", "again"}))
}

func TestHandlerSeesNothingWithoutAToken(t *testing.T) {
	s := newStage(t)
	r := s.receiver(new(fence.Guard))
	for _, token := range []string{"", "7", strings.ToUpper(s.old.Token()) + "0"} {
		q, err := http.NewRequest(http.MethodPut, r.URL, nil)
		s.Expect(err).NotTo(HaveOccurred())
		if token != "" {
			q.Header.Set(fence.TokenHeader, token)
		}
		answer, err := r.Client().Do(q)
		s.Expect(err).NotTo(HaveOccurred())
		answer.Body.Close()
		s.Expect(answer.StatusCode).To(Equal(http.StatusBadRequest), "%q", token)
	}
	s.Expect(r.took).To(BeEmpty())
}

func TestNewerTermWaitsForWhatTheHandlerIsStillAt(t *testing.T) {
	s := newStage(t)
	r := s.receiver(new(fence.Guard))
	begun, goOn := make(chan bool), make(chan bool)
	r.at = func(body string) {
		if body == "slow" {
			begun <- true
			<-goOn
		}
	}
	slow, next := make(chan error, 1), make(chan error, 1)
	go func() { slow <- s.put(r, s.old, "slow") }()
	<-begun
	go func() { next <- s.put(r, s.now, "of new") }()
	// From the moment that the newer one is known, the older one is refused, and does not wait.
	s.Eventually(func() error { return s.put(r, s.old, "meanwhile") }).Should(MatchError(fence.ErrFenced))
	close(goOn)
	s.Expect(<-slow).To(Succeed())
	s.Expect(<-next).To(Succeed())
	s.Expect(r.took[len(r.took)-2:]).To(Equal([]string{"slow", "of new"}))
}

func TestLeaderStoppedWithinItsRequestDoesNotHoldUpTheNext(t *testing.T) {
	s := newStage(t)
	r := s.receiver(new(fence.Guard))
	body, rest := io.Pipe()
	q, err := http.NewRequest(http.MethodPut, r.URL, body)
	s.Expect(err).NotTo(HaveOccurred())
	q.Header.Set(fence.TokenHeader, s.old.Token())
	status := make(chan int, 1)
	go func() {
		answer, err := r.Client().Do(q)
		if err != nil {
			status <- 0
			return
		}
		answer.Body.Close()
		status <- answer.StatusCode
	}()
	_, err = rest.Write([]byte("half"))
	s.Expect(err).NotTo(HaveOccurred())
	s.Expect(s.put(r, s.now, "of new")).To(Succeed())
	_, err = rest.Write([]byte(" and half"))
	s.Expect(err).NotTo(HaveOccurred())
	s.Expect(rest.Close()).To(Succeed())
	s.Expect(<-status).To(Equal(http.StatusPreconditionFailed))
	s.Expect(r.took).To(Equal([]string{"of new"}))
}

func TestRequestsOfOneTermRunSideBySide(t *testing.T) {
	s := newStage(t)
	r := s.receiver(new(fence.Guard))
	var inside, done sync.WaitGroup
	inside.Add(8)
	r.at = func(string) { inside.Done(); inside.Wait() }
	for range 8 {
		done.Go(func() { s.Check(s.put(r, s.now, "x")) })
	}
	done.Wait()
	s.Expect(r.took).To(HaveLen(8))
}

// Check fails the test, from any goroutine.
func (s *stage) Check(err error) {
	if err != nil {
		s.Error(err)
	}
}

func TestReceiverRemembersTheNewestTermOverARestart(t *testing.T) {
	s := newStage(t)
	path := filepath.Join(t.TempDir(), "token")
	for i, first := range []string{"", s.now.Token()} {
		guard, err := GuardIn(path)
		s.Expect(err).NotTo(HaveOccurred())
		s.Expect(guard.Highest()).To(Equal(first))
		r := s.receiver(guard)
		if i == 0 {
			s.Expect(s.put(r, s.old, "of old")).To(Succeed())
			s.Expect(s.put(r, s.now, "of new")).To(Succeed())
			continue
		}
		s.Expect(s.put(r, s.old, "late")).To(MatchError(fence.ErrFenced))
		s.Expect(s.put(r, s.now, "again")).To(Succeed())
		s.Expect(r.took).To(Equal([]string{"again"}))
	}
}

func TestNothingIsDoneForATokenThatCouldNotBeKept(t *testing.T) {
	s := newStage(t)
	full := errors.New("disk full")
	r := s.receiver(&fence.Guard{Keep: func(string) error { return full }})
	for range 2 {
		s.Expect(s.put(r, s.now, "of new")).To(MatchError(ContainSubstring("503")))
	}
	s.Expect(r.took).To(BeEmpty())
	full = nil
	s.Expect(s.put(r, s.now, "of new")).To(Succeed())
}

func TestDamagedFileIsNoToken(t *testing.T) {
	g, path := NewWithT(t), filepath.Join(t.TempDir(), "token")
	g.Expect(os.WriteFile(path, []byte("damaged"), 0o600)).To(Succeed())
	_, err := GuardIn(path)
	g.Expect(err).To(MatchError(fence.ErrInvalidToken))
}
