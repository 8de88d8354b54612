package handover_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/drill/faultproxy"
	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/settings"
	. "github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/natstest"
)

// headStart is for how long a release is left to its first successor.
const headStart = 25 * time.Millisecond

func TestShortLivedCandidatesDoNotSlowAHandover(t *testing.T) {
	Run(t, func(f *Fleet) {
		a, b := f.LeaderAndFollower(f.Connected)
		for i := range UnlessShort(500, 100) { // one lost campaign each
			_, err := f.Bucket.Update(context.Background(), Key, fmt.Appendf(nil, `{"name":"cron","instance":"i%d","attempt":"i%d.1"}`, i, i), 1<<40)
			f.Expect(err).To(HaveOccurred())
		}
		After(5 * Interval)
		a.End()
		After(Spread)
		f.Expect(b.IsLeader()).To(BeTrue())
	}, Republished)
}

func TestOnlyTheSuccessorAnswersARelease(t *testing.T) {
	natstest.SkipIfShort(t)
	Run(t, func(f *Fleet) {
		a := f.Connected("a").Begin()
		After(Interval)
		all, attempts := f.Crowd(UnlessShort(100, 20), f.Connected)
		After(3 * Interval)
		i := slices.IndexFunc(all, func(c *Candidate) bool { return c.Status().Next })
		var answers atomic.Int64
		for _, c := range all {
			c.Link.OnRequest(func(m faultproxy.Message) {
				if !ToKey(m) || strings.Contains(string(m.Payload), `"term"`) {
					return
				}
				attempts.Add(1)
				if !strings.Contains(string(m.Header), jetstream.ExpectedLastSubjSeqHeader+": 0\r\n") { // else it announces itself to the next leader
					answers.Add(1)
				}
			})
		}
		a.End()
		After(headStart - Instant) // they are notified after 2 ms
		next := all[i]
		f.Expect(next.IsLeader()).To(BeTrue(), "the candidate that the leader named")
		f.Expect(answers.Load()).To(BeEquivalentTo(1))

		attempts.Store(0)
		next.End()
		After(headStart - Instant)
		f.Expect(slices.ContainsFunc(all, func(c *Candidate) bool { return c.IsLeader() })).To(BeTrue(), "a candidate that its predecessor saw")
		After(time.Second)
		f.Expect(attempts.Load()).To(BeNumerically("<=", 1+record.MaxSuccessors+3), "as many announce themselves to it as a release names, and a few until it says so")
	}, Republished)
}

// A candidate that stops unsubscribes from several subjects. Its successor would wait behind that.
func TestShutdownWindsUpOnceItsSuccessorLeads(t *testing.T) {
	Run(t, func(f *Fleet) {
		a, b := f.LeaderAndFollower(f.Connected)
		a.End()
		f.Expect(b.IsLeader()).To(BeTrue())
		stopped := time.Now()
		b.End()
		f.Expect(time.Now()).To(Equal(stopped), "nobody is left to take over")
	}, Republished)
}

func TestUnreachableSuccessorCostsOneHeadStart(t *testing.T) {
	Run(t, func(f *Fleet) {
		a, b := f.LeaderAndFollower(f.Connected)
		gone := f.Connected("gone").Begin()
		After(3 * Interval)
		if b.Status().Next { // the release names it first
			b, gone = gone, b
		}
		gone.Link.Cut()
		a.Stop()
		After(headStart - Instant)
		f.Expect(b.State()).To(Equal(election.CandidateState))
		After(Instant)
		f.Expect(b.IsLeader()).To(BeTrue())
	}, Republished)
}

func TestReleaseNamesOnlyTheTargetOfATransferWhereChanceDecides(t *testing.T) {
	Run(t, func(f *Fleet) {
		a := f.Connected("a", settings.ByChance).Begin()
		After(Interval)
		b := f.Connected("b", settings.ByChance).Begin()
		c := f.Connected("c", settings.ByChance).Begin()
		After(3 * Interval)
		written := f.RecordWrites()
		f.Expect(a.Transfer(context.Background(), "b")).To(Succeed())
		After(Instant)
		f.Expect(b.IsLeader()).To(BeTrue())
		b.End()
		After(headStart)
		f.Expect(a.IsLeader() || c.IsLeader()).To(BeTrue())
		var releases []string
		for _, r := range written() {
			if strings.Contains(r, `"released":`) {
				releases = append(releases, r)
			}
		}
		f.Expect(releases).To(HaveExactElements(ContainSubstring(`"successors":["b"]`), Not(ContainSubstring(`"successors"`))))
	}, Republished)
}

func TestUnnotifiedCandidateIsNoSuccessor(t *testing.T) {
	Run(t, func(f *Fleet) {
		a, b := f.LeaderAndFollower(f.Connected)
		f.Unnotified("c").Begin()
		After(3 * Interval)
		a.End()
		After(Instant)
		f.Expect(b.IsLeader()).To(BeTrue())
	}, Republished)
}

func TestOthersWaitForTheHeadStartOfASuccessor(t *testing.T) {
	natstest.SkipIfShort(t)
	for name, c := range map[string]struct {
		fields string
		wait   time.Duration
	}{
		"200 ms":        {`,"successors":["x"],"head_start_ms":200`, 200 * time.Millisecond},
		"the default":   {`,"successors":["x"]`, headStart},
		"too long":      {`,"successors":["x"],"head_start_ms":86400000`, headStart},
		"negative":      {`,"successors":["x"],"head_start_ms":-5`, headStart},
		"the successor": {`,"successors":["b","x"],"head_start_ms":200`, 0},
	} {
		t.Run(name, func(t *testing.T) {
			ForEachSource(t, func(f *Fleet, candidate NewCandidate) {
				f.Write(`{"name":"a","instance":"a1","attempt":"a1.1"}`)
				b := candidate("b").Begin()
				After(2 * Interval)
				f.Write(`{"name":"a","instance":"a1","attempt":"a1.2"}`)
				f.Write(fmt.Sprintf(`{"name":"a","instance":"a1","attempt":"a1.3","released":"2000-01-01T00:00:00Z"%s}`, c.fields))
				if c.wait > 0 {
					After(c.wait - Instant)
					f.Expect(b.State()).To(Equal(election.CandidateState))
				}
				if After(Instant); c.wait > 0 {
					After(Spread) // over which the other candidates answer
				}
				f.Expect(b.State()).NotTo(Equal(election.CandidateState))
			})
		})
	}
}

func TestReleaseBoundsItsSuccessors(t *testing.T) {
	natstest.SkipIfShort(t)
	Run(t, func(f *Fleet) {
		a := f.Connected("a").Begin()
		After(Interval)
		for i := range 20 {
			f.Connected(fmt.Sprintf("%0100d", i)).Begin()
		}
		After(3 * Interval)
		written := f.RecordWrites()
		a.End()
		After(Instant)
		release := written()[0]
		f.Expect(release).To(ContainSubstring(`"successors":["000`))
		f.Expect(len(release)).To(BeNumerically("<", 800))
	}, Republished)
}

func TestOversizedReleaseDropsItsSuccessors(t *testing.T) {
	Run(t, func(f *Fleet) {
		a := f.Connected("a").Begin()
		After(Interval)
		for i := range 3 {
			f.Connected(strings.Repeat(fmt.Sprint(i), 120)).Begin()
		}
		After(3 * Interval)
		f.Expect(a.Resign(context.Background())).To(Succeed())
	}, func(cfg *jetstream.KeyValueConfig) {
		Republished(cfg)
		cfg.MaxValueSize = 520
	})
}

func TestSuccessorWithAnOddNameRecognisesItself(t *testing.T) {
	Run(t, func(f *Fleet) {
		a := f.Connected("a").Begin()
		After(Interval)
		f.Connected("c").Begin()
		After(3 * Interval)
		b := f.Connected("<b&>ü").Begin()
		After(3 * Interval)
		f.Expect(a.Transfer(context.Background(), "<b&>ü")).To(Succeed())
		f.Expect(b.IsLeader()).To(BeTrue())
	}, Republished)
}

func TestSuccessorThatALeaderNamesLeadsByTheWriteThatWins(t *testing.T) {
	Run(t, func(f *Fleet) {
		a, b := f.LeaderAndFollower(f.Connected)
		observer := f.Connected("c").Begin()
		After(3 * Interval)
		f.Expect(observer.Status().Leader.Name).To(Equal("a"))
		written := f.RecordWrites()
		f.Expect(a.Transfer(context.Background(), "b")).To(Succeed())
		f.Expect(written()).To(HaveExactElements(ContainSubstring(`"released":`), And(ContainSubstring(`"leads":true`), ContainSubstring(`"attempt"`))))
		term, leads := b.Term()
		f.Expect(leads).To(BeTrue())
		entry, err := f.Bucket.Get(context.Background(), Key)
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(term.Number).To(Equal(entry.Revision()), "the write that won is the only one")
		l, held := election.LeaderOf(entry, TTL)
		f.Expect(held).To(BeTrue())
		f.Expect([]any{l.Name, l.State, l.Term}).To(Equal([]any{"b", election.LeaderState, term.Number}))

		f.Eventually(func() string { After(Instant); return observer.Status().Leader.Name }).Should(Equal("b"))
		var requests atomic.Int64
		observer.Link.OnRequest(func(faultproxy.Message) { requests.Add(1) })
		After(3 * Interval)
		f.Expect(observer.Status().Leader.Term).To(Equal(term.Number))
		f.Expect(requests.Load()).To(BeNumerically("<=", 2), "a renewal is known to be of the term that was won: it reads once, and announces itself to the new leader")
		f.Expect(written()).To(HaveEach(And(ContainSubstring(fmt.Sprintf(`"term":%d,`, term.Number)), Not(ContainSubstring(`"leads"`)))))
	}, Republished)
}

// Meanwhile the server may have gone back to an earlier state, and the write may have hit another record with the release's revision.
func TestSuccessorWhoseReplyIsLateLeadsByItsRenewal(t *testing.T) {
	Run(t, func(f *Fleet) {
		a, b := f.LeaderAndFollower(f.Connected)
		b.Link.DelayReplies(200 * time.Millisecond) // so that a read and a write take 400 ms
		a.Stop()
		f.Expect(<-a.Result).To(Succeed())
		written := f.RecordWrites()
		for b.State() == election.CandidateState {
			After(time.Millisecond)
		}
		f.Expect(b.IsLeader()).To(BeFalse())
		for !b.IsLeader() {
			After(time.Millisecond)
		}
		f.Expect(written()).To(HaveExactElements(ContainSubstring(`"leads":true`), And(ContainSubstring(`"name":"b"`), ContainSubstring(`"term"`))))
		f.Expect(b.Seen()).To(HaveExactElements(HavePrefix("won")))
	}, Republished)
}

func TestSuccessorStandsDownUnlessALeaderOfThisBucketNamesIt(t *testing.T) {
	natstest.SkipIfShort(t)
	for name, c := range map[string]struct {
		fields func(created time.Time) string
		leads  bool
	}{
		"named by a leader": {func(at time.Time) string {
			return fmt.Sprintf(`"bucket":%q,"successors":["b"]`, at.Format(time.RFC3339Nano))
		}, true},
		"named by a leader-elect": {func(at time.Time) string {
			return fmt.Sprintf(`"bucket":%q,"successors":["b"],"stand_down_ms":1`, at.Format(time.RFC3339Nano))
		}, false},
		"named in another bucket":           {func(time.Time) string { return `"bucket":"1999-01-01T00:00:00Z","successors":["b"]` }, false},
		"not named":                         {func(at time.Time) string { return fmt.Sprintf(`"bucket":%q`, at.Format(time.RFC3339Nano)) }, false},
		"not named, and says that it leads": {func(at time.Time) string { return fmt.Sprintf(`"bucket":%q,"leads":true`, at.Format(time.RFC3339Nano)) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			Run(t, func(f *Fleet) {
				status, err := f.Bucket.Status(context.Background())
				f.Expect(err).NotTo(HaveOccurred())
				secret := record.NewSecret()
				held := record.Record{Name: "a", Instance: "a1", Attempt: "a1.1", Commitment: secret.Commitment()}
				f.Write(string(held.Encode()))
				f.Connected("b").Begin()
				After(Interval + Instant)
				written := f.RecordWrites()
				proof, _ := secret.MarshalText()
				commitment, _ := secret.Commitment().MarshalText()
				release := fmt.Sprintf(`{"name":"a","instance":"a1","attempt":"a1.2","released":"2000-01-01T00:00:00Z","secret":%q,"commitment":%q,%s}`, proof, commitment,
					c.fields(status.(*jetstream.KeyValueBucketStatus).StreamInfo().Created))
				_, err = f.Bucket.Update(context.Background(), Key, []byte(release), f.Revision())
				f.Expect(err).NotTo(HaveOccurred())
				After(2 * headStart)
				records := written()
				win := ContainSubstring(`"name":"b"`)
				if c.leads {
					f.Expect(records[1:]).To(HaveExactElements(And(win, ContainSubstring(`"leads":true`))))
					return
				}
				After(Interval) // it is not notified of releases in other buckets
				records = append(records, written()...)
				f.Expect(records[1]).To(And(win, Not(ContainSubstring(`"leads"`)), Not(ContainSubstring(`"term"`))))
			}, Republished)
		})
	}
}
