package main

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
	a := newArena(t, quiet)
	_, err := a.s.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: processStream, Subjects: []string{processSubject}})
	a.Expect(err).NotTo(HaveOccurred())
	c := &candidateConfig{Name: "x", Key: "jobs", Stream: processStream, Subject: processSubject}
	past := &disk{}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		ended <- c.stand(ctx, a.s, a.bucket, history.NewWriter(&sticky{w: past}), slog.New(slog.DiscardHandler))
	}()
	e, err := election.NewElection("y", "jobs", a.bucket)
	a.Expect(err).NotTo(HaveOccurred())
	leader := func() error { _, err := e.Leader(t.Context()); return err }
	a.Eventually(leader).WithTimeout(patience).Should(Succeed())
	past.fill(true)
	a.Eventually(ended).WithTimeout(patience).Should(Receive(MatchError(errFull)))
	a.Expect(leader()).To(Succeed(), "it does not even release the key")
	cancel() // as the end of the process would, but in order
	a.Eventually(leader).WithTimeout(patience).ShouldNot(Succeed())
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
