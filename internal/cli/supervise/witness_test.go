//go:build linux || darwin

package supervise

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/witness"
)

// told is one message to a witness.
type told struct {
	Began *witness.Term
	Over  *record.Commitment
}

// newGroupTeller returns a teller, and what decodes the next message that its witness reads.
func newGroupTeller(t *testing.T) (g *groupTeller, next func() told) {
	t.Helper()
	link, end := net.Pipe()
	g = &groupTeller{teller: witness.NewTeller(link, func(ctx context.Context) (witness.Link, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}, slog.New(slog.DiscardHandler))}
	messages := make(chan told, 100)
	go func() {
		defer close(messages)
		in := json.NewDecoder(end)
		for m := (told{}); in.Decode(&m) == nil; m = (told{}) {
			messages <- m
		}
	}()
	t.Cleanup(func() {
		g.close()
		for range messages { // until the connection has ended
			continue
		}
	})
	return g, func() told {
		t.Helper()
		var m told
		NewWithT(t).Eventually(messages).WithTimeout(flushTimeout * 20).Should(Receive(&m))
		return m
	}
}

func newTerm() witness.Term {
	return witness.Term{Bucket: "b", Key: "k", Instance: "i", Secret: record.NewSecret(), LeaseMs: 1000}
}

func TestWitnessKnowsATermOnlyWithTheGroupOfTheProgramThatRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		w, next := newGroupTeller(t)
		began := func(term witness.Term, group int) {
			t.Helper()
			term.Group, term.SettleMs = group, witness.DefaultSettleTime.Milliseconds()
			g.Expect(next().Began).To(HaveValue(Equal(term)))
		}
		over := func(term witness.Term) {
			t.Helper()
			g.Expect(next().Over).To(HaveValue(Equal(term.Commitment())))
		}

		one, two := newTerm(), newTerm()
		w.Began(one) // which is told once the program starts
		w.programStarts(10)
		began(one, 10)
		w.programEnded()
		over(one)
		w.programStarts(11) // again, in the same term
		began(one, 11)
		w.Over(one.Commitment()) // while the program runs, as after a deletion of the key
		over(one)
		w.Began(two) // while the program runs, as in signal mode
		began(two, 11)
		w.Over(one.Commitment()) // of an earlier term: the witness does not know it any more
		w.programEnded()
		over(two)
		w.Over(two.Commitment())
		w.programStarts(12) // in no term
		w.Began(one)
		began(one, 12)
	})
}

func TestStartOfAProgramWaitsUntilItsWitnessKnowsTheGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		w, next := newGroupTeller(t)
		w.programStarts(10)
		term := newTerm()
		w.Began(term)
		began := next() // so the teller has its witness by now
		g.Expect(began.Began.Group).To(Equal(10))
		w.programStarts(11)
		g.Expect(next().Began.Group).To(Equal(11))
	})
}

func TestWitnessThatDoesNotTakeWhatItIsToldIsClosedBeforeTheProgramBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		stuck := stuckLink{closed: make(chan struct{})}
		w := &groupTeller{teller: witness.NewTeller(stuck, nil, slog.New(slog.DiscardHandler))}
		defer w.close()
		w.Began(newTerm())
		w.programStarts(10)
		synctest.Wait()
		w.programStarts(11)
		g.Expect(stuck.closed).To(BeClosed())
	})
}

// stuckLink is the connection to a witness that neither reads nor writes.
type stuckLink struct{ closed chan struct{} }

func (s stuckLink) Read([]byte) (int, error)  { <-s.closed; return 0, io.EOF }
func (s stuckLink) Write([]byte) (int, error) { <-s.closed; return 0, io.ErrClosedPipe }
func (s stuckLink) Close() error {
	select {
	case <-s.closed:
	default:
		close(s.closed)
	}
	return nil
}
