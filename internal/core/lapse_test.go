package core

import (
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/timing"
)

// renewal returns the nth record of the holder "a" in the bucket of [candidate].
func renewal(n string) record.Record {
	return record.Record{
		Name: "a", Instance: "a.1", Attempt: "a.1." + n, Term: 7, BucketCreated: time.Unix(0, 0), LeaseMs: 9800, IntervalMs: 7500, Commitment: record.NewSecret().Commitment(),
	}
}

// informed returns a candidate that has read the first record of a holder just now, and is told of renewals.
func informed(now time.Time) (*Candidate, record.Record) {
	c := candidate()
	c.Connected, c.hints.source = true, Republish
	c.beginCampaigning(now, now.Add(time.Hour), OpeningCampaigns)
	r := renewal("1")
	c.learn(now, &record.State{Read: now, Revision: 7, Record: r})
	c.hints.readAt = time.Time{}
	return c, r
}

// lapse is how long after it was seen a write of that holder's earns a lease no more.
const lapse = 9800*time.Millisecond + 9800*time.Millisecond/200

// stored returns what is read where a record is stored.
func stored(now time.Time, revision uint64, r record.Record) *record.State {
	return &record.State{Read: now, Revision: revision, Record: r}
}

func TestLeaseLapsesItsLengthAfterItsWriteWasSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		began := time.Now()
		c, r := informed(began)
		g.Expect(c.lapsesAt(began)).To(Equal(began.Add(lapse)))
		time.Sleep(time.Second)
		r.Attempt = "a.1.2"
		notify(c, 8, r)
		began = began.Add(time.Second)
		g.Expect(c.lapsesAt(time.Now())).To(Equal(began.Add(lapse)), "counted from the renewal")
		notify(c, 8, r)
		time.Sleep(lapse - 1)
		g.Expect(c.hasLapsed(time.Now(), stored(time.Now(), 8, r))).To(BeFalse())
		time.Sleep(time.Nanosecond)
		g.Expect(c.hasLapsed(time.Now(), stored(time.Now(), 8, r))).To(BeTrue())
	})
}

// The answer to a read tells that the write was sent before the answer came, not before the request was sent.
func TestLeaseThatIsReadCountsFromTheAnswer(t *testing.T) {
	g := NewWithT(t)
	now := time.Now()
	c, r := informed(now)
	r.Attempt = "a.1.2"
	answered := now.Add(time.Second)
	c.learn(answered, stored(now, 8, r))
	notify(c, 8, r)
	g.Expect(c.lapsesAt(answered)).To(Equal(answered.Add(lapse)))
}

func TestLeaseOfAnybodyWhoMissedSomethingIsNotKnownToLapse(t *testing.T) {
	now := time.Now()
	for name, happens := range map[string]func(c *Candidate, r record.Record){
		"the connection was made again": func(c *Candidate, _ record.Record) { c.Notice(now, Reconnected{now}) },
		"the source was started anew":   func(c *Candidate, _ record.Record) { c.Notice(now, SourceChanged{Source: Watch}) },
		"the source is stalled":         func(c *Candidate, _ record.Record) { c.Notice(now, SourceLost{}) },
		"the bucket is another one":     func(c *Candidate, _ record.Record) { c.Notice(now, SourceMoved{now}) },
		"there is no source":            func(c *Candidate, _ record.Record) { c.hints.source = NoSource },
		"the key cannot be read":        func(c *Candidate, _ record.Record) { c.reading.resting = true },
		"the connection is not known":   func(c *Candidate, _ record.Record) { c.Connected = false },
		"it writes bare names":          func(c *Candidate, _ record.Record) { c.Plain = true },
		"the source has not reported what was read": func(c *Candidate, r record.Record) {
			r.Attempt = "a.1.2"
			c.learn(now, stored(now, 8, r))
		},
		"a later revision was read": func(c *Candidate, _ record.Record) { c.key.highest = 8 },
		"a later change was notified": func(c *Candidate, _ record.Record) {
			notify(c, 8, record.Record{Name: "b", Instance: "b.1", Attempt: "b.1.1"})
		},
		"a removal was notified": func(c *Candidate, _ record.Record) {
			c.notified(now, &Notification{Revision: 8, Removal: record.Removed})
		},
		"no lease is stated": func(c *Candidate, r record.Record) {
			r.Instance, r.LeaseMs = "a.2", 0
			c.learn(now, stored(now, 8, r))
		},
		"it holds the key itself": func(c *Candidate, r record.Record) {
			r.Instance = c.Instance
			c.learn(now, stored(now, 8, r))
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c, r := informed(now)
			g.Expect(c.lapsesAt(now)).NotTo(BeZero())
			happens(c, r)
			g.Expect(c.lapsesAt(now)).To(BeZero())
			g.Expect(c.hasLapsed(now.Add(time.Hour), stored(now.Add(time.Hour), 7, r))).To(BeFalse())
		})
	}
}

// A write that is seen again after a gap is timed from then.
func TestLeaseThatIsSeenAgainAfterAGapCountsFromThen(t *testing.T) {
	g := NewWithT(t)
	now := time.Now()
	c, r := informed(now)
	c.Notice(now, Reconnected{now})
	later := now.Add(5 * time.Second)
	c.learn(later, stored(later, 7, r))
	g.Expect(c.lapsesAt(later)).To(Equal(later.Add(lapse)))
}

// Somebody knows which revision comes next, but not which attempt.
func TestForgedNotificationTellsNothingAboutTheTimeOfAWrite(t *testing.T) {
	g := NewWithT(t)
	now := time.Now()
	c, r := informed(now)
	forged := r
	forged.Attempt = "forged"
	c.notified(now, &Notification{Revision: 8, Value: &Value{Bytes: forged.Encode(), Revision: 8}})
	r.Attempt = "a.1.2"
	sent := now.Add(7 * time.Second) // and is stored at that revision
	c.notified(sent, &Notification{Revision: 8, Value: &Value{Bytes: r.Encode(), Revision: 8}})
	at := now.Add(lapse)
	g.Expect(c.hasLapsed(at, stored(at, 8, r))).To(BeFalse())
	c.learn(at, stored(at, 8, r))
	g.Expect(c.lapsesAt(at)).To(Equal(at.Add(lapse)))
}

func TestNoLeaseIsBelievedThatIsShorterThanWithTheDefaultMargin(t *testing.T) {
	g := NewWithT(t)
	now := time.Now()
	c, r := informed(now)
	least := timing.LapseTime(0, c.bucket.TTL)
	g.Expect(least).To(Equal(lapse))
	forged := r
	forged.Attempt, forged.LeaseMs = "forged", 1
	c.learn(now, stored(now, 8, forged))
	g.Expect(c.lapseTime()).To(Equal(least))

	r.LeaseMs = 9999
	c.learn(now, stored(now, 9, r))
	c.learn(now, stored(now, 10, forged))
	g.Expect(c.lapseTime()).To(BeNumerically(">", 9999*time.Millisecond), "nor shorter than one that the term had before")

	another := renewal("1")
	another.Instance, another.LeaseMs = "b.1", 5000
	c.learn(now, stored(now, 11, another))
	g.Expect(c.lapseTime()).To(Equal(least), "another term has its own")
}

func TestTakeoverWritesOverWhatWasReadAndHasNoStandDown(t *testing.T) {
	for name, test := range map[string]struct {
		change    func(r *record.Record)
		standDown time.Duration
	}{
		"of a leader":          {func(*record.Record) {}, 0},
		"of a leader-elect":    {func(r *record.Record) { r.Term, r.StandDownMs = 0, 2500 }, 2500 * time.Millisecond},
		"in an earlier bucket": {func(r *record.Record) { r.BucketCreated = time.Unix(-1, 0) }, -1},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			now := time.Now()
			c, r := informed(now)
			c.bucket.StandDown = 7500 * time.Millisecond
			r.Attempt = "a.1.2"
			test.change(&r)
			c.learn(now, stored(now, 8, r))
			c.hints.delivered, c.hints.awaited = 8, 0
			c.wait.due = now.Add(time.Hour)
			op, _ := c.Next(now)
			at := now.Add(lapse)
			at = at.Add((c.bucket.TTL - lapse) / 2) // all come by then
			g.Expect(op.Until).To(BeTemporally("<=", at))
			c.Done(at, Result{})
			op, _ = c.Next(at)
			g.Expect(op.Kind).To(Equal(Read))
			c.Done(at, Result{State: *stored(at, 8, r)})
			op, _ = c.Next(at)
			if test.standDown < 0 {
				g.Expect(op.Kind).NotTo(Equal(Write))
				return
			}
			g.Expect(op.Kind).To(Equal(Write))
			g.Expect(op.Over).To(BeEquivalentTo(8))
			c.Done(at, Result{Outcome: Applied, Revision: 9})
			op, _ = c.Next(at)
			g.Expect(op.Kind).To(Equal(Load))
			c.Done(at, Result{Bucket: c.bucket})
			g.Expect(c.Term().StandDown).To(Equal(test.standDown))
			g.Expect(c.Term().AtOnce).To(BeFalse(), "leadership counts from the next campaign that succeeds")
			op, _ = c.Next(at)
			if test.standDown == 0 {
				g.Expect(op.Kind).To(Equal(Write), "which follows at once")
			}
		})
	}
}

// A candidate that cannot read, or whose write fails, does not try again and again.
func TestTakeoverThatFailsIsLeftToTheNextCampaign(t *testing.T) {
	g := NewWithT(t)
	now := time.Now()
	c, _ := informed(now)
	at := now.Add(c.bucket.TTL)
	reads := 0
	for end := at.Add(c.bucket.TTL); at.Before(end); {
		op, _ := c.Next(at)
		switch op.Kind {
		case Read:
			reads++
			at = at.Add(10 * time.Millisecond)
			c.Done(at, Result{Err: errUnreadable, Failure: Otherwise})
		default:
			at = at.Add(10 * time.Millisecond)
			c.Done(at, Result{})
		}
	}
	g.Expect(reads).To(BeNumerically("<=", 20))
}

func TestSuccessorTakesOverFirstAndAllOthersBeforeTheKeyExpires(t *testing.T) {
	g := NewWithT(t)
	now := time.Now()
	for range 100 {
		c, _ := informed(now)
		g.Expect(c.takeoverDelay()).To(BeNumerically("<", c.bucket.TTL-lapse))
		c.key.holder.successor = "b.1"
		g.Expect(c.takeoverDelay()).To(And(BeNumerically(">=", HeadStart), BeNumerically("<", c.bucket.TTL-lapse)))
		c.key.holder.priorities = []int{5}
		g.Expect(c.takeoverDelay()).To(And(BeNumerically(">", HeadStart), BeNumerically("<", c.bucket.TTL-lapse)))
		c.key.holder.successor = c.Instance
		g.Expect(c.takeoverDelay()).To(BeZero())
	}
}

func TestLeastTimePassesByTheClockThatShowsTheLeast(t *testing.T) {
	g := NewWithT(t)
	from := time.Now()
	g.Expect(leastPassed(from, from.Add(time.Second))).To(Equal(time.Second))
	set := from.Round(0).Add(time.Hour) // without the monotonic reading, as after a step of the wall clock
	g.Expect(leastPassed(from.Round(0), set)).To(Equal(time.Hour))
	g.Expect(leastPassed(from, from.Round(0).Add(-time.Hour))).To(Equal(-time.Hour))
}

// A leader that took over a lapsed lease can hand over at once: those who saw that lease lapse need not wait for it once more.
func TestLeaseThatWasSeenToLapseDoesNotCountAfterTheNextRelease(t *testing.T) {
	for name, test := range map[string]struct {
		before func(c *Candidate)
		left   bool
	}{
		"told of the takeover":          {func(*Candidate) {}, false},
		"not told of the takeover":      {func(c *Candidate) { c.hints.attempt = 0 }, true},
		"told of something else":        {func(c *Candidate) { c.hints.attempt++ }, true},
		"the connection was made again": {func(c *Candidate) { c.Notice(time.Now(), Reconnected{time.Now()}) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewWithT(t)
				c, _ := informed(time.Now())
				time.Sleep(lapse + time.Millisecond)
				taken := record.Record{
					Name: "x", Instance: "x.1", Attempt: "x.1.1", Won: string(Lapsed), BucketCreated: c.bucket.Created, LeaseMs: 9800, IntervalMs: 7500, Commitment: record.NewSecret().Commitment(),
				}
				notify(c, 8, taken)
				test.before(c)
				c.learn(time.Now(), stored(time.Now(), 8, taken))
				g.Expect(c.earlierLeasesLeft(time.Now()) > 0).To(Equal(test.left))
			})
		})
	}
}

// The holder may have renewed after what this candidate saw, and before somebody else wrote.
func TestLeaseOfAHolderWhoseRecordWasOverwrittenCountsFromWhatWasSeenLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		c, _ := informed(time.Now())
		time.Sleep(2 * time.Second)
		foreign := record.Record{Name: "x", Instance: "x.1", Attempt: "x.1.1", LeaseMs: 9800, Commitment: record.NewSecret().Commitment()}
		notify(c, 8, foreign)
		c.learn(time.Now(), stored(time.Now(), 8, foreign))
		g.Expect(c.earlierLeasesLeft(time.Now())).To(Equal(lapse - 2*time.Second))
	})
}
