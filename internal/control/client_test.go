package control_test

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/control"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/test/fleettest"
)

func TestRequestEndsThoughAnswersKeepComing(t *testing.T) {
	withFollower(t, func(f *fleettest.Fleet, leader, _ *fleettest.Candidate) {
		nc := f.Server.Connect(f.T)
		stop := make(chan struct{})
		defer close(stop)
		_, err := nc.Subscribe(subject("candidates", key), func(m *nats.Msg) {
			go func() {
				for {
					select {
					case <-stop:
						return
					case <-time.After(100 * time.Millisecond):
						_ = m.Respond([]byte("{}"))
					}
				}
			}()
		})
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(nc.Flush()).To(Succeed())
		done := make(chan error, 1)
		go func() { done <- leader.Transfer(context.Background(), "nobody") }()
		after(10 * time.Second)
		f.Expect(done).To(Receive(MatchError(election.ErrNoCandidate)))
	})
}

func TestRequestEndsWithTheConnection(t *testing.T) {
	fleettest.Run(t, func(f *fleettest.Fleet) {
		silent := f.Server.Connect(f.T)
		_, err := silent.SubscribeSync(subject("candidates", key)) // which receives the request, and does not answer
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(silent.Flush()).To(Succeed())
		nc := f.Server.Connect(f.T)
		done := make(chan error, 1)
		go func() {
			done <- control.Client{Bucket: kv.With(f.Open(nc), nil)}.Candidates(context.Background(), key, func(control.Candidate, time.Time) bool { return false })
		}()
		after(100 * time.Millisecond)
		f.Expect(done).NotTo(Receive())
		nc.Close()
		after(0)
		f.Expect(done).To(Receive(MatchError(nats.ErrConnectionClosed)))
	})
}

func TestLeaderIsWaitedForAsLongAsItSaysThatItMayTake(t *testing.T) {
	for begun, takes := range map[string]time.Duration{
		`{"begun":true}`:                                 3 * time.Second, // a leader of an earlier version
		`{"begun":true,"within_ms":9000}`:                9 * time.Second,
		`{"begun":true,"within_ms":-1}`:                  3 * time.Second,
		`{"begun":true,"within_ms":9223372036854775807}`: time.Hour,
	} {
		fleettest.Run(t, func(f *fleettest.Fleet) {
			nc := f.Server.Connect(f.T)
			_, err := nc.Subscribe(subject("resign", key), func(m *nats.Msg) { _ = m.Respond([]byte(begun)) })
			f.Expect(err).NotTo(HaveOccurred())
			f.Expect(nc.Flush()).To(Succeed())
			c := control.Client{Bucket: kv.With(f.Open(f.Server.Connect(f.T)), nil)}
			asked := time.Now()
			err = c.Resign(context.Background(), key, "i", 3*time.Second)
			f.Expect(err).To(And(MatchError(control.ErrUnderWay), MatchError(ContainSubstring("not done within "+takes.String()))))
			f.Expect(time.Since(asked)).To(BeNumerically("~", takes, 100*time.Millisecond))
		})
	}
}
