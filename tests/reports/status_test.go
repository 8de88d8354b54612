package reports_test

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
	. "github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/natstest"
)

func TestStatusNamesTheLeaderAndHasSecondsInJSON(t *testing.T) {
	Run(t, func(f *Fleet) {
		a := f.Leading("a", election.WithMetadata(map[string]string{"zone": "eu"}))
		b := f.Candidate("b").Begin()
		After(time.Second)

		s := a.Status()
		f.Expect(s.State).To(Equal(election.LeaderState))
		f.Expect(s.IsLeader).To(BeTrue())
		f.Expect(s.Leader.Name).To(Equal("a"))
		f.Expect(s.Bucket).To(Equal(natstest.BucketName))
		f.Expect(s.LeaseRemaining).To(Equal(Lease - time.Second))
		f.Expect(s.TTL).To(Equal(TTL))
		f.Expect(s.CampaignInterval).To(Equal(Interval))
		f.Expect(s.Wins).To(BeEquivalentTo(1))
		encoded, err := json.Marshal(s)
		f.Expect(err).NotTo(HaveOccurred())
		var fields map[string]any
		f.Expect(json.Unmarshal(encoded, &fields)).To(Succeed())
		f.Expect(fields).To(And(
			HaveKeyWithValue("lease_remaining_s", (Lease-time.Second).Seconds()), HaveKeyWithValue("ttl_s", TTL.Seconds()),
			HaveKeyWithValue("campaign_interval_s", Interval.Seconds()), HaveKeyWithValue("is_leader", true),
		))
		var back election.Status
		f.Expect(json.Unmarshal(encoded, &back)).To(Succeed())
		f.Expect([]any{back.Leader.Name, back.State, back.LeaseRemaining}).To(Equal([]any{"a", election.LeaderState, Lease - time.Second}))

		s = b.Status()
		f.Expect(s.IsLeader).To(BeFalse())
		f.Expect(s.Leader.Name).To(Equal("a"))
		f.Expect(s.Leader.Metadata).To(Equal(map[string]string{"zone": "eu"}))
		f.Expect(s.Leader.Expires.Sub(s.Leader.Renewed)).To(Equal(TTL))
		term, _ := a.Term()
		f.Expect(s.Term).To(Equal(term.Number))
		leader, err := b.Leader(context.Background())
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(leader).To(Equal(*s.Leader))

		a.End()
		_, err = b.Leader(context.Background())
		f.Expect(err).To(MatchError(election.ErrNoLeader))
	})
}

func TestStatusOfALeaderElectNamesItself(t *testing.T) {
	Run(t, func(f *Fleet) {
		a := f.Leading("a")
		b := f.Candidate("b").Begin()
		a.Link.Cut()
		for b.State() != election.LeaderElectState {
			After(time.Millisecond)
		}
		f.Expect(b.Status().Leader.Name).To(Equal("b"))
		f.Expect(b.Status().Term).To(BeZero(), "leadership does not count yet")
	})
}

func TestStatusIsACopy(t *testing.T) {
	Run(t, func(f *Fleet) {
		a := f.Leading("a", election.WithMetadata(map[string]string{"zone": "eu"}))
		a.Status().Leader.Metadata["zone"] = "us"
		After(Interval)
		f.Expect(f.Record()).To(ContainSubstring(`"zone":"eu"`))
	})
}

func TestLeaderHasAStateAndATokenOnceItLeads(t *testing.T) {
	Run(t, func(f *Fleet) {
		a := f.Candidate("a", election.WithStandDown(3*TTL)).Begin()
		After(2 * TTL)
		f.Expect(a.State()).To(Equal(election.LeaderElectState))
		l, err := a.Leader(context.Background())
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(l.State).To(Equal(election.LeaderElectState))
		f.Expect(l.Term).To(BeZero())
		f.Expect(l.Token()).To(BeEmpty())
		After(TTL)
		l, err = a.Leader(context.Background())
		f.Expect(err).NotTo(HaveOccurred())
		term, _ := a.Term()
		f.Expect(l.State).To(Equal(election.LeaderState))
		f.Expect(l.Term).To(Equal(term.Number))
		f.Expect(l.Token()).To(Equal(term.Token()))
		a.End()

		f.Write("stranger") // a bare name, as candidates of Choria write it
		l, err = a.Leader(context.Background())
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(l.Name).To(Equal("stranger"))
		f.Expect(l.State).To(Equal(election.LeaderState))
		f.Expect(l.Token()).To(BeEmpty())
	})
}

func TestSetMetadataIsWrittenSoon(t *testing.T) {
	Run(t, func(f *Fleet) {
		a := f.Leading("a", election.WithMetadata(map[string]string{"url": "http://old"}))
		After(time.Second)
		f.Expect(a.SetMetadata(map[string]string{"url": "http://new"})).To(Succeed())
		After(100 * time.Millisecond)
		l, err := a.Leader(context.Background())
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(l.Metadata).To(Equal(map[string]string{"url": "http://new"}))
		before := f.Revision()
		for range 1000 {
			f.Expect(a.SetMetadata(map[string]string{"url": "http://newer"})).To(Succeed())
			After(time.Millisecond)
		}
		f.Expect(f.Revision()-before).To(BeNumerically("<=", 11), "renewals for a thousand changes in a second")
		f.Expect(a.SetMetadata(map[string]string{"": "x"})).To(MatchError(election.ErrInvalidOption))
		f.Expect(a.IsLeader()).To(BeTrue())
	})
}

func TestStatusOfAFollowerNamesTheNewLeader(t *testing.T) {
	ForEachSource(t, func(f *Fleet, candidate NewCandidate) {
		a := candidate("a").Begin()
		After(Interval)
		b := candidate("b").Begin()
		c := candidate("c").Begin()
		After(3 * Interval)
		a.End()
		After(TTL)
		leader, other := b, c
		if c.IsLeader() {
			leader, other = c, b
		}
		f.Expect(leader.IsLeader()).To(BeTrue())
		f.Expect(other.Status().Leader.Name).To(Equal(leader.Status().Name))
	})
}

func TestStatusOfAFollowerNeverGoesBack(t *testing.T) {
	ForEachSource(t, func(f *Fleet, candidate NewCandidate) {
		candidate("a").Begin()
		After(Interval)
		b := candidate("b").Begin()
		After(10 * Interval)
		before := b.Status().Leader.Revision
		b.Link.LoseRequests(ToKey) // so that no campaign of b succeeds
		b.Link.Disconnect()
		for range 200 {
			After(10 * time.Millisecond)
			f.Expect(b.Status().Leader.Revision).To(BeNumerically(">=", before))
		}
	})
}

func TestStatusDoesNotExtendTheLeaseOfAResignedLeader(t *testing.T) {
	ForEachSource(t, func(f *Fleet, candidate NewCandidate) {
		a := candidate("a").Begin()
		After(Interval)
		b := candidate("b").Begin()
		After(5 * Interval)
		b.Link.LoseRequests(ToKey)
		f.Expect(a.Resign(context.Background())).To(Succeed())
		After(time.Second)
		if l := b.Status().Leader; l != nil {
			f.Expect(l.Expires).To(BeTemporally("<", time.Now().Add(TTL-1500*time.Millisecond)))
		}
	})
}

func TestFollowerLogsWhoWonTheKeyAndThenThatItLeads(t *testing.T) {
	natstest.SkipIfShort(t)
	Run(t, func(f *Fleet) {
		var logged bytes.Buffer
		f.Connected("b", election.WithSplay(time.Second), election.WithLogger(slog.New(slog.NewTextHandler(&logged, nil)))).Begin()
		f.Connected("a").Begin()
		After(3 * Interval)
		f.Expect(regexp.MustCompile(`"Leader seen".*`).FindAllString(logged.String(), -1)).To(Equal([]string{
			`"Leader seen" election=scheduler name=b leader=a state=leader-elect leads-within=7.5s`, `"Leader seen" election=scheduler name=b leader=a term=1`,
		}))
	}, Republished)
}

// What people ask is since when somebody leads, and not since when the key is held.
func TestLeaderSaysSinceWhenItsLeadershipCounts(t *testing.T) {
	Run(t, func(f *Fleet) {
		began, r := time.Now(), prometheus.NewPedanticRegistry()
		a, b := f.Connected("a", election.WithRegisterer(r)).Begin(), f.Connected("b", election.WithRegisterer(r)).Begin()
		leader := func(c *Candidate) election.Leader {
			l, err := c.Leader(context.Background())
			f.Expect(err).NotTo(HaveOccurred())
			return l
		}
		After(Instant)
		f.Expect(leader(a).LeadsSince).To(BeZero())
		f.Expect(valueOf(f, r, "election_leads_since_timestamp_seconds")).To(BeZero())
		for range 3 {
			After(Interval)
			f.Expect(leader(a).LeadsSince).To(BeTemporally("~", began.Add(Interval), Instant))
			f.Expect(leader(b).LeadsSince).To(BeTemporally("~", began.Add(Interval), Instant))
			f.Expect(a.Status().Leader.LeadsSince).To(BeTemporally("==", leader(a).LeadsSince))
			f.Expect(leader(b).Since).To(BeTemporally("~", began, Instant))
			f.Expect(valueOf(f, r, "election_leads_since_timestamp_seconds")).To(BeNumerically("~", float64(leader(a).LeadsSince.UnixMilli())/1000, 0.0011))
		}
		handedOver := time.Now()
		f.Expect(a.Resign(context.Background())).To(Succeed())
		After(Interval + Instant)
		f.Expect(leader(a).Name).To(Equal("b"))
		f.Expect(leader(a).LeadsSince).To(BeTemporally("~", handedOver, Instant))
		f.Expect(valueOf(f, r, "election_leads_since_timestamp_seconds")).To(BeNumerically("~", float64(handedOver.UnixMilli())/1000, 0.0011), "nothing is added by the leader before")
	})
}
