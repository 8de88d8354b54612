package quiet_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	. "github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/natstest"
)

// Connections of these tests have the default pings of nats.go, by which a client notices a forgotten connection after 4 to 6 minutes.

func TestFollowerWhoseConnectionWasForgottenTakesOverInTime(t *testing.T) {
	for name, change := range map[string]func(f *Fleet) NewCandidate{
		"notified": func(f *Fleet) NewCandidate { return f.Connected },
		"not notified": func(f *Fleet) NewCandidate {
			return func(name string, opts ...election.Option) *Candidate {
				c := f.Connected(name, opts...)
				c.Link.LoseReplies(nil) // but for those that come later
				c.Link.LoseReplies(natstest.ToKey("none"))
				return c
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			Run(t, func(f *Fleet) {
				a := f.Connected("a").Begin()
				After(Interval)
				b := change(f)("b").Begin()
				After(3*Interval + time.Second)
				b.Link.Forget()
				After(time.Second)
				a.Link.Cut() // less than a TTL after its last renewal
				After(TTL + 400*time.Millisecond + ExpirySpread + Interval)
				f.Expect(a.IsLeader()).To(BeFalse())
				f.Expect(b.IsLeader()).To(BeTrue(), "as if its connection had worked all the time")
			}, Republished)
		})
	}
}

func TestLeaderWhoseConnectionWasForgottenKeepsItsTerm(t *testing.T) {
	Run(t, func(f *Fleet) {
		var log Log
		a := f.Connected("a", election.WithCampaignInterval(TTL/3), election.WithLogger(log.Logger())).Begin()
		After(TTL)
		for range 5 {
			a.Link.Forget()
			After(3 * TTL)
		}
		f.Expect(a.Seen()).To(HaveLen(1))
		f.Expect(log.Count("Connection does not answer, connecting again")).To(Equal(5))
	}, Republished)
}

func TestLeaderThatLostItsTermOnAForgottenConnectionCampaignsAgainSoon(t *testing.T) {
	Run(t, func(f *Fleet) {
		a := f.Connected("a", election.WithCampaignInterval(TTL-Margin-100*time.Millisecond), election.WithStandDown(0)).Begin()
		After(TTL)
		f.Expect(a.IsLeader()).To(BeTrue())
		a.Link.Forget()
		After(TTL)
		f.Expect(a.Seen()).To(HaveLen(2), "its lease is over")
		After(3 * TTL)
		f.Expect(a.IsLeader()).To(BeTrue())
	}, Republished)
}

func TestConnectionThatBelongsToTheProgramIsLeftAloneOnRequest(t *testing.T) {
	Run(t, func(f *Fleet) {
		var log Log
		f.Connected("a").Begin()
		After(Interval)
		l := f.Server.Link(f.T)
		nc := natstest.Connect(f.T, l)
		f.CandidateOn("b", l, f.Open(nc), election.WithLogger(log.Logger()), election.WithoutForcedReconnect()).Begin()
		f.Election("c", "another", f.Open(nc)) // which would not mind
		After(3 * Interval)
		l.Forget()
		After(5 * TTL)
		f.Expect(nc.Stats().Reconnects).To(BeZero())
		f.Expect(log.Count(`level=WARN msg="Connection does not answer"`)).To(Equal(1))
	}, Republished)
}

func TestConnectionIsKeptWhileNoServerCanBeReached(t *testing.T) {
	Run(t, func(f *Fleet) {
		f.Connected("a").Begin()
		After(Interval)
		l := f.Server.Link(f.T)
		var log Log
		nc := natstest.Connect(f.T, l)
		f.CandidateOn("b", l, f.Open(nc), election.WithLogger(log.Logger())).Begin()
		After(3 * Interval)
		l.Cut()
		After(5 * TTL)
		f.Expect(nc.IsConnected()).To(BeTrue(), "a client that gives up after some attempts would close it for good")
		f.Expect(log.Count(`level=WARN msg="Connection does not answer, nor can a server be reached by another"`)).To(Equal(1))
	}, Republished)
}

func TestElectionsOfOneConnectionHaveItMadeAgainOnce(t *testing.T) {
	Run(t, func(f *Fleet) {
		l := f.Server.Link(f.T)
		nc := natstest.Connect(f.T, l)
		bucket := f.Open(nc)
		var all []*election.Election
		for i := range 50 {
			all = append(all, f.Election("a", fmt.Sprintf("key-%d", i), bucket))
		}
		After(TTL)
		l.Forget()
		After(3 * TTL)
		f.Expect(nc.Stats().Reconnects).To(BeEquivalentTo(1))
		for _, e := range all {
			f.Expect(e.IsLeader()).To(BeTrue())
		}
	}, Republished)
}

func TestWorkingConnectionIsNeverMadeAgain(t *testing.T) {
	natstest.SkipIfShort(t)
	for name, disturb := range map[string]func(f *Fleet, a, b *Candidate){
		"crashes":           func(_ *Fleet, a, _ *Candidate) { a.Link.Cut() },
		"requests are lost": func(_ *Fleet, _, b *Candidate) { b.Link.LoseRequests(nil) },
		"replies are lost":  func(_ *Fleet, _, b *Candidate) { b.Link.LoseReplies(nil) },
		"replies take 700 ms": func(_ *Fleet, a, b *Candidate) {
			a.Link.DelayReplies(700 * time.Millisecond)
			b.Link.DelayReplies(700 * time.Millisecond)
		},
		"the bucket is removed": func(f *Fleet, _, _ *Candidate) {
			_ = f.Open(f.Server.Connect(f.T)).JetStream().DeleteKeyValue(context.Background(), natstest.BucketName)
		},
	} {
		t.Run(name, func(t *testing.T) {
			Run(t, func(f *Fleet) {
				a := f.Connected("a").Begin()
				After(Interval)
				l := f.Server.Link(f.T)
				nc := natstest.Connect(f.T, l, nats.DisconnectErrHandler(func(*nats.Conn, error) { f.Error("disconnected") }))
				b := f.CandidateOn("b", l, f.Open(nc)).Begin()
				After(3 * Interval)
				disturb(f, a, b)
				After(5 * TTL)
				f.Expect(nc.Stats().Reconnects).To(BeZero())
				nc.Opts.DisconnectedErrCB = nil
			}, Republished)
		})
	}
}
