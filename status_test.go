package election_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"regexp"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/test/natstest"
)

func TestStatusNamesTheLeaderAndEncodesAsJSON(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.leading("a", election.WithMetadata(map[string]string{"zone": "eu"}))
		b := f.candidate("b").start()
		after(time.Second)

		s := a.Status()
		f.Expect(s.State).To(Equal(election.LeaderState))
		f.Expect(s.IsLeader).To(BeTrue())
		f.Expect(s.Leader.Name).To(Equal("a"))
		f.Expect(s.Bucket).To(Equal(natstest.BucketName))
		f.Expect(s.LeaseRemaining).To(Equal(lease - time.Second))
		f.Expect(s.TTL).To(Equal(ttl))
		f.Expect(s.CampaignInterval).To(Equal(interval))
		f.Expect(s.Wins).To(BeEquivalentTo(1))

		s = b.Status()
		f.Expect(s.IsLeader).To(BeFalse())
		f.Expect(s.Leader.Name).To(Equal("a"))
		f.Expect(s.Leader.Metadata).To(Equal(map[string]string{"zone": "eu"}))
		f.Expect(s.Leader.Expires.Sub(s.Leader.Renewed)).To(Equal(ttl))
		term, _ := a.Term()
		f.Expect(s.Term).To(Equal(term.Number))
		leader, err := b.Leader(context.Background())
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(leader).To(Equal(*s.Leader))
		var back election.Status
		f.Expect(roundTrip(s, &back)).To(Succeed())
		f.Expect(back.Leader.Name).To(Equal("a"))
		f.Expect(back.State).To(Equal(election.CandidateState))

		a.shutdown()
		_, err = b.Leader(context.Background())
		f.Expect(err).To(MatchError(election.ErrNoLeader))
	})
}

func TestStatusForgetsAnErrorAfterASuccess(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		f.leading("a")
		b := f.candidate("b")
		b.link.Cut()
		b.start()
		after(10 * time.Second)
		f.Expect(b.Status().LastError).NotTo(BeEmpty())
		b.link.Heal()
		after(2 * ttl)
		f.Expect(b.Status().LastError).To(BeEmpty())
	})
}

func TestStatusOfALeaderElectNamesItself(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.leading("a")
		b := f.candidate("b").start()
		a.link.Cut()
		for b.State() != election.LeaderElectState {
			after(time.Millisecond)
		}
		f.Expect(b.Status().Leader.Name).To(Equal("b"))
		f.Expect(b.Status().Term).To(BeZero(), "leadership does not count yet")
	})
}

func TestStatusHasSecondsInJSON(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.leading("a")
		b, err := json.Marshal(a.Status())
		f.Expect(err).NotTo(HaveOccurred())
		var fields map[string]any
		f.Expect(json.Unmarshal(b, &fields)).To(Succeed())
		f.Expect(fields).To(And(
			HaveKeyWithValue("lease_remaining_s", lease.Seconds()), HaveKeyWithValue("ttl_s", ttl.Seconds()),
			HaveKeyWithValue("campaign_interval_s", interval.Seconds()), HaveKeyWithValue("is_leader", true),
		))
		var back election.Status
		f.Expect(json.Unmarshal(b, &back)).To(Succeed())
		f.Expect(back.LeaseRemaining).To(Equal(lease))
	})
}

func TestStatusIsACopy(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.leading("a", election.WithMetadata(map[string]string{"zone": "eu"}))
		a.Status().Leader.Metadata["zone"] = "us"
		after(interval)
		f.Expect(f.record()).To(ContainSubstring(`"zone":"eu"`))
	})
}

func TestLeaderHasAStateAndATokenOnceItLeads(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.candidate("a", election.WithStandDown(3*ttl)).start()
		after(2 * ttl)
		f.Expect(a.State()).To(Equal(election.LeaderElectState))
		l, err := a.Leader(context.Background())
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(l.State).To(Equal(election.LeaderElectState))
		f.Expect(l.Term).To(BeZero())
		f.Expect(l.Token()).To(BeEmpty())
		after(ttl)
		l, err = a.Leader(context.Background())
		f.Expect(err).NotTo(HaveOccurred())
		term, _ := a.Term()
		f.Expect(l.State).To(Equal(election.LeaderState))
		f.Expect(l.Term).To(Equal(term.Number))
		f.Expect(l.Token()).To(Equal(term.Token()))
		a.shutdown()

		f.Write("stranger") // a bare name, as candidates of Choria write it
		l, err = a.Leader(context.Background())
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(l.Name).To(Equal("stranger"))
		f.Expect(l.State).To(Equal(election.LeaderState))
		f.Expect(l.Token()).To(BeEmpty())
	})
}

func roundTrip(from, to any) error {
	b, err := json.Marshal(from)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, to)
}

func TestSetMetadataIsWrittenSoon(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.leading("a", election.WithMetadata(map[string]string{"url": "http://old"}))
		after(time.Second)
		f.Expect(a.SetMetadata(map[string]string{"url": "http://new"})).To(Succeed())
		after(100 * time.Millisecond)
		l, err := a.Leader(context.Background())
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(l.Metadata).To(Equal(map[string]string{"url": "http://new"}))
		before := f.revision()
		for range 1000 {
			f.Expect(a.SetMetadata(map[string]string{"url": "http://newer"})).To(Succeed())
			after(time.Millisecond)
		}
		f.Expect(f.revision()-before).To(BeNumerically("<=", 11), "renewals for a thousand changes in a second")
		f.Expect(a.SetMetadata(map[string]string{"": "x"})).To(MatchError(election.ErrInvalidOption))
		f.Expect(a.IsLeader()).To(BeTrue())
	})
}

func TestStatusOfAFollowerNamesTheNewLeader(t *testing.T) {
	forEachSource(t, func(f *fleet, candidate newCandidate) {
		a := candidate("a").start()
		after(interval)
		b := candidate("b").start()
		c := candidate("c").start()
		after(3 * interval)
		a.shutdown()
		after(ttl)
		leader, other := b, c
		if c.IsLeader() {
			leader, other = c, b
		}
		f.Expect(leader.IsLeader()).To(BeTrue())
		f.Expect(other.Status().Leader.Name).To(Equal(leader.Status().Name))
	})
}

func TestStatusOfAFollowerNeverGoesBack(t *testing.T) {
	forEachSource(t, func(f *fleet, candidate newCandidate) {
		candidate("a").start()
		after(interval)
		b := candidate("b").start()
		after(10 * interval)
		before := b.Status().Leader.Revision
		b.link.LoseRequests(toKey) // so that no campaign of b succeeds
		b.link.Disconnect()
		for range 200 {
			after(10 * time.Millisecond)
			f.Expect(b.Status().Leader.Revision).To(BeNumerically(">=", before))
		}
	})
}

func TestStatusDoesNotExtendTheLeaseOfAResignedLeader(t *testing.T) {
	forEachSource(t, func(f *fleet, candidate newCandidate) {
		a := candidate("a").start()
		after(interval)
		b := candidate("b").start()
		after(5 * interval)
		b.link.LoseRequests(toKey)
		f.Expect(a.Resign(context.Background())).To(Succeed())
		after(time.Second)
		if l := b.Status().Leader; l != nil {
			f.Expect(l.Expires).To(BeTemporally("<", time.Now().Add(ttl-1500*time.Millisecond)))
		}
	})
}

func TestFollowerLogsWhoWonTheKeyAndThenThatItLeads(t *testing.T) {
	natstest.SkipIfShort(t)
	onVirtualTime(t, func(f *fleet) {
		var logged bytes.Buffer
		f.connected("b", election.WithSplay(time.Second), election.WithLogger(slog.New(slog.NewTextHandler(&logged, nil)))).start()
		f.connected("a").start()
		after(3 * interval)
		f.Expect(regexp.MustCompile(`"Leader seen".*`).FindAllString(logged.String(), -1)).To(Equal([]string{
			`"Leader seen" election=scheduler name=b leader=a state=leader-elect leads-within=7.5s`, `"Leader seen" election=scheduler name=b leader=a term=1`,
		}))
	}, republished)
}

// What people ask is since when somebody leads, and not since when the key is held.
func TestLeaderSaysSinceWhenItsLeadershipCounts(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		began, r := time.Now(), prometheus.NewPedanticRegistry()
		a, b := f.connected("a", election.WithRegisterer(r)).start(), f.connected("b", election.WithRegisterer(r)).start()
		leader := func(c *candidate) election.Leader {
			l, err := c.Leader(context.Background())
			f.Expect(err).NotTo(HaveOccurred())
			return l
		}
		after(instant)
		f.Expect(leader(a).LeadsSince).To(BeZero())
		f.Expect(valueOf(f, r, "election_leads_since_timestamp_seconds")).To(BeZero())
		for range 3 {
			after(interval)
			f.Expect(leader(a).LeadsSince).To(BeTemporally("~", began.Add(interval), instant))
			f.Expect(leader(b).LeadsSince).To(BeTemporally("~", began.Add(interval), instant))
			f.Expect(a.Status().Leader.LeadsSince).To(BeTemporally("==", leader(a).LeadsSince))
			f.Expect(leader(b).Since).To(BeTemporally("~", began, instant))
			f.Expect(valueOf(f, r, "election_leads_since_timestamp_seconds")).To(BeNumerically("~", float64(leader(a).LeadsSince.UnixMilli())/1000, 0.0011))
		}
		handedOver := time.Now()
		f.Expect(a.Resign(context.Background())).To(Succeed())
		after(interval + instant)
		f.Expect(leader(a).Name).To(Equal("b"))
		f.Expect(leader(a).LeadsSince).To(BeTemporally("~", handedOver, instant))
		f.Expect(valueOf(f, r, "election_leads_since_timestamp_seconds")).To(BeNumerically("~", float64(handedOver.UnixMilli())/1000, 0.0011), "nothing is added by the leader before")
	})
}
