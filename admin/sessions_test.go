package admin_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/admin"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/test/sessiontest"
	"github.com/natscampaign/election/observe"
)

// operate runs a test with an operator of a bucket for sessions, in which the sessions "a" and "b" campaign for the key "k", which "a" leads. Only "a" campaigns
// for "other".
func operate(t *testing.T, test func(f *sessiontest.Fixture, operator *admin.Admin, a, b *sessiontest.Process)) {
	t.Helper()
	sessiontest.Run(t, func(f *sessiontest.Fixture) {
		operator, err := admin.New(f.Bucket)
		f.Expect(err).NotTo(HaveOccurred())
		a := f.Open("a").Start("k", "other")
		test(f, operator, a, f.Open("b").Start("k"))
	})
}

// leaderOf returns the name of the leader of a key, empty while its leadership does not count.
func leaderOf(f *sessiontest.Fixture, key string) string {
	o, err := observe.New(f.Bucket)
	f.Expect(err).NotTo(HaveOccurred())
	if l, err := o.Leader(f.Context(), key); err == nil && l.Term != 0 {
		return l.Name
	}
	return ""
}

func TestCandidatesOfAKeyOfSessionsAnswer(t *testing.T) {
	operate(t, func(f *sessiontest.Fixture, operator *admin.Admin, a, _ *sessiontest.Process) {
		candidates, err := operator.Candidates(f.Context(), "k")
		f.Expect(err).NotTo(HaveOccurred())
		var found []string
		for _, c := range candidates {
			found = append(found, fmt.Sprint(c.Name, " ", c.State, " ready:", c.Ready, " standby:", *c.Standby))
		}
		f.Expect(found).To(Equal([]string{"a leader ready:false standby:false", "b candidate ready:true standby:true"}))
		f.Expect(candidates[0].Instance).To(Equal(a.Status().ID))
	})
}

func TestKeyOfASessionIsHandedOverOnRequest(t *testing.T) {
	operate(t, func(f *sessiontest.Fixture, operator *admin.Admin, _, _ *sessiontest.Process) {
		f.Expect(operator.Transfer(f.Context(), "k", "c")).To(MatchError(election.ErrNoCandidate))
		f.Expect(operator.Transfer(f.Context(), "k", "b")).To(Succeed())
		f.Expect(leaderOf(f, "k")).To(Equal("b"))
		f.Expect(leaderOf(f, "other")).To(Equal("a"))
		time.Sleep(sessiontest.TTL) // who has handed over does not campaign at once
		f.Expect(operator.Resign(f.Context(), "k")).To(Succeed())
		time.Sleep(time.Second)
		f.Expect(leaderOf(f, "k")).To(Equal("a"))
		f.Expect(operator.Resign(f.Context(), "nobodys")).To(MatchError(election.ErrNoLeader))
	})
}

func TestEvictionTakesOneKeyFromASessionAndNobodyLeadsItForALease(t *testing.T) {
	operate(t, func(f *sessiontest.Fixture, operator *admin.Admin, a, _ *sessiontest.Process) {
		_, err := operator.Evict(f.Context(), "nobodys")
		f.Expect(err).To(MatchError(election.ErrNoLeader))
		l, err := operator.Evict(f.Context(), "k")
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(l.Instance).To(Equal(a.Status().ID))
		for range 8 {
			time.Sleep(time.Second)
			f.Expect(leaderOf(f, "k")).To(BeEmpty())
			f.Expect(a.Status().Led).To(Equal(1))
		}
		time.Sleep(sessiontest.TTL / 2)
		f.Expect(leaderOf(f, "k")).NotTo(BeEmpty())
		f.Expect(leaderOf(f, "other")).To(Equal("a"))
	})
}

func TestWhatABucketForSessionsDoesNotKnowIsRefused(t *testing.T) {
	operate(t, func(f *sessiontest.Fixture, operator *admin.Admin, _, _ *sessiontest.Process) {
		stream := func() jetstream.StreamConfig {
			s, err := f.Bucket.JetStream().Stream(f.Context(), kv.StreamName(sessiontest.Bucket))
			f.Expect(err).NotTo(HaveOccurred())
			return s.CachedInfo().Config
		}
		before := stream()
		for what, err := range map[string]error{
			"pause":  operator.Pause(f.Context(), "k"),
			"resume": operator.Resume(f.Context(), "k"),
			"forget": operator.Forget(f.Context(), observe.Event{Key: "k", Kind: observe.Released}),
		} {
			f.Expect(err).To(MatchError(election.ErrBucketUnsuitable), what)
			f.Expect(err).To(MatchError(ContainSubstring("is made for sessions")), what)
		}
		_, err := election.CreateBucket(f.Context(), f.Bucket.JetStream(), election.BucketConfig{Name: sessiontest.Bucket, TTL: sessiontest.TTL, Storage: jetstream.MemoryStorage})
		f.Expect(err).To(MatchError(And(ContainSubstring("would expire while they are led"), ContainSubstring("nats stream edit KV_SESSIONS"))))
		f.Expect(stream()).To(Equal(before))
	})
}

func TestCheckOfABucketForSessionsCountsKeysAndNamesWhatIsWrong(t *testing.T) {
	operate(t, func(f *sessiontest.Fixture, _ *admin.Admin, a, b *sessiontest.Process) {
		check := func() (codes []string, counted string) {
			findings, err := admin.Check(f.Context(), f.Bucket)
			f.Expect(err).NotTo(HaveOccurred())
			for _, found := range findings {
				if codes = append(codes, found.Code); found.Code == "session-keys" {
					counted = found.Message
				}
			}
			return codes, counted
		}
		codes, counted := check()
		f.Expect(codes).To(ConsistOf("memory", "reconnect-buffer", "reconnects-limited", "ping-interval", "session-keys"), "of elections nothing")
		f.Expect(counted).To(Equal("keys that are led: 2, sessions that are open: 2"))
		f.Expect(b.Close(f.Context())).To(Succeed())
		a.Link.Cut()
		time.Sleep(sessiontest.TTL + time.Second)
		_, counted = check()
		f.Expect(counted).To(HavePrefix("keys that are led: 0, sessions that are open: 0; 2 further keys were led by sessions that ended without a release"))
	})
}

func TestFixesOfABucketForSessionsEndTheTrouble(t *testing.T) {
	for _, c := range []struct {
		code, fix     string
		trouble, does func(*jetstream.StreamConfig)
	}{
		{
			"claims-expire", "run 'nats stream edit KV_SESSIONS --max-age 0'",
			func(cfg *jetstream.StreamConfig) { cfg.MaxAge = time.Hour }, func(cfg *jetstream.StreamConfig) { cfg.MaxAge = 0 },
		},
		{
			"claims-disappear", "run 'nats stream edit KV_SESSIONS --discard new'",
			func(cfg *jetstream.StreamConfig) { cfg.Discard = jetstream.DiscardOld }, func(cfg *jetstream.StreamConfig) { cfg.Discard = jetstream.DiscardNew },
		},
	} {
		t.Run(c.code, func(t *testing.T) {
			sessiontest.Run(t, func(f *sessiontest.Fixture) {
				change := func(change func(*jetstream.StreamConfig)) {
					s, err := f.Bucket.JetStream().Stream(f.Context(), kv.StreamName(sessiontest.Bucket))
					f.Expect(err).NotTo(HaveOccurred())
					cfg := s.CachedInfo().Config
					change(&cfg)
					_, err = f.Bucket.JetStream().UpdateStream(f.Context(), cfg)
					f.Expect(err).NotTo(HaveOccurred())
				}
				worst := func() admin.Finding {
					findings, err := admin.Check(f.Context(), f.Bucket)
					f.Expect(err).NotTo(HaveOccurred())
					return findings[0]
				}
				change(c.trouble)
				found := worst()
				f.Expect([]any{found.Code, found.Severity, found.Fix}).To(Equal([]any{c.code, admin.SeverityCritical, c.fix}))
				change(c.does)
				f.Expect(worst().Severity).To(BeNumerically("<", admin.SeverityCritical))
			})
		})
	}
}
