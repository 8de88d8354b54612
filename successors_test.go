package election_test

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
	"github.com/natscampaign/election/internal/test/natstest"
)

// headStart is for how long a release is left to its first successor.
const headStart = 25 * time.Millisecond

func TestShortLivedCandidatesDoNotSlowAHandover(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a, b := f.leaderAndFollower()
		for i := range unlessShort(500, 100) { // one lost campaign each
			_, err := f.Bucket.Update(context.Background(), key, fmt.Appendf(nil, `{"name":"cron","instance":"i%d","attempt":"i%d.1"}`, i, i), 1<<40)
			f.Expect(err).To(HaveOccurred())
		}
		after(5 * interval)
		a.shutdown()
		after(spread)
		f.Expect(b.IsLeader()).To(BeTrue())
	}, republished)
}

func TestOnlyTheSuccessorAnswersARelease(t *testing.T) {
	natstest.SkipIfShort(t)
	onVirtualTime(t, func(f *fleet) {
		a := f.connected("a").start()
		after(interval)
		all, attempts := f.crowd(unlessShort(100, 20), f.connected)
		after(3 * interval)
		i := slices.IndexFunc(all, func(c *candidate) bool { return c.Status().Next })
		attempts.Store(0)
		a.shutdown()
		after(headStart - instant) // they are notified after 2 ms
		next := all[i]
		f.Expect(next.IsLeader()).To(BeTrue(), "the candidate that the leader named")
		f.Expect(attempts.Load()).To(BeEquivalentTo(1))

		attempts.Store(0)
		next.shutdown()
		after(headStart - instant)
		f.Expect(slices.ContainsFunc(all, func(c *candidate) bool { return c.IsLeader() })).To(BeTrue(), "a candidate that its predecessor saw")
		after(time.Second)
		f.Expect(attempts.Load()).To(BeNumerically("<=", 1+record.MaxSuccessors+1), "as many announce themselves to it as a release names")
	}, republished)
}

// A candidate that stops unsubscribes from several subjects. Its successor would wait behind that.
func TestShutdownWindsUpOnceItsSuccessorLeads(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a, b := f.leaderAndFollower()
		a.shutdown()
		f.Expect(b.IsLeader()).To(BeTrue())
		stopped := time.Now()
		b.shutdown()
		f.Expect(time.Now()).To(Equal(stopped), "nobody is left to take over")
	}, republished)
}

func TestUnreachableSuccessorCostsOneHeadStart(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a, b := f.leaderAndFollower()
		gone := f.connected("gone").start()
		after(3 * interval)
		if b.Status().Next { // the release names it first
			b, gone = gone, b
		}
		gone.link.Cut()
		a.Stop()
		after(headStart - instant)
		f.Expect(b.State()).To(Equal(election.CandidateState))
		after(instant)
		f.Expect(b.IsLeader()).To(BeTrue())
	}, republished)
}

func TestReleaseNamesOnlyTheTargetOfATransferWhereChanceDecides(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.connected("a", settings.ByChance).start()
		after(interval)
		b := f.connected("b", settings.ByChance).start()
		c := f.connected("c", settings.ByChance).start()
		after(3 * interval)
		written := f.recordWrites()
		f.Expect(a.Transfer(context.Background(), "b")).To(Succeed())
		after(instant)
		f.Expect(b.IsLeader()).To(BeTrue())
		b.shutdown()
		after(headStart)
		f.Expect(a.IsLeader() || c.IsLeader()).To(BeTrue())
		var releases []string
		for _, r := range written() {
			if strings.Contains(r, `"released":`) {
				releases = append(releases, r)
			}
		}
		f.Expect(releases).To(HaveExactElements(ContainSubstring(`"successors":["b"]`), Not(ContainSubstring(`"successors"`))))
	}, republished)
}

func TestUnnotifiedCandidateIsNoSuccessor(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a, b := f.leaderAndFollower()
		f.unnotified("c").start()
		after(3 * interval)
		a.shutdown()
		after(instant)
		f.Expect(b.IsLeader()).To(BeTrue())
	}, republished)
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
			forEachSource(t, func(f *fleet, candidate newCandidate) {
				f.Write(`{"name":"a","instance":"a1","attempt":"a1.1"}`)
				b := candidate("b").start()
				after(2 * interval)
				f.Write(`{"name":"a","instance":"a1","attempt":"a1.2"}`)
				f.Write(fmt.Sprintf(`{"name":"a","instance":"a1","attempt":"a1.3","released":"2000-01-01T00:00:00Z"%s}`, c.fields))
				if c.wait > 0 {
					after(c.wait - instant)
					f.Expect(b.State()).To(Equal(election.CandidateState))
				}
				if after(instant); c.wait > 0 {
					after(spread) // over which the other candidates answer
				}
				f.Expect(b.State()).NotTo(Equal(election.CandidateState))
			})
		})
	}
}

func TestReleaseBoundsItsSuccessors(t *testing.T) {
	natstest.SkipIfShort(t)
	onVirtualTime(t, func(f *fleet) {
		a := f.connected("a").start()
		after(interval)
		for i := range 20 {
			f.connected(fmt.Sprintf("%0100d", i)).start()
		}
		after(3 * interval)
		written := f.recordWrites()
		a.shutdown()
		after(instant)
		release := written()[0]
		f.Expect(release).To(ContainSubstring(`"successors":["000`))
		f.Expect(len(release)).To(BeNumerically("<", 800))
	}, republished)
}

func TestOversizedReleaseDropsItsSuccessors(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.connected("a").start()
		after(interval)
		for i := range 3 {
			f.connected(strings.Repeat(fmt.Sprint(i), 120)).start()
		}
		after(3 * interval)
		f.Expect(a.Resign(context.Background())).To(Succeed())
	}, func(cfg *jetstream.KeyValueConfig) {
		republished(cfg)
		cfg.MaxValueSize = 520
	})
}

func TestSuccessorWithAnOddNameRecognisesItself(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.connected("a").start()
		after(interval)
		f.connected("c").start()
		after(3 * interval)
		b := f.connected("<b&>ü").start()
		after(3 * interval)
		f.Expect(a.Transfer(context.Background(), "<b&>ü")).To(Succeed())
		f.Expect(b.IsLeader()).To(BeTrue())
	}, republished)
}

// recordWrites returns a function that returns the records that were written to the key since it was called last.
func (f *fleet) recordWrites() (written func() []string) {
	sub, err := f.Server.Connect(f.T).SubscribeSync("election.>")
	f.Expect(err).NotTo(HaveOccurred())
	after(instant)
	return func() (records []string) {
		for m, err := sub.NextMsg(instant); err == nil; m, err = sub.NextMsg(instant) {
			records = append(records, string(m.Data))
		}
		return records
	}
}

func TestSuccessorThatALeaderNamesLeadsByTheWriteThatWins(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a, b := f.leaderAndFollower()
		observer := f.connected("c").start()
		after(3 * interval)
		f.Expect(observer.Status().Leader.Name).To(Equal("a"))
		written := f.recordWrites()
		f.Expect(a.Transfer(context.Background(), "b")).To(Succeed())
		f.Expect(written()).To(HaveExactElements(ContainSubstring(`"released":`), And(ContainSubstring(`"leads":true`), ContainSubstring(`"attempt"`))))
		term, leads := b.Term()
		f.Expect(leads).To(BeTrue())
		entry, err := f.Bucket.Get(context.Background(), key)
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(term.Number).To(Equal(entry.Revision()), "the write that won is the only one")
		l, held := election.LeaderOf(entry, ttl)
		f.Expect(held).To(BeTrue())
		f.Expect([]any{l.Name, l.State, l.Term}).To(Equal([]any{"b", election.LeaderState, term.Number}))

		f.Eventually(func() string { after(instant); return observer.Status().Leader.Name }).Should(Equal("b"))
		var requests atomic.Int64
		observer.link.OnRequest(func(faultproxy.Message) { requests.Add(1) })
		after(3 * interval)
		f.Expect(observer.Status().Leader.Term).To(Equal(term.Number))
		f.Expect(requests.Load()).To(BeNumerically("<=", 2), "a renewal is known to be of the term that was won: it reads once, and announces itself to the new leader")
		f.Expect(written()).To(HaveEach(And(ContainSubstring(fmt.Sprintf(`"term":%d,`, term.Number)), Not(ContainSubstring(`"leads"`)))))
	}, republished)
}

// Meanwhile the server may have gone back to an earlier state, and the write may have hit another record with the release's revision.
func TestSuccessorWhoseReplyIsLateLeadsByItsRenewal(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a, b := f.leaderAndFollower()
		b.link.DelayReplies(200 * time.Millisecond) // so that a read and a write take 400 ms
		a.Stop()
		f.Expect(<-a.result).To(Succeed())
		written := f.recordWrites()
		for b.State() == election.CandidateState {
			after(time.Millisecond)
		}
		f.Expect(b.IsLeader()).To(BeFalse())
		for !b.IsLeader() {
			after(time.Millisecond)
		}
		f.Expect(written()).To(HaveExactElements(ContainSubstring(`"leads":true`), And(ContainSubstring(`"name":"b"`), ContainSubstring(`"term"`))))
		f.Expect(b.seen()).To(HaveExactElements(HavePrefix("won")))
	}, republished)
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
			onVirtualTime(t, func(f *fleet) {
				status, err := f.Bucket.Status(context.Background())
				f.Expect(err).NotTo(HaveOccurred())
				secret := record.NewSecret()
				held := record.Record{Name: "a", Instance: "a1", Attempt: "a1.1", Commitment: secret.Commitment()}
				f.Write(string(held.Encode()))
				f.connected("b").start()
				after(interval + instant)
				written := f.recordWrites()
				proof, _ := secret.MarshalText()
				commitment, _ := secret.Commitment().MarshalText()
				release := fmt.Sprintf(`{"name":"a","instance":"a1","attempt":"a1.2","released":"2000-01-01T00:00:00Z","secret":%q,"commitment":%q,%s}`, proof, commitment,
					c.fields(status.(*jetstream.KeyValueBucketStatus).StreamInfo().Created))
				_, err = f.Bucket.Update(context.Background(), key, []byte(release), f.revision())
				f.Expect(err).NotTo(HaveOccurred())
				after(2 * headStart)
				records := written()
				win := ContainSubstring(`"name":"b"`)
				if c.leads {
					f.Expect(records[1:]).To(HaveExactElements(And(win, ContainSubstring(`"leads":true`))))
					return
				}
				after(interval) // it is not notified of releases in other buckets
				records = append(records, written()...)
				f.Expect(records[1]).To(And(win, Not(ContainSubstring(`"leads"`)), Not(ContainSubstring(`"term"`))))
			}, republished)
		})
	}
}
