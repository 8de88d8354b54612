package election_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/test/natstest"
)

// Connections of these tests have the default pings of nats.go, by which a client notices a forgotten connection after 4 to 6 minutes.

func TestFollowerWhoseConnectionWasForgottenTakesOverInTime(t *testing.T) {
	for name, change := range map[string]func(f *fleet) newCandidate{
		"notified": func(f *fleet) newCandidate { return f.connected },
		"not notified": func(f *fleet) newCandidate {
			return func(name string, opts ...election.Option) *candidate {
				c := f.connected(name, opts...)
				c.link.LoseReplies(nil) // but for those that come later
				c.link.LoseReplies(natstest.ToKey("none"))
				return c
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				a := f.connected("a").start()
				after(interval)
				b := change(f)("b").start()
				after(3*interval + time.Second)
				b.link.Forget()
				after(time.Second)
				a.link.Cut() // less than a TTL after its last renewal
				after(ttl + 400*time.Millisecond + expirySpread + interval)
				f.Expect(a.IsLeader()).To(BeFalse())
				f.Expect(b.IsLeader()).To(BeTrue(), "as if its connection had worked all the time")
			}, republished)
		})
	}
}

func TestLeaderWhoseConnectionWasForgottenKeepsItsTerm(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		var log logged
		a := f.connected("a", election.WithCampaignInterval(ttl/3), election.WithLogger(log.logger())).start()
		after(ttl)
		for range 5 {
			a.link.Forget()
			after(3 * ttl)
		}
		f.Expect(a.seen()).To(HaveLen(1))
		f.Expect(log.count("Connection does not answer, connecting again")).To(Equal(5))
	}, republished)
}

func TestLeaderThatLostItsTermOnAForgottenConnectionCampaignsAgainSoon(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.connected("a", election.WithCampaignInterval(ttl-margin-100*time.Millisecond), election.WithStandDown(0)).start()
		after(ttl)
		f.Expect(a.IsLeader()).To(BeTrue())
		a.link.Forget()
		after(ttl)
		f.Expect(a.seen()).To(HaveLen(2), "its lease is over")
		after(3 * ttl)
		f.Expect(a.IsLeader()).To(BeTrue())
	}, republished)
}

func TestConnectionThatBelongsToTheProgramIsLeftAloneOnRequest(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		var log logged
		f.connected("a").start()
		after(interval)
		l := f.Server.Link(f.T)
		nc := natstest.Connect(f.T, l)
		f.candidateOn("b", l, f.Open(nc), election.WithLogger(log.logger()), election.WithoutForcedReconnect()).start()
		f.election("c", "another", f.Open(nc)) // which would not mind
		after(3 * interval)
		l.Forget()
		after(5 * ttl)
		f.Expect(nc.Stats().Reconnects).To(BeZero())
		f.Expect(log.count(`level=WARN msg="Connection does not answer"`)).To(Equal(1))
	}, republished)
}

func TestConnectionIsKeptWhileNoServerCanBeReached(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		f.connected("a").start()
		after(interval)
		l := f.Server.Link(f.T)
		var log logged
		nc := natstest.Connect(f.T, l)
		f.candidateOn("b", l, f.Open(nc), election.WithLogger(log.logger())).start()
		after(3 * interval)
		l.Cut()
		after(5 * ttl)
		f.Expect(nc.IsConnected()).To(BeTrue(), "a client that gives up after some attempts would close it for good")
		f.Expect(log.count(`level=WARN msg="Connection does not answer, nor can a server be reached by another"`)).To(Equal(1))
	}, republished)
}

func TestElectionsOfOneConnectionHaveItMadeAgainOnce(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		l := f.Server.Link(f.T)
		nc := natstest.Connect(f.T, l)
		bucket := f.Open(nc)
		var all []*election.Election
		for i := range 50 {
			all = append(all, f.election("a", fmt.Sprintf("key-%d", i), bucket))
		}
		after(ttl)
		l.Forget()
		after(3 * ttl)
		f.Expect(nc.Stats().Reconnects).To(BeEquivalentTo(1))
		for _, e := range all {
			f.Expect(e.IsLeader()).To(BeTrue())
		}
	}, republished)
}

func TestWorkingConnectionIsNeverMadeAgain(t *testing.T) {
	natstest.SkipIfShort(t)
	for name, disturb := range map[string]func(f *fleet, a, b *candidate){
		"crashes":           func(_ *fleet, a, _ *candidate) { a.link.Cut() },
		"requests are lost": func(_ *fleet, _, b *candidate) { b.link.LoseRequests(nil) },
		"replies are lost":  func(_ *fleet, _, b *candidate) { b.link.LoseReplies(nil) },
		"replies take 700 ms": func(_ *fleet, a, b *candidate) {
			a.link.DelayReplies(700 * time.Millisecond)
			b.link.DelayReplies(700 * time.Millisecond)
		},
		"the bucket is removed": func(f *fleet, _, _ *candidate) {
			_ = f.Open(f.Server.Connect(f.T)).JetStream().DeleteKeyValue(context.Background(), natstest.BucketName)
		},
	} {
		t.Run(name, func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				a := f.connected("a").start()
				after(interval)
				l := f.Server.Link(f.T)
				nc := natstest.Connect(f.T, l, nats.DisconnectErrHandler(func(*nats.Conn, error) { f.Error("disconnected") }))
				b := f.candidateOn("b", l, f.Open(nc)).start()
				after(3 * interval)
				disturb(f, a, b)
				after(5 * ttl)
				f.Expect(nc.Stats().Reconnects).To(BeZero())
				nc.Opts.DisconnectedErrCB = nil
			}, republished)
		})
	}
}
