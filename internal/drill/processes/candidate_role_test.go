package processes

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/natscampaign/election/internal/test/natstest"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/drill/history"
	"github.com/natscampaign/election/internal/test/clitest"
)

// disk is a writer that fails while the disk is full.
type disk struct {
	mu      sync.Mutex
	full    bool
	content bytes.Buffer
}

var errFull = errors.New("no space left on device")

// Write appends b to the content.
func (d *disk) Write(b []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.full {
		return 0, errFull
	}
	return d.content.Write(b)
}

// setFull makes the disk full, or frees it.
func (d *disk) setFull(full bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.full = full
}

func TestACandidateEndsAtOnceWhenItsHistoryCannotBeWritten(t *testing.T) {
	natstest.SkipIfShort(t)
	t.Parallel()
	a := clitest.New(t, clitest.LongTTL)
	_, err := a.Client.JetStream.CreateStream(t.Context(), jetstream.StreamConfig{Name: Stream, Subjects: []string{Subject}})
	a.Expect(err).NotTo(HaveOccurred())
	c := &CandidateConfig{Name: "x"}
	file := &disk{}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		ended <- c.campaign(ctx, a.Client, a.Bucket, history.NewWriter(file), slog.New(slog.DiscardHandler))
	}()
	e, err := election.NewElection("y", Key, a.Bucket)
	a.Expect(err).NotTo(HaveOccurred())
	leader := func() error { _, err := e.Leader(t.Context()); return err }
	a.Eventually(leader).WithTimeout(clitest.Timeout).Should(Succeed())
	file.setFull(true)
	a.Eventually(ended).WithTimeout(clitest.Timeout).Should(Receive(MatchError(errFull)))
	a.Expect(leader()).To(Succeed(), "the candidate does not even release the key")
	cancel() // the test must end the election, because the process goes on
	a.Eventually(leader).WithTimeout(clitest.Timeout).ShouldNot(Succeed())
}

func TestAHistoryTakesNoMoreEventsAfterAFailedWrite(t *testing.T) {
	g := NewWithT(t)
	file := &disk{}
	h := history.NewWriter(file)
	file.setFull(true)
	g.Expect(h.Write(history.Event{What: history.Overtaken, At: time.Second})).To(MatchError(errFull))
	file.setFull(false)
	g.Expect(h.Write(history.Event{What: history.Beat, At: time.Second})).To(MatchError(errFull))
	g.Expect(file.content.String()).To(BeEmpty())
}
