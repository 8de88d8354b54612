package admin_test

import (
	"context"
	"math"
	"regexp"
	"runtime"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/admin"
	"github.com/natscampaign/election/internal/control"
	"github.com/natscampaign/election/internal/drill/faultproxy"
	"github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/natstest"
)

func TestAdminNeedsABucketThatKnowsItsConnection(t *testing.T) {
	fleettest.Run(t, func(f *fleet) {
		_, err := admin.New(f.Bucket)
		f.Expect(err).To(And(MatchError(election.ErrInvalidOption), MatchError(ContainSubstring("WithJetStream"))))
		js := f.JetStream()
		a, err := admin.New(f.Bucket, election.WithJetStream(js))
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(a.Candidates(ctx, key)).To(BeEmpty())
		_, err = admin.New(nil, nil)
		f.Expect(err).To(And(MatchError(election.ErrInvalidOption), MatchError(ContainSubstring("bucket is nil"))))
	})
}

func TestCandidatesDescribeThemselves(t *testing.T) {
	natstest.SkipIfShort(t)
	fleettest.Run(t, func(f *fleet) {
		a, others := f.LeaderWith("host-10", "host-2")
		others["host-10"].Link.DelayReplies(20 * time.Millisecond)
		found, err := operator(f).Candidates(ctx, key)
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(found).To(HaveLen(3))
		for i, c := range []*candidate{a, others["host-2"], others["host-10"]} {
			f.Expect(found[i].Name).To(Equal(c.Status().Name), "the leader first, then in natural order")
			f.Expect(found[i].Instance).To(Equal(c.Status().Instance))
			f.Expect(found[i].State).To(Equal(c.State()))
			f.Expect(found[i].Ready).To(Equal(i > 0))
			f.Expect(found[i].Key).To(Equal(key))
			f.Expect(found[i].ClockLag).To(BeNumerically("~", 0, 50*time.Millisecond), "there is but one clock here")
			f.Expect(found[i].Version).NotTo(BeEmpty())
			f.Expect(found[i].PID).NotTo(BeZero())
		}
		f.Expect(operator(f).Candidates(ctx, "vacant")).To(BeEmpty())
		_, err = operator(f).Candidates(ctx, "a b")
		f.Expect(err).To(MatchError(election.ErrInvalidOption))
	}, republished)
}

func TestCandidateAnswersAsSoonAsItsCampaignCanBeSeen(t *testing.T) {
	natstest.SkipIfShort(t)
	for range 20 {
		fleettest.Run(t, func(f *fleet) {
			o := operator(f)
			a := f.Connected("a")
			found := make(chan []admin.Candidate, 1)
			ask := sync.OnceFunc(func() {
				all, _ := o.Candidates(ctx, key)
				found <- all
			})
			toKey := natstest.ToKey(key)
			a.Link.OnRequest(func(m faultproxy.Message) {
				if toKey(m) {
					go ask()
				}
			})
			a.Begin()
			f.Expect(<-found).To(HaveLen(1))
		}, republished)
	}
}

func TestOperatorCanHaveTheLeaderHandOver(t *testing.T) {
	fleettest.Run(t, func(f *fleet) {
		a, others := f.LeaderWith("b", "c")
		o := operator(f)
		f.Expect(o.Transfer(ctx, key, "b")).To(Succeed())
		f.Expect(others["b"].IsLeader()).To(BeTrue())
		f.Expect(o.Transfer(ctx, key, "nobody")).To(MatchError(election.ErrNoCandidate))
		f.Expect(others["b"].IsLeader()).To(BeTrue())
		f.Expect(o.Transfer(ctx, key, "")).To(MatchError(election.ErrInvalidOption))
		f.Expect(o.Resign(ctx, key)).To(Succeed())
		after(time.Second)
		f.Expect(others["b"].IsLeader()).To(BeFalse())
		f.Expect(a.IsLeader() || others["c"].IsLeader()).To(BeTrue())
		f.Expect(o.Resign(ctx, "vacant")).To(MatchError(election.ErrNoLeader))
	}, republished)
}

func TestNothingOfAnOperatorsRequestOutlivesTheElection(t *testing.T) {
	fleettest.Run(t, func(f *fleet) {
		hang, release := f.Hanging()
		a := f.Connected("a", election.OnLost(hang)).Begin()
		after(interval)
		b := f.Connected("b").Begin()
		after(interval)
		o, result := operator(f), make(chan error, 1)
		go func() { result <- o.Transfer(ctx, key, "b") }()
		after(time.Second) // the callback of a hangs
		b.Link.Cut()
		release()
		after(100 * time.Millisecond) // a waits for b to lead
		stopped := time.Now()
		f.Expect(a.Shutdown(ctx)).To(Succeed())
		f.Expect(time.Since(stopped)).To(BeNumerically("<", 100*time.Millisecond))
		stacks := make([]byte, 1<<20)
		f.Expect(string(stacks[:runtime.Stack(stacks, true)])).NotTo(ContainSubstring("(*service).handOver"))
		f.Expect(<-result).To(HaveOccurred())
		f.Expect(time.Since(stopped)).To(BeNumerically("<", 100*time.Millisecond))
	}, republished)
}

// The caller does not wait until the leader has looked for the target.
func TestATransferThatNeverBeginsIsNotSaidToGoOn(t *testing.T) {
	fleettest.Run(t, func(f *fleet) {
		a := f.Connected("a").Begin()
		after(interval)
		short, cancel := context.WithTimeout(ctx, 800*time.Millisecond)
		defer cancel()
		err := operator(f).Transfer(short, key, "gone")
		f.Expect(err).To(Or(MatchError(context.DeadlineExceeded), MatchError(election.ErrNoCandidate)))
		f.Expect(err).NotTo(MatchError(control.ErrUnderWay))
		after(interval)
		f.Expect(a.IsLeader()).To(BeTrue())
		f.Expect(a.Seen()).To(HaveLen(1))
	}, republished)
}

// The error of a request that is not answered says until when to wait. Then another candidate leads, sooner than if the leader is evicted.
func TestLeaderThatIsCutOffIsReplacedWhenTheErrorOfAResignationSays(t *testing.T) {
	elapsed := func(evict bool) (took time.Duration) {
		fleettest.Run(t, func(f *fleet) {
			a := f.Connected("a").Begin()
			after(interval + time.Second)
			b := f.Connected("b").Begin()
			after(2*interval + interval/2)
			a.Link.Cut()
			cut := time.Now()
			err := operator(f).Resign(ctx, key)
			f.Expect(err).To(MatchError(ContainSubstring("does not answer")))
			until := regexp.MustCompile(`its lease ends, at (\S+) by the server's clock`).FindStringSubmatch(err.Error())
			f.Expect(until).NotTo(BeNil(), err.Error())
			end, failed := time.Parse(time.RFC3339, until[1])
			f.Expect(failed).NotTo(HaveOccurred())
			if evict {
				_, err := operator(f).Evict(ctx, key)
				f.Expect(err).NotTo(HaveOccurred())
			} else {
				after(time.Until(end) + time.Second) // the time is given in whole seconds
				f.Expect(b.IsLeader()).To(BeTrue())
				f.Expect(a.IsLeader()).To(BeFalse())
			}
			for !b.IsLeader() {
				after(time.Millisecond)
			}
			took = time.Since(cut)
		}, republished)
		return took
	}
	NewWithT(t).Expect(elapsed(false)).To(BeNumerically("<", elapsed(true)))
}

func TestLeaderThatIsSlowToAnswerResigns(t *testing.T) {
	fleettest.Run(t, func(f *fleet) {
		a := f.Connected("a").Begin()
		after(interval)
		a.Link.DelayReplies(ttl)
		time.AfterFunc(2*time.Second, a.Link.Heal)
		f.Expect(operator(f).Resign(ctx, key)).To(Succeed())
		f.Expect(a.IsLeader()).To(BeFalse())
	}, republished)
}

func TestLeaderThatCannotBeAskedIsSaidNotToAnswer(t *testing.T) {
	fleettest.Run(t, func(f *fleet) {
		a := f.Candidate("a").Begin() // it does not know its connection
		after(interval)
		f.Expect(operator(f).Resign(ctx, key)).To(MatchError(ContainSubstring("does not answer")))
		after(ttl)
		f.Expect(a.IsLeader()).To(BeTrue(), "it renews: stop its program, or evict it")

		_, err := f.Bucket.PutString(ctx, "legacy", "choria.example.net")
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(operator(f).Resign(ctx, "legacy")).To(MatchError(ContainSubstring("bare name")))
	})
}

func TestLeaderWhoseWorkTakesLongIsSaidToGoOn(t *testing.T) {
	fleettest.Run(t, func(f *fleet) {
		hang, release := f.Hanging()
		a := f.Connected("a", election.OnLost(hang)).Begin()
		after(interval)
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		f.Expect(operator(f).Resign(ctx, key)).To(MatchError(Or(ContainSubstring("goes on"), ContainSubstring("deadline exceeded"))))
		f.Expect(a.State()).To(Equal(election.CandidateState), "it leads no more")
		release()
	}, republished)
}

func TestOperatorIsAnsweredThoughTheWorkTakesAlmostAsLongAsTheLeaderLetsIt(t *testing.T) {
	const lets = 6 * ttl // longer than a leader takes by default
	for name, takes := range map[string]time.Duration{"it ends": lets - time.Second, "it goes on": 2 * lets} {
		t.Run(name, func(t *testing.T) {
			fleettest.Run(t, func(f *fleet) {
				hang, release := f.Hanging()
				f.Connected("a", election.OnLost(hang), election.WithReleaseTimeout(lets)).Begin()
				after(interval)
				b := f.Connected("b").Begin()
				after(interval)
				defer time.AfterFunc(takes, release).Stop()
				err := operator(f).Transfer(ctx, key, "b")
				if takes < lets {
					f.Expect(err).NotTo(HaveOccurred())
					f.Expect(b.IsLeader()).To(BeTrue())
				} else {
					f.Expect(err).To(MatchError(ContainSubstring("not released: callbacks or work have not returned")))
					release()
				}
			}, republished)
		})
	}
}

func TestOperatorWaitsForALeaderWhoseWorkMayTakeForEver(t *testing.T) {
	fleettest.Run(t, func(f *fleet) {
		hang, release := f.Hanging()
		f.Connected("a", election.OnLost(hang), election.WithReleaseTimeout(math.MaxInt64)).Begin()
		after(interval)
		defer time.AfterFunc(10*ttl, release).Stop()
		f.Expect(operator(f).Resign(ctx, key)).To(Succeed())
	}, republished)
}

func TestRequestThatIsGivenUpDoesNotBlameTheLeader(t *testing.T) {
	natstest.SkipIfShort(t)
	for name, c := range map[string]struct {
		giveUp func() (context.Context, context.CancelFunc)
		is     error
	}{
		"cancelled": {func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(100*time.Millisecond, cancel)
			return ctx, cancel
		}, context.Canceled},
		"out of time": {func() (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 100*time.Millisecond)
		}, context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			fleettest.Run(t, func(f *fleet) {
				hang, release := f.Hanging()
				a := f.Connected("a", election.OnLost(hang)).Begin()
				after(interval)
				a.Link.DelayReplies(200 * time.Millisecond)
				ctx, cancel := c.giveUp()
				defer cancel()
				err := operator(f).Resign(ctx, key)
				f.Expect(err).To(MatchError(c.is))
				f.Expect(err).NotTo(MatchError(ContainSubstring("evict")))
				after(200 * time.Millisecond)
				f.Expect(a.IsLeader()).To(BeFalse(), "the request was on its way")
				release()

				hang, release = f.Hanging()
				b := f.Connected("b", election.OnLost(hang))
				f.Expect(a.Shutdown(context.Background())).To(Succeed())
				b.Begin()
				after(ttl)
				f.Expect(b.IsLeader()).To(BeTrue())
				again, cancel := c.giveUp()
				defer cancel()
				err = operator(f).Resign(again, key)
				f.Expect(err).To(And(MatchError(c.is), MatchError(ContainSubstring("goes on"))), "its callback hangs")
				release()
			}, republished)
		})
	}
}
