package processes

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/clitest"
	"github.com/natscampaign/election/internal/history"
)

// disk is one that may be full.
type disk struct {
	mu      sync.Mutex
	full    bool
	content bytes.Buffer
}

var errFull = errors.New("no space left on device")

// Write writes to the disk.
func (d *disk) Write(b []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.full {
		return 0, errFull
	}
	return d.content.Write(b)
}

// fill makes the disk full, or no longer so.
func (d *disk) fill(full bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.full = full
}

func TestACandidateWhoseHistoryCannotBeWrittenEndsAtOnce(t *testing.T) {
	t.Parallel()
	a := clitest.New(t, clitest.Quiet)
	_, err := a.S.JetStream.CreateStream(t.Context(), jetstream.StreamConfig{Name: Stream, Subjects: []string{Subject}})
	a.Expect(err).NotTo(HaveOccurred())
	c := &CandidateConfig{Name: "x", Key: "jobs", Stream: Stream, Subject: Subject}
	past := &disk{}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		ended <- c.stand(ctx, a.S, a.Bucket, history.NewWriter(&sticky{w: past}), slog.New(slog.DiscardHandler))
	}()
	e, err := election.NewElection("y", "jobs", a.Bucket)
	a.Expect(err).NotTo(HaveOccurred())
	leader := func() error { _, err := e.Leader(t.Context()); return err }
	a.Eventually(leader).WithTimeout(clitest.Patience).Should(Succeed())
	past.fill(true)
	a.Eventually(ended).WithTimeout(clitest.Patience).Should(Receive(MatchError(errFull)))
	a.Expect(leader()).To(Succeed(), "it does not even release the key")
	cancel() // as the end of the process would, but in order
	a.Eventually(leader).WithTimeout(clitest.Patience).ShouldNot(Succeed())
}

func TestAHistoryInWhichALineIsMissingIsNotGoneOnWith(t *testing.T) {
	g := NewWithT(t)
	past := &disk{}
	h := history.NewWriter(&sticky{w: past})
	past.fill(true)
	g.Expect(h.Write(history.Event{What: history.Overtaken, At: time.Second})).To(MatchError(errFull))
	past.fill(false)
	g.Expect(h.Write(history.Event{What: history.Beat, At: time.Second})).To(MatchError(errFull))
	g.Expect(past.content.String()).To(BeEmpty())
}

func TestAnswerInTheCourseOfWhichTheProcessWasStoppedTellsOfNoDeadline(t *testing.T) {
	g := NewWithT(t)
	w, term := &witness{beat: time.Hour}, election.Term{Number: 7}
	g.Expect(w.note(1*time.Second, 5*time.Second, true, term, -time.Second)).To(BeEmpty(), "nor of a belief, of which it is the first sign")
	w.asked = 5 * time.Second
	g.Expect(w.note(5*time.Second, 5*time.Second, true, term, 3*time.Second)).To(HaveExactElements(
		HaveField("Deadline", 8*time.Second)))
	stopped := 5*time.Second + askEvery
	g.Expect(w.note(stopped, 9*time.Second, true, term, -time.Second)).To(BeEmpty())
	g.Expect(w.note(9*time.Second, 9*time.Second, false, election.Term{}, 0)).To(HaveExactElements(
		And(HaveField("What", history.Paused), HaveField("Last", stopped)),
		And(HaveField("What", history.Doubts), HaveField("Last", stopped))))
}
