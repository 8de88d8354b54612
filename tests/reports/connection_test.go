package reports_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	. "github.com/natscampaign/election/internal/test/fleettest"
)

func TestClosedConnectionEndsTheRun(t *testing.T) {
	for name, given := range map[string]bool{"with its JetStream context": true, "with a bare bucket": false} {
		t.Run(name, func(t *testing.T) {
			Run(t, func(f *Fleet) {
				nc := f.Server.Connect(f.T)
				var opts []election.Option
				if given {
					js, err := jetstream.New(nc)
					f.Expect(err).NotTo(HaveOccurred())
					opts = append(opts, election.WithJetStream(js))
				}
				for _, leads := range []bool{true, false} {
					c := f.CandidateOn(fmt.Sprint(leads), nil, f.Bare(nc), opts...).Begin()
					After(Interval)
					f.Expect(c.IsLeader()).To(Equal(leads))
					defer func() {
						closed := time.Now()
						err := <-c.Result
						f.Expect(errors.Is(err, nats.ErrConnectionClosed)).To(BeTrue(), "%v", err)
						f.Expect(c.IsLeader()).To(BeFalse())
						f.Expect(time.Since(closed)).To(BeNumerically("<=", TTL+time.Second))
						if given {
							f.Expect(time.Since(closed)).To(BeNumerically("<=", 100*time.Millisecond))
						}
						f.Expect(Get(c.Handler(), "GET", "/healthz").Code).To(Equal(503))
						f.Expect(c.Start(context.Background())).To(MatchError(And(ContainSubstring("make a new one on a new connection"), ContainSubstring("connection closed"))))
						f.Expect(Get(c.Handler(), "GET", "/healthz").Code).To(Equal(503), "a new process would do better")
					}()
				}
				nc.Close()
			}, Republished)
		})
	}
}

func TestConnectionThatIsClosedAfterAStopIsNoError(t *testing.T) {
	Run(t, func(f *Fleet) {
		nc := f.Server.Connect(f.T)
		var logged bytes.Buffer
		c := f.CandidateOn("a", nil, f.Bare(nc), election.WithLogger(slog.New(slog.NewTextHandler(&logged, nil)))).Begin()
		After(Interval)
		f.Expect(c.IsLeader()).To(BeTrue())
		c.Stop()
		nc.Close()
		f.Expect(<-c.Result).To(Or(Succeed(), MatchError(nats.ErrConnectionClosed)))
		f.Expect(logged.String()).NotTo(ContainSubstring("ERROR"))
	}, Republished)
}

func TestClosedConnectionEndsTheRunOfAHeldCandidate(t *testing.T) {
	for name, c := range map[string]struct {
		opts []election.Option
		then func(*Candidate)
	}{
		"paused":    {nil, func(c *Candidate) { c.Pause() }},
		"unhealthy": {[]election.Option{election.WithHealthCheck(func(context.Context) error { return errors.New("failing") })}, func(*Candidate) {}},
	} {
		t.Run(name, func(t *testing.T) {
			Run(t, func(f *Fleet) {
				nc := f.Server.Connect(f.T)
				a := f.CandidateOn("a", nil, f.Bare(nc), c.opts...)
				c.then(a)
				a.Begin()
				After(3 * Interval)
				nc.Close()
				After(TTL + time.Second)
				var err error
				select {
				case err = <-a.Result:
				default:
				}
				f.Expect(err).To(MatchError(nats.ErrConnectionClosed))
			})
		})
	}
}
