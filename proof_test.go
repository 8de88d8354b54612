package election_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/test/natstest"
)

// stored returns the record under the key.
func (f *fleet) stored() record.Record { return record.Parse([]byte(f.record()), f.revision()) }

// strangerRelease returns a release by a stranger that names b, and that opens its own commitment.
func (f *fleet) strangerRelease() record.Record {
	secret := record.NewSecret()
	r := f.stored()
	return record.Record{
		Name: "a", Instance: "x", Attempt: "x.1", Since: r.Since, Term: r.Term, BucketCreated: r.BucketCreated,
		Commitment: secret.Commitment(), Secret: secret, Released: time.Now(), Successors: []string{"b"},
	}
}

// replace writes a record over the one that is stored, as a candidate does.
func (f *fleet) replace(r record.Record) {
	f.Helper()
	_, err := f.Bucket.Update(context.Background(), key, r.Encode(), f.revision())
	f.Expect(err).NotTo(HaveOccurred())
}

// expectOneLeader lets time pass, and expects that no two of the candidates lead at any time of it.
func (f *fleet) expectOneLeader(d time.Duration, candidates ...*candidate) {
	f.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); after(10 * time.Millisecond) {
		var leaders []string
		for _, c := range candidates {
			if c.IsLeader() {
				leaders = append(leaders, c.Status().Instance)
			}
		}
		f.Expect(len(leaders)).To(BeNumerically("<=", 1), "two leaders: %v", leaders)
	}
}

// forgedReleases are what somebody may have stored under the key who cannot know the leader's secret.
var forgedReleases = map[string]func(f *fleet){
	"by an answer": func(f *fleet) { f.Write(string(f.strangerRelease().Encode())) },
	"by an update": func(f *fleet) { f.replace(f.strangerRelease()) },
	"of the leader's own record": func(f *fleet) {
		r := f.stored()
		r.Released, r.Secret, r.Successors = time.Now(), record.NewSecret(), []string{"b"}
		f.replace(r)
	},
	"of the leader's own record with another commitment": func(f *fleet) {
		r, secret := f.stored(), record.NewSecret()
		r.Released, r.Secret, r.Commitment, r.Successors = time.Now(), secret, secret.Commitment(), []string{"b"}
		f.replace(r)
	},
	"without a commitment": func(f *fleet) {
		r := f.stored()
		r.Released, r.Commitment, r.Successors = time.Now(), record.Commitment{}, []string{"b"}
		f.replace(r)
	},
	"of a record that was forged before": func(f *fleet) {
		release := f.strangerRelease()
		held := release
		held.Released, held.Secret, held.Successors = time.Time{}, record.Secret{}, nil
		f.replace(held)
		after(500 * time.Millisecond)
		f.replace(release)
	},
	"of a bare name that was forged before": func(f *fleet) {
		release := f.strangerRelease()
		f.Write("a")
		after(500 * time.Millisecond)
		f.replace(release)
	},
	"after a forged deletion": func(f *fleet) {
		release := f.strangerRelease()
		f.Expect(f.Bucket.Delete(context.Background(), key)).To(Succeed())
		f.Write(string(release.Encode()))
	},
}

func TestReleaseWithoutTheSecretElectsNobodyBesideALeaderThatIsCutOff(t *testing.T) {
	natstest.SkipIfShort(t)
	for name, forge := range forgedReleases {
		t.Run(name, func(t *testing.T) {
			forEachSource(t, func(f *fleet, candidate newCandidate) {
				a := candidate("a").start()
				after(interval)
				b := candidate("b").start()
				after(2*interval + time.Second)
				f.Expect(a.IsLeader()).To(BeTrue())
				a.link.Cut()
				forge(f)
				f.expectOneLeader(ttl, a, b)
				after(2 * ttl)
				f.Expect(b.IsLeader()).To(BeTrue(), "somebody leads in the end")
			})
		})
	}
}

func TestAnswerStoredAsAReleaseDoesNotDeceiveACandidateThatHasJustStarted(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.connected("a").start()
		after(2 * interval)
		a.link.Cut()
		f.Write(string(f.strangerRelease().Encode()))
		b := f.connected("b").start()
		f.expectOneLeader(ttl, a, b)
		after(ttl)
		f.Expect(b.IsLeader()).To(BeTrue())
	}, republished)
}

func TestNotificationsOfForgedCommitmentsProveNothing(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.connected("a").start()
		after(interval)
		b := f.connected("b").start()
		after(2 * interval)
		forger := f.forger()
		secret := record.NewSecret()
		r := f.stored()
		r.Commitment = secret.Commitment()
		a.link.Cut()
		for i := range uint64(3) {
			forger.publish(f.revision()+i, string(r.Encode()))
			after(time.Millisecond)
		}
		r.Released, r.Secret, r.Successors = time.Now(), secret, []string{"b"}
		f.replace(r)
		f.expectOneLeader(ttl, a, b)
	}, republished)
}

// missedTerm returns a candidate that leads after a term that it has missed: one that polls sees every second term only.
func (f *fleet) missedTerm() *candidate {
	f.Helper()
	a := f.leading("a")
	b := f.unnotified("b").start()
	after(interval + time.Second) // it has read the record of a
	a.shutdown()
	x := f.candidate("x").start() // its release is a record, which a candidate without a watcher can read
	after(instant)
	f.Expect(x.IsLeader()).To(BeTrue())
	x.shutdown()
	after(interval)
	f.Expect(b.IsLeader()).To(BeTrue(), "the release of x shows that it took over the release of a")
	return b
}

func TestReleaseOfATermThatFollowedTheKnownOneIsTakenAtOnce(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		f.missedTerm()
	})
}

// A candidate that has taken over such a release knows that no lease lasts from before it.
func TestTermThatWasMissedCostsNoStandDownLater(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		b := f.missedTerm()
		f.Expect(b.Resign(context.Background())).To(Succeed())
		y := f.candidate("y").start()
		after(instant)
		f.Expect(y.IsLeader()).To(BeTrue())
		y.shutdown()
		after(interval)
		f.Expect(b.IsLeader()).To(BeTrue(), "the leases of a and x are known to be over")
	}, republished)
}

func TestReleaseThatIsNotProvenIsSaidInTheLog(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		var log logged
		a := f.connected("a").start()
		after(interval)
		b := f.connected("b", election.WithLogger(log.logger())).start()
		after(2 * interval)
		a.link.Cut()
		forgedReleases["by an update"](f)
		after(time.Second)
		f.Expect(b.State()).To(Equal(election.LeaderElectState))
		f.Expect(log.count("Release proves nothing")).To(Equal(1))
	}, republished)
}

func TestEveryRecordOfATermStatesItsCommitmentAndTheReleaseOpensIt(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.leading("a")
		won := f.stored()
		after(interval)
		renewed := f.stored()
		a.shutdown()
		release := f.stored()
		f.Expect(won.Commitment).NotTo(BeZero())
		f.Expect(won.Secret).To(BeZero())
		f.Expect(renewed.Commitment).To(Equal(won.Commitment))
		f.Expect(renewed.Secret).To(BeZero())
		f.Expect(release.Commitment).To(Equal(won.Commitment))
		f.Expect(release.Commitment.OpenedBy(release.Secret)).To(BeTrue())

		b := f.candidate("b").start()
		next := f.stored()
		f.Expect(b.IsLeader()).To(BeTrue())
		f.Expect(next.Commitment).NotTo(Equal(won.Commitment), "each term has its own")
		f.Expect(next.Predecessors).To(Equal(record.Secrets{release.Secret}))
	})
}

func TestEveryWriteHasAnIDThatNobodyCanGuess(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		f.leading("a")
		seen := map[string]bool{}
		for range 5 {
			r := f.stored()
			f.Expect(r.Attempt).To(HaveLen(22))
			f.Expect(r.Attempt).NotTo(ContainSubstring(r.Instance))
			seen[r.Attempt] = true
			after(interval)
		}
		f.Expect(seen).To(HaveLen(5))
	})
}

// A write as by a copy of the leader's process, which a machine that was cloned runs.
func TestLeaderWithACopyStandsDownAndTakesAnotherInstance(t *testing.T) {
	forEachSource(t, func(f *fleet, candidate newCandidate) {
		var log logged
		a := candidate("a", election.WithLogger(log.logger())).start()
		after(interval)
		before := a.Status().Instance
		r := f.stored()
		r.Attempt = record.NewID()
		f.replace(r)
		after(instant)
		after(interval) // at the latest by the renewal that is refused
		f.Expect(a.State()).To(Equal(election.CandidateState))
		f.Expect(a.seen()).To(HaveLen(2), "won and lost")
		f.Expect(a.Status().Instance).NotTo(Equal(before))
		f.Expect(log.count("reason=cloned")).To(Equal(1))
		f.Expect(log.count("Another process writes as this very candidate")).To(Equal(1))
		after(3 * ttl)
		f.Expect(a.IsLeader()).To(BeTrue(), "it goes on as another candidate")
	})
}

// It needs -race to fail. A transfer that is under way looks for its target while the candidate begins to campaign as another instance.
func TestTransferIsSafeWhileItsCandidateTakesAnotherInstance(t *testing.T) {
	forEachSource(t, func(f *fleet, candidate newCandidate) {
		var findReady func(ctx context.Context, to string) error
		var transfers sync.WaitGroup
		a := candidate("a", election.WithDebug(func(format string, args ...any) {
			if strings.Contains(fmt.Sprintf(format, args...), "going on as another instance") {
				transfers.Go(func() {
					for range 3000 { // without a wait in which time passes
						_ = findReady(context.Background(), "b")
					}
				})
			}
		})).start()
		after(interval)
		candidate("b").start()
		after(interval)
		findReady = election.FindReady(a.Election)
		before, r := a.Status().Instance, f.stored()
		r.Attempt = record.NewID()
		f.replace(r)
		after(interval)
		f.Expect(a.Status().Instance).NotTo(Equal(before))
		transfers.Wait()
	})
}

func TestCandidateWithTheInstanceOfTheLeaderTakesAnother(t *testing.T) {
	forEachSource(t, func(f *fleet, candidate newCandidate) {
		a := candidate("a").start()
		after(interval)
		b := candidate("a")
		election.SetInstance(b.Election, a.Status().Instance)
		b.start()
		after(instant)
		f.Expect(b.Status().Instance).NotTo(Equal(a.Status().Instance))
		f.expectOneLeader(2*ttl, a, b)
		f.Expect(a.IsLeader()).To(BeTrue(), "the leader is not disturbed")
		a.shutdown()
		after(100 * time.Millisecond)
		f.Expect(b.IsLeader()).To(BeTrue())
	})
}

func TestTwoCopiesOfOneCandidateNeverLeadTogetherForLongerThanAnInterval(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a, b := f.connected("a"), f.connected("a")
		election.SetInstance(b.Election, a.Status().Instance)
		a.start()
		b.start()
		f.expectOneLeader(5*ttl, a, b)
		f.Expect(a.Status().Instance).NotTo(Equal(b.Status().Instance))
		f.Expect(a.IsLeader() || b.IsLeader()).To(BeTrue())
	}, republished)
}

// One who has another process store given bytes may store what a candidate wrote before.
func TestOwnRecordThatSomebodyStoresAgainWinsNothing(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.unnotified("a", election.WithStandDown(0)).start()
		after(2*interval + time.Second)
		last := f.stored()
		a.link.Cut()
		b := f.connected("b").start()
		after(3 * ttl)
		a.link.Heal()
		after(2 * ttl)
		f.Expect(b.IsLeader()).To(BeTrue())
		f.awaitWrite()
		b.link.Cut() // just after it has renewed its lease
		f.replace(last)
		f.expectOneLeader(ttl, a, b)
		after(2 * ttl)
		f.Expect(a.IsLeader()).To(BeTrue())
	})
}

// A late write of a candidate's own is no write of a copy.
func TestOwnLateWriteIsNoCopy(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a, bucket := f.faultyCandidate("a")
		lost := false
		bucket.onUpdate(func(ctx context.Context, _ []byte, _ uint64, update func() (uint64, error)) (uint64, error) {
			revision, err := update()
			if !lost {
				lost = true
				return 0, context.DeadlineExceeded // it was applied, and the reply was lost
			}
			return revision, err
		})
		a.start()
		instance := a.Status().Instance
		after(4 * ttl)
		f.Expect(lost).To(BeTrue())
		f.Expect(a.IsLeader()).To(BeTrue())
		f.Expect(a.Status().Instance).To(Equal(instance))
	})
}

// The reply to a renewal comes after the deadline: the record is the candidate's own all the same.
func TestOwnWriteThatIsAcknowledgedAfterTheDeadlineIsNoCopy(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a, bucket := f.faultyCandidate("a")
		a.start()
		after(interval)
		f.Expect(a.IsLeader()).To(BeTrue())
		instance, late := a.Status().Instance, false
		bucket.onUpdate(func(_ context.Context, _ []byte, _ uint64, update func() (uint64, error)) (uint64, error) {
			if !late {
				late = true
				defer time.Sleep(lease + time.Second)
			}
			return update()
		})
		after(5 * ttl)
		f.Expect(late).To(BeTrue())
		f.Expect(a.seen()).To(HaveLen(3), "won, lost, and won again")
		f.Expect(a.Status().Instance).To(Equal(instance))
	})
}
