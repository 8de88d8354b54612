package election_test

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
)

func TestClosedConnectionEndsTheRun(t *testing.T) {
	for name, given := range map[string]bool{"with its JetStream context": true, "with a bare bucket": false} {
		t.Run(name, func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				nc := f.Server.Connect(f.T)
				var opts []election.Option
				if given {
					js, err := jetstream.New(nc)
					f.Expect(err).NotTo(HaveOccurred())
					opts = append(opts, election.WithJetStream(js))
				}
				for _, leads := range []bool{true, false} {
					c := f.candidateOn(fmt.Sprint(leads), nil, f.Bare(nc), opts...).start()
					after(interval)
					f.Expect(c.IsLeader()).To(Equal(leads))
					defer func() {
						closed := time.Now()
						err := <-c.result
						f.Expect(errors.Is(err, nats.ErrConnectionClosed)).To(BeTrue(), "%v", err)
						f.Expect(c.IsLeader()).To(BeFalse())
						f.Expect(time.Since(closed)).To(BeNumerically("<=", ttl+time.Second))
						if given {
							f.Expect(time.Since(closed)).To(BeNumerically("<=", 100*time.Millisecond))
						}
						f.Expect(get(c.Handler(), "GET", "/healthz").Code).To(Equal(503))
						f.Expect(c.Start(context.Background())).To(MatchError(And(ContainSubstring("make a new one on a new connection"), ContainSubstring("connection closed"))))
						f.Expect(get(c.Handler(), "GET", "/healthz").Code).To(Equal(503), "a new process would do better")
					}()
				}
				nc.Close()
			}, republished)
		})
	}
}

func TestConnectionThatIsClosedAfterAStopIsNoError(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		nc := f.Server.Connect(f.T)
		var logged bytes.Buffer
		c := f.candidateOn("a", nil, f.Bare(nc), election.WithLogger(slog.New(slog.NewTextHandler(&logged, nil)))).start()
		after(interval)
		f.Expect(c.IsLeader()).To(BeTrue())
		c.Stop()
		nc.Close()
		f.Expect(<-c.result).To(Or(Succeed(), MatchError(nats.ErrConnectionClosed)))
		f.Expect(logged.String()).NotTo(ContainSubstring("ERROR"))
	}, republished)
}

func TestClosedConnectionEndsTheRunOfAHeldCandidate(t *testing.T) {
	for name, c := range map[string]struct {
		opts []election.Option
		then func(*candidate)
	}{
		"paused":    {nil, func(c *candidate) { c.Pause() }},
		"unhealthy": {[]election.Option{election.WithHealthCheck(func(context.Context) error { return errors.New("failing") })}, func(*candidate) {}},
	} {
		t.Run(name, func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				nc := f.Server.Connect(f.T)
				a := f.candidateOn("a", nil, f.Bare(nc), c.opts...)
				c.then(a)
				a.start()
				after(3 * interval)
				nc.Close()
				after(ttl + time.Second)
				var err error
				select {
				case err = <-a.result:
				default:
				}
				f.Expect(err).To(MatchError(nats.ErrConnectionClosed))
			})
		})
	}
}
