package core

import (
	"testing"
	"time"

	"github.com/natscampaign/election/internal/record"
	. "github.com/onsi/gomega"
)

// The simulator found it: a leader that had not learned of the end of a pause resigned, loaded the bucket's info, and took the key again at once,
// before those for whom it had given the key up.
func TestLeaderThatResignedHoldsBackThoughAPauseEndsMeanwhile(t *testing.T) {
	g := NewWithT(t)
	c := candidate()
	now := time.Now()
	c.bucket.Read = now
	c.hold(PausedByOperator, true)
	c.role = c.wait(now, now.Add(c.bucket.Interval))
	c.waiting.yields = now.Add(time.Second)
	c.beginStep(now)
	c.loaded(now, c.bucket, nil, NoFailure)
	c.beginStep(now)
	g.Expect(c.holds).To(BeZero())
	g.Expect(c.waiting.due).To(Equal(now.Add(time.Second)))

	c.waiting.yields = time.Time{}
	c.hold(PausedByOperator, true)
	c.beginStep(now)
	c.loaded(now, c.bucket, nil, NoFailure)
	c.beginStep(now)
	g.Expect(c.waiting.due).To(BeTemporally("<", now.Add(time.Second)), "all others answer as they do a vacancy")
}

// halfway returns the real world, but for what is drawn at random, which is the middle.
func halfway() *World {
	w := world
	w.Random = func(d time.Duration) time.Duration { return d / 2 }
	return &w
}

// follower returns a candidate that relies on notifications, and that has read that "a" holds the key.
func follower(now time.Time) *Candidate {
	c := candidate()
	c.hints.source, c.Connected = Watch, true
	c.role = c.wait(now, now.Add(-time.Hour))
	c.waiting.failed = OpeningCampaigns
	learn(c, 7, record.Record{Name: "a", Instance: "a.1", Attempt: "a.1.1", Term: 7, LeaseMs: 9800, IntervalMs: 7500})
	return c
}

// A reader found it: the campaign of a candidate that relies on notifications is long due, and a read that showed no key had it create the key at
// once, before those whose turn came first.
func TestCandidateThatFindsTheKeyVacantTooEarlyWaitsForItsTurn(t *testing.T) {
	for name, state := range map[string]record.State{
		"nothing is stored": {Removal: record.Gone},
		"a release":         {Revision: 8, Record: record.Record{Name: "a", Instance: "a.1", Released: time.Now(), Successors: []string{"b"}, HeadStartMs: 500}},
		"a marker":          {Revision: 8, Removal: record.Expired},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			now := time.Now()
			c := follower(now)
			c.turn.afterExpiry = time.Second
			c.World = halfway()
			c.hints.hint = &hint{change: change{Revision: 8, Record: record.Record{Name: "c"}}, newHolder: true}
			c.hints.readAt = now
			op, _ := c.Next(now)
			g.Expect(op.Kind).To(Equal(Read))
			state.Read = now
			c.Done(now, Result{State: state})
			op, _ = c.Next(now)
			g.Expect(op.Kind).To(Equal(Wait))
			g.Expect(op.Until).To(BeTemporally(">", now))
		})
	}
}

// Five hundred members of a group found it: a marker is stored for a second, and on a busy host the write over it can be later. The candidate read
// the key again, found nothing, and waited for its next campaign.
func TestVacancyIsAnsweredThoughItsMarkerExpiresMeanwhile(t *testing.T) {
	marker := record.State{Revision: 8, Removal: record.Expired}
	for name, begin := range map[string]func(c *Candidate, now time.Time) time.Time{
		"before the write over it arrives": func(c *Candidate, now time.Time) time.Time {
			now = readNext(c, now, marker)
			op, _ := c.Next(now)
			if op.Kind == Write {
				c.Done(now, Result{Outcome: Refused})
			}
			return now
		},
		"before the turn of the candidate": func(c *Candidate, now time.Time) time.Time {
			c.key.holder.priorities = []int{1} // higher than its own
			return readNext(c, now, marker)
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			now := time.Now()
			c := candidate()
			c.World = halfway()
			c.hints.source, c.Connected = Watch, true
			c.role = c.wait(now, now)
			now = begin(c, now)
			limit := now.Add(time.Second)
			now = readNext(c, now, record.State{Removal: record.Gone})
			g.Expect(now).To(BeTemporally("<", limit))
			op, _ := c.Next(now)
			g.Expect(op.Kind).To(Equal(Write))
			g.Expect(op.Replaces).To(BeZero(), "nothing is stored any more")
		})
	}
}

// The marker of a purge can be stored for a second, and then that of its expiry is.
func TestRemovalThatWasReadIsRememberedThoughItsMarkerExpiresBeforeTheTurn(t *testing.T) {
	for name, next := range map[string]record.State{
		"and nothing is stored":               {Removal: record.Gone},
		"and the marker of that expiry is":    {Revision: 9, Removal: record.Expired},
		"and the marker of the removal still": {Revision: 8, Removal: record.Removed},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			now := time.Now()
			c := candidate()
			c.World = halfway()
			c.bucket.StandDown, c.bucket.DefaultStandDown = c.bucket.Interval, true
			c.hints.source, c.Connected = Republish, true // which has reported nothing of it: the candidate has just started
			c.role = c.wait(now, now.Add(5*time.Second))
			now = readNext(c, now, record.State{Revision: 8, Removal: record.Removed})
			op, _ := c.Next(now)
			g.Expect(op.Kind).To(Equal(Wait), "for its turn")
			for op.Kind != Write {
				now = readNext(c, now, next)
				op, _ = c.Next(now)
			}
			written := record.Parse(op.Value, 0)
			g.Expect(written.StandDownMs).To(BeNumerically(">=", c.bucket.TTL.Milliseconds()), "as after any removal")
		})
	}
}

// A removal is none of the known holder's once it is longer ago than a lease lasts.
func TestExpiryLongAfterARemovalIsAnExpiry(t *testing.T) {
	g := NewWithT(t)
	now := time.Now()
	c := candidate()
	c.Connected = true
	c.learn(now, &record.State{Read: now, Revision: 8, Removal: record.Removed})
	expired := &record.State{Revision: 9, Removal: record.Expired}
	c.learn(now.Add(time.Second), &record.State{Read: now.Add(time.Second), Revision: 8, Removal: record.Removed})
	g.Expect(c.acquisitionOver(now.Add(c.bucket.TTL-1), expired).removed).To(BeTrue())
	g.Expect(c.acquisitionOver(now.Add(c.bucket.TTL+time.Second), expired).removed).To(BeFalse())
}

// A test of the command on a busy host found it: the read after an attempt that was not answered showed a release, whose notification was no news
// then, and nobody led until the next campaign.
func TestReleaseThatIsReadAfterAnUnansweredAttemptIsAnswered(t *testing.T) {
	held := record.State{Revision: 7, Record: record.Record{Name: "a", Instance: "a.1", Attempt: "a.1.1", Term: 7, LeaseMs: 9800, IntervalMs: 7500}}
	released := record.Record{Name: "a", Instance: "a.1", Attempt: "a.1.2", Released: time.Now(), Successors: []string{"me"}}
	for name, vacant := range map[string]record.State{
		"a release":               {Revision: 8, Record: released},
		"the marker of a removal": {Revision: 8, Removal: record.Removed},
		"nothing":                 {Removal: record.Gone},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			now := time.Now()
			c := candidate()
			c.World = halfway()
			c.hints.source, c.Connected = Watch, true
			c.role = c.wait(now, now)
			now = readNext(c, now, held)
			op, _ := c.Next(now)
			g.Expect(op.Kind).To(Equal(Write), "which announces this candidate")
			now = now.Add(2 * time.Second)
			c.Done(now, Result{Outcome: Unknown, Failure: Timeout})
			now = readNext(c, now, vacant)
			limit := now.Add(time.Second)
			now = readNext(c, now, vacant)
			g.Expect(now).To(BeTemporally("<", limit))
			op, _ = c.Next(now)
			g.Expect(op.Kind).To(Equal(Write))
			g.Expect(op.Replaces).To(Equal(vacant.Revision))
		})
	}
}

// readNext has a candidate wait until it reads the key, and read the given state.
func readNext(c *Candidate, now time.Time, s record.State) time.Time {
	op, _ := c.Next(now)
	for ; op.Kind != Read; op, _ = c.Next(now) {
		if op.Kind == Wait {
			now = op.Until
		}
		c.Done(now, Result{Bucket: c.bucket})
	}
	s.Read = now
	c.Done(now, Result{State: s})
	return now
}

// A reader found it.
func TestCandidatesThatNothingHoldsBackAnyMoreSpreadTheirCampaignsThoughTheyRead(t *testing.T) {
	g := NewWithT(t)
	now := time.Now()
	c := candidate()
	c.World = halfway()
	c.bucket.Splay = time.Second
	c.hints.source = Watch
	c.hold(Paused, true)
	c.role = c.wait(now, now)
	c.hints.readAt = now
	op, _ := c.Next(now)
	g.Expect(op.Kind).To(Equal(Read))
	c.Notice(now, Hold{Paused, false})
	c.Done(now, Result{State: record.State{Read: now, Revision: 7, Record: record.Record{Name: "a", Instance: "a.1"}}})
	op, _ = c.Next(now)
	g.Expect(op.Kind).To(Equal(Wait))
	g.Expect(op.Until).To(Equal(now.Add(time.Second / 2)))
}

// A reader found it: only a pause by an operator was minded.
func TestKeyThatIsWonDuringAPauseIsNotKept(t *testing.T) {
	for _, hold := range []Holds{Paused, PausedByOperator, NotHealthy} {
		g := NewWithT(t)
		now := time.Now()
		c := candidate()
		c.role = c.wait(now, now)
		op, _ := c.Next(now)
		g.Expect(op.Kind).To(Equal(Read))
		c.Done(now, Result{State: record.State{Read: now, Removal: record.Gone}})
		op, _ = c.Next(now)
		g.Expect(op.Kind).To(Equal(Write))
		c.Notice(now, Hold{hold, true})
		c.Done(now, Result{Outcome: Applied, Revision: 1})
		op, _ = c.Next(now)
		g.Expect(op.Kind).To(Equal(Load))
		loaded := c.bucket
		loaded.Paused = hold == PausedByOperator
		c.Done(now, Result{Bucket: loaded})
		_, _ = c.Next(now)
		c.Done(now, Result{Quiet: true})
		op, _ = c.Next(now)
		g.Expect(op.Kind).To(Equal(Write))
		g.Expect(record.Parse(op.Value, 0).Released).NotTo(BeZero())
		g.Expect(c.Term().Led()).To(BeFalse())
		g.Expect(c.Term().Lease.State).To(Equal(Follower))
	}
}

// The simulator found it: a candidate that was paused read the record of a copy of it, and took that lease for one of its own, which is over.
func TestCandidateThatIsHeldBackRecognisesACopyOfItself(t *testing.T) {
	g := NewWithT(t)
	now := time.Now()
	c := candidate()
	c.bucket.Read = now
	c.hold(PausedByOperator, true)
	c.role = c.wait(now, now.Add(time.Hour))
	c.waiting.failed = OpeningCampaigns
	c.hints.source, c.Connected = Watch, true
	op, _ := c.Next(now)
	g.Expect(op.Kind).To(Equal(Read))
	c.Done(now, Result{State: *stored(now, 8, record.Record{Name: "b", Instance: c.Instance, Attempt: "never made", Term: 7, LeaseMs: 9800})})
	op, _ = c.Next(now)
	g.Expect(op.Kind).To(Equal(Finish))
	g.Expect(op.Cloned).To(BeTrue())

	c.Notice(now, NewRules{&Rules{World: c.World, Name: c.Name, Instance: "b.2"}})
	g.Expect(c.longestLease(now)).To(Equal(9800 * time.Millisecond))
}

func nothing(*Candidate, time.Time) {}

// bidUnread has a candidate create the key without having read it.
func bidUnread(c *Candidate, now time.Time) {
	c.role = (&bidding{began: now}).createUnread(c, now)
	c.beginStep(now)
}

// A candidate that may not read learns from refusals that the same write has stood for longer than a TTL.
func TestCandidateThatMayNotReadWritesOverWhatOutlivesTheTTL(t *testing.T) {
	for name, test := range map[string]struct {
		named, changes bool
		meanwhile      func(c *Candidate, now time.Time)
		over           uint64
	}{
		"unchanged":              {true, false, nothing, 7},
		"renewed":                {true, true, nothing, 0},
		"of an unknown revision": {false, false, nothing, 0},
		"in a bucket that was made again meanwhile": {true, false, func(c *Candidate, now time.Time) {
			c.loaded(now, Bucket{Timing: c.bucket.Timing, Created: now, Read: now}, nil, NoFailure)
		}, 0},
		"again, after this candidate led": {true, false, func(c *Candidate, now time.Time) {
			bidUnread(c, now)
			c.Done(now, Result{Outcome: Applied, Revision: 9})
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			now := time.Now()
			c := candidate()
			last, over := uint64(7), uint64(0)
			began := now
			for ; now.Before(began.Add(3*c.bucket.TTL)) && over == 0; now = now.Add(c.bucket.TTL / 2) {
				bidUnread(c, now)
				g.Expect(c.op.Replaces).To(BeZero(), "the key may have expired")
				if test.changes {
					last++
				}
				c.Done(now, Result{Outcome: Refused, Last: last, Named: test.named})
				if c.role.at() == BiddingBucket { // the TTL may have become longer
					c.beginStep(now)
					c.Done(now, Result{Bucket: Bucket{Timing: c.bucket.Timing, Created: c.bucket.Created, Read: now}})
				}
				if c.role.at() == BiddingWrite {
					c.beginStep(now)
					over = c.op.Replaces
					g.Expect(now.Sub(began)).To(BeNumerically(">=", c.bucket.TTL))
					g.Expect(c.role.(*bidding).acquisition.written.StandDownMs).To(BeNumerically(">=", c.bucket.TTL.Milliseconds()), "it may be another write of that revision")
				}
				test.meanwhile(c, now)
			}
			g.Expect(over).To(Equal(test.over))
		})
	}
}
