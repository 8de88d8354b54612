package witness

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/record"
)

// A witness that is stopped accepts, and reads nothing.
func TestTellerOfAStoppedWitnessKeepsNoHistoryAndTellsOfTheTermsOfThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		link, witness := net.Pipe()
		teller := NewTeller(link, nil, slog.New(slog.DiscardHandler))
		kept := func() Term {
			return Term{Bucket: "b", Key: "k", Instance: "i", LeaseMs: 1000, Secret: record.NewSecret()}
		}
		known := map[record.Commitment]bool{} // to the witness
		in := bufio.NewReader(witness)
		read := func() {
			line, err := in.ReadBytes('\n')
			g.Expect(err).NotTo(HaveOccurred())
			var m message
			g.Expect(json.Unmarshal(line, &m)).To(Succeed())
			if m.Began != nil {
				known[m.Began.Commitment()] = true
			}
			if m.Over != nil {
				delete(known, *m.Over)
			}
		}
		one, two := kept(), kept()
		teller.Began(one)
		read() // the witness knows of one
		for range 10_000 {
			x := kept()
			teller.Began(x)
			teller.Over(x.Commitment())
		}
		teller.Over(one.Commitment())
		teller.Began(two)
		synctest.Wait()
		teller.mu.Lock()
		g.Expect(len(teller.changed) + len(teller.told)).To(BeNumerically("<", 10))
		teller.mu.Unlock()

		flushed := make(chan struct{})
		go func() {
			defer close(flushed)
			teller.Flush(t.Context())
		}()
		for isFlushed := false; !isFlushed; {
			synctest.Wait()
			select {
			case <-flushed:
				isFlushed = true
			default:
				read()
			}
		}
		g.Expect(known).To(Equal(map[record.Commitment]bool{two.Commitment(): true}))
		go func() { _, _ = io.Copy(io.Discard, in) }()
		teller.Close()
	})
}

func TestTellerTriesSoonAgainUnlessItWasRefusedAndLogsEachNewReasonOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		errs := []error{errors.New("there is none yet"), errors.New("there is none yet"), &refusal{"a relay"}, nil}
		var tries []time.Time
		done := make(chan struct{})
		var log bytes.Buffer
		teller := NewTeller(nil, func(ctx context.Context) (Link, error) {
			tries = append(tries, time.Now())
			err := errs[len(tries)-1]
			if err == nil {
				close(done)
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return nil, err
		}, slog.New(slog.NewTextHandler(&log, nil)))
		<-done
		teller.Close()
		g.Expect(tries[1].Sub(tries[0])).To(Equal(reopenDelay))
		g.Expect(tries[2].Sub(tries[1])).To(Equal(reopenDelay))
		g.Expect(tries[3].Sub(tries[2])).To(Equal(refusedAgainDelay))
		g.Expect(strings.Count(log.String(), "none yet")).To(Equal(1))
		g.Expect(strings.Count(log.String(), "a relay")).To(Equal(1))
	})
}
