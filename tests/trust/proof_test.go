package trust_test

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/record"
	. "github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/natstest"
)

// forgedReleases are what somebody may have stored under the key who cannot know the leader's secret.
var forgedReleases = map[string]func(f *Fleet){
	"by an answer": func(f *Fleet) { f.Write(string(f.StrangerRelease().Encode())) },
	"by an update": func(f *Fleet) { f.Replace(f.StrangerRelease()) },
	"of the leader's own record": func(f *Fleet) {
		r := f.Stored()
		r.Released, r.Secret, r.Successors = time.Now(), record.NewSecret(), []string{"b"}
		f.Replace(r)
	},
	"of the leader's own record with another commitment": func(f *Fleet) {
		r, secret := f.Stored(), record.NewSecret()
		r.Released, r.Secret, r.Commitment, r.Successors = time.Now(), secret, secret.Commitment(), []string{"b"}
		f.Replace(r)
	},
	"without a commitment": func(f *Fleet) {
		r := f.Stored()
		r.Released, r.Commitment, r.Successors = time.Now(), record.Commitment{}, []string{"b"}
		f.Replace(r)
	},
	"of a record that was forged before": func(f *Fleet) {
		release := f.StrangerRelease()
		held := release
		held.Released, held.Secret, held.Successors = time.Time{}, record.Secret{}, nil
		f.Replace(held)
		After(500 * time.Millisecond)
		f.Replace(release)
	},
	"of a bare name that was forged before": func(f *Fleet) {
		release := f.StrangerRelease()
		f.Write("a")
		After(500 * time.Millisecond)
		f.Replace(release)
	},
	"after a forged deletion": func(f *Fleet) {
		release := f.StrangerRelease()
		f.Expect(f.Bucket.Delete(context.Background(), Key)).To(Succeed())
		f.Write(string(release.Encode()))
	},
}

func TestReleaseWithoutTheSecretElectsNobodyBesideALeaderThatIsCutOff(t *testing.T) {
	natstest.SkipIfShort(t)
	for name, forge := range forgedReleases {
		t.Run(name, func(t *testing.T) {
			ForEachSource(t, func(f *Fleet, candidate NewCandidate) {
				a := candidate("a").Begin()
				After(Interval)
				b := candidate("b").Begin()
				After(2*Interval + time.Second)
				f.Expect(a.IsLeader()).To(BeTrue())
				a.Link.Cut()
				forge(f)
				f.ExpectOneLeader(TTL, a, b)
				After(2 * TTL)
				f.Expect(b.IsLeader()).To(BeTrue(), "somebody leads in the end")
			})
		})
	}
}

func TestAnswerStoredAsAReleaseDoesNotDeceiveACandidateThatHasJustStarted(t *testing.T) {
	Run(t, func(f *Fleet) {
		a := f.Connected("a").Begin()
		After(2 * Interval)
		a.Link.Cut()
		f.Write(string(f.StrangerRelease().Encode()))
		b := f.Connected("b").Begin()
		f.ExpectOneLeader(TTL, a, b)
		After(TTL)
		f.Expect(b.IsLeader()).To(BeTrue())
	}, Republished)
}

func TestNotificationsOfForgedCommitmentsProveNothing(t *testing.T) {
	Run(t, func(f *Fleet) {
		a := f.Connected("a").Begin()
		After(Interval)
		b := f.Connected("b").Begin()
		After(2 * Interval)
		forger := f.Forger()
		secret := record.NewSecret()
		r := f.Stored()
		r.Commitment = secret.Commitment()
		a.Link.Cut()
		for i := range uint64(3) {
			forger.Publish(f.Revision()+i, string(r.Encode()))
			After(time.Millisecond)
		}
		r.Released, r.Secret, r.Successors = time.Now(), secret, []string{"b"}
		f.Replace(r)
		f.ExpectOneLeader(TTL, a, b)
	}, Republished)
}

// missedTerm returns a candidate that leads after a term that it has missed: one that polls sees every second term only.
func missedTerm(f *Fleet) *Candidate {
	f.Helper()
	a := f.Leading("a")
	b := f.Unnotified("b").Begin()
	After(Interval + time.Second) // it has read the record of a
	a.End()
	x := f.Candidate("x").Begin() // its release is a record, which a candidate without a watcher can read
	After(Instant)
	f.Expect(x.IsLeader()).To(BeTrue())
	x.End()
	After(Interval)
	f.Expect(b.IsLeader()).To(BeTrue(), "the release of x shows that it took over the release of a")
	return b
}

func TestReleaseOfATermThatFollowedTheKnownOneIsTakenAtOnce(t *testing.T) {
	Run(t, func(f *Fleet) {
		missedTerm(f)
	})
}

// A candidate that has taken over such a release knows that no lease lasts from before it.
func TestTermThatWasMissedCostsNoStandDownLater(t *testing.T) {
	Run(t, func(f *Fleet) {
		b := missedTerm(f)
		f.Expect(b.Resign(context.Background())).To(Succeed())
		y := f.Candidate("y").Begin()
		After(Instant)
		f.Expect(y.IsLeader()).To(BeTrue())
		y.End()
		After(Interval)
		f.Expect(b.IsLeader()).To(BeTrue(), "the leases of a and x are known to be over")
	}, Republished)
}

func TestReleaseThatIsNotProvenIsSaidInTheLog(t *testing.T) {
	Run(t, func(f *Fleet) {
		var log Log
		a := f.Connected("a").Begin()
		After(Interval)
		b := f.Connected("b", election.WithLogger(log.Logger())).Begin()
		After(2 * Interval)
		a.Link.Cut()
		forgedReleases["by an update"](f)
		After(time.Second)
		f.Expect(b.State()).To(Equal(election.LeaderElectState))
		f.Expect(log.Count("Release proves nothing")).To(Equal(1))
	}, Republished)
}

func TestEveryRecordOfATermStatesItsCommitmentAndTheReleaseOpensIt(t *testing.T) {
	Run(t, func(f *Fleet) {
		a := f.Leading("a")
		won := f.Stored()
		After(Interval)
		renewed := f.Stored()
		a.End()
		release := f.Stored()
		f.Expect(won.Commitment).NotTo(BeZero())
		f.Expect(won.Secret).To(BeZero())
		f.Expect(renewed.Commitment).To(Equal(won.Commitment))
		f.Expect(renewed.Secret).To(BeZero())
		f.Expect(release.Commitment).To(Equal(won.Commitment))
		f.Expect(release.Commitment.OpenedBy(release.Secret)).To(BeTrue())

		b := f.Candidate("b").Begin()
		next := f.Stored()
		f.Expect(b.IsLeader()).To(BeTrue())
		f.Expect(next.Commitment).NotTo(Equal(won.Commitment), "each term has its own")
		f.Expect(next.Predecessors).To(Equal(record.Secrets{release.Secret}))
	})
}

func TestEveryWriteHasAnIDThatNobodyCanGuess(t *testing.T) {
	Run(t, func(f *Fleet) {
		f.Leading("a")
		seen := map[string]bool{}
		for range 5 {
			r := f.Stored()
			f.Expect(r.Attempt).To(HaveLen(22))
			f.Expect(r.Attempt).NotTo(ContainSubstring(r.Instance))
			seen[r.Attempt] = true
			After(Interval)
		}
		f.Expect(seen).To(HaveLen(5))
	})
}
