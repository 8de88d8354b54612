package core

import (
	"context"
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
		Name: "a", Instance: "a.1", Attempt: "a.1." + n, Term: 7, BucketCreated: time.Unix(0, 0), LeaseMs: 9000, IntervalMs: 7500, Commitment: record.NewSecret().Commitment(),
	}
}

// informed returns a candidate that has read the first record of a holder just now, and is told of renewals.
func informed(now time.Time) (*Candidate, record.Record) {
	c := candidate()
	c.Connected, c.hints.source = true, Republish
	c.role = c.wait(now, now.Add(time.Hour))
	c.waiting.failed = OpeningCampaigns
	r := renewal("1")
	c.learn(now, &record.State{Read: now, Revision: 7, Record: r})
	c.hints.readAt = time.Time{}
	return c, r
}

// lapse is how long after it was seen a write of that holder's earns a lease no more.
const lapse = 9*time.Second + 9*time.Second*1012/11_000

// stored returns what is read where a record is stored.
func stored(now time.Time, revision uint64, r record.Record) *record.State {
	return &record.State{Read: now, Revision: revision, Record: r}
}

func TestLeaseLapsesItsLengthAfterItsWriteWasSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		began := time.Now()
		c, r := informed(began)
		g.Expect(c.lapsesAt(began)).To(Equal(began.Add(lapse + slewPrecision)))
		time.Sleep(time.Second)
		r.Attempt = "a.1.2"
		notify(c, 8, r)
		began = began.Add(time.Second)
		g.Expect(c.lapsesAt(time.Now())).To(Equal(began.Add(lapse+slewPrecision)), "counted from the renewal")
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
	g.Expect(c.lapsesAt(answered)).To(Equal(answered.Add(lapse + slewPrecision)))
}

func TestLeaseOfARenewalThatIsNotifiedDuringAReadCountsFromTheNotification(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		c, r := informed(time.Now())
		begun := time.Now()
		time.Sleep(time.Millisecond)
		r.Attempt = "a.1.2"
		notify(c, 8, r)
		notified := time.Now()
		time.Sleep(time.Millisecond)
		older := r
		older.Attempt = "a.1.1"
		c.learn(time.Now(), stored(begun, 7, older))
		g.Expect(c.lapsesAt(time.Now())).To(Equal(notified.Add(lapse + slewPrecision)))
		time.Sleep(lapse)
		g.Expect(c.hasLapsed(time.Now(), stored(time.Now(), 8, r))).To(BeTrue())

		// If the notification is not true, a read that began after it shows so.
		c.learn(time.Now(), stored(time.Now(), 7, older))
		g.Expect(c.hasLapsed(time.Now(), stored(time.Now(), 8, r))).To(BeFalse())
	})
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
	g.Expect(c.lapsesAt(later)).To(Equal(later.Add(lapse + slewPrecision)))
}

// Whoever may write the key can announce a write, and make just that write later. Only the server knows when it stored the write.
func TestWriteThatWasAnnouncedBeforeItWasMadeIsTimedFromItsRead(t *testing.T) {
	g := NewWithT(t)
	now := time.Now()
	c, r := informed(now)
	announced := r
	announced.Attempt = "announced"
	c.notified(now, &Notification{Revision: 30, Written: now.Add(5 * time.Second), Value: &Value{Bytes: announced.Encode(), Revision: 30}})
	at := now.Add(lapse)
	made := stored(at, 30, announced)
	made.Written = now.Add(5*time.Second + 1)
	c.hints.awaited = 0
	g.Expect(c.hasLapsed(at, made)).To(BeFalse())
	c.learn(at, made)
	g.Expect(c.lapsesAt(at)).To(Equal(at.Add(lapse + slewPrecision)))
}

// Even a stamp that somebody has guessed tells nothing, once the holder has renewed after the announcement.
func TestNotificationFromTheFutureIsReplacedByTheNextRenewal(t *testing.T) {
	for name, revision := range map[string]uint64{"soon": 9, "far away": 1_000_000} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			now := time.Now()
			c, r := informed(now)
			forged := r
			forged.Attempt = "forged"
			c.notified(now, &Notification{Revision: revision, Written: now.Add(6 * time.Second), Value: &Value{Bytes: forged.Encode(), Revision: revision}})
			r.Attempt = "a.1.2"
			renewed := now.Add(5 * time.Second)
			c.notified(renewed, &Notification{Revision: 8, Written: renewed, Value: &Value{Bytes: r.Encode(), Revision: 8}})
			g.Expect(c.lapsesAt(renewed)).To(Equal(renewed.Add(lapse+slewPrecision)), "the genuine renewal counts")
			s := stored(renewed, revision, forged)
			s.Written = now.Add(6 * time.Second)
			g.Expect(c.hasLapsed(now.Add(lapse), s)).To(BeFalse())
		})
	}
}

// What was notified is not known to be the write that a later record replaced: it may have been announced before it was made.
func TestEarlierLeaseIsTimedOnlyByAWriteThatWasRead(t *testing.T) {
	for name, read := range map[string]bool{"read": true, "only notified": false} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			now := time.Now()
			c, r := informed(now)
			r.Attempt = "a.1.2"
			c.notified(now, &Notification{Revision: 8, Value: &Value{Bytes: r.Encode(), Revision: 8}})
			if read {
				c.learn(now, stored(now, 8, r))
			}
			at := now.Add(lapse)
			s := stored(at, 9, record.Record{Name: "x", Instance: "x.1", Attempt: "x.1.1", LeaseMs: 9000, Commitment: record.NewSecret().Commitment()})
			s.Replaced = 8
			c.learn(at, s)
			if read {
				g.Expect(c.earlierLeasesLeft(at)).To(BeZero())
			} else {
				g.Expect(c.earlierLeasesLeft(at)).To(Equal(c.bucket.mostLeft(9*time.Second, false)))
			}
		})
	}
}

// chrony slews the clocks of time.Now by up to one part in 12.
func TestLeaseLapsesByAClockThatIsNeverSlewed(t *testing.T) {
	for name, test := range map[string]struct {
		slewed, readable bool
		lapses           time.Duration
	}{
		"not slewed":              {false, true, lapse},
		"slewed":                  {true, true, lapse * 13 / 12},
		"slewed, as far as known": {true, false, 9 * time.Second * 13 / 11},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			began := time.Now()
			now := began
			c, r := informed(now)
			w := *c.World
			w.Slewed = func() (time.Duration, bool) {
				if test.slewed {
					return now.Sub(began) / 13, test.readable // it shows 13 seconds for each 12
				}
				return 0, test.readable
			}
			c.World = &w
			r.Attempt = "a.1.2"
			c.learn(now, stored(now, 8, r))
			c.hints.awaited = 0
			now = began.Add(test.lapses - time.Millisecond)
			g.Expect(c.hasLapsed(now, stored(now, 8, r))).To(BeFalse())
			now = began.Add(test.lapses + time.Millisecond)
			g.Expect(c.hasLapsed(now, stored(now, 8, r))).To(BeTrue())
		})
	}
}

// One record of a few hundred bytes must not have every winner wait for an hour.
func TestLeaseThatTheBucketNeverAllowedIsNotBelieved(t *testing.T) {
	for name, test := range map[string]struct {
		bucket  func(c *Candidate, now time.Time)
		longest time.Duration
	}{
		"no more than the TTL":                      {func(*Candidate, time.Time) {}, 10 * time.Second},
		"as long as the bucket says it has allowed": {func(c *Candidate, _ time.Time) { c.bucket.LongestTTL = time.Minute }, time.Minute},
		"as long as the TTL that was made shorter": {func(c *Candidate, now time.Time) {
			longer := c.bucket
			longer.TTL = 30 * time.Second
			c.Notice(now, Loaded{Bucket: longer})
			longer.TTL = 10 * time.Second
			c.Notice(now, Loaded{Bucket: longer})
		}, 30 * time.Second},
		"but not for ever": {func(c *Candidate, now time.Time) {
			longer := c.bucket
			longer.TTL = 30 * time.Second
			c.Notice(now.Add(-time.Hour), Loaded{Bucket: longer})
			longer.TTL = 10 * time.Second
			c.Notice(now.Add(-time.Hour), Loaded{Bucket: longer})
		}, 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			now := time.Now()
			c, _ := informed(now)
			test.bucket(c, now)
			foreign := record.Record{Name: "x", Instance: "x.1", Attempt: "x.1.1", BucketCreated: c.bucket.Created, LeaseMs: 3_600_000, Commitment: record.NewSecret().Commitment()}
			c.learn(now, stored(now, 8, foreign))
			g.Expect(c.longestLease(now)).To(Equal(test.longest))
			g.Expect(c.key.lastWrite.lease).To(Equal(test.longest))
		})
	}
}

// The TTL may have been made longer while this candidate only followed. A record that states a longer lease than it believes has it load the bucket's info,
// and until then that lease does not lapse.
func TestLeaseThatMayHaveBecomeLongerDoesNotLapseBeforeTheBucketWasAsked(t *testing.T) {
	g := NewWithT(t)
	now := time.Now()
	c, r := informed(now)
	c.bucket.Read = now.Add(-time.Second)
	r.Attempt, r.LeaseMs = "a.1.2", 54_000
	c.learn(now, stored(now, 8, r))
	c.hints.awaited = 0
	b := &bidding{state: stored(now, 8, r)}
	later := now.Add(2 * lapse)
	g.Expect(c.hasLapsed(later, b.state)).To(BeFalse())
	g.Expect(b.bucketMayHaveChanged(c, now)).To(BeTrue(), "it is to ask")

	longer, same := c.bucket, c.bucket
	longer.TTL, longer.Read, same.Read = time.Minute, now, now
	c.loaded(now, longer, nil, NoFailure)
	c.believeLonger(now, b.state)
	g.Expect(b.bucketMayHaveChanged(c, now)).To(BeFalse(), "it has asked")
	g.Expect(c.hasLapsed(later, b.state)).To(BeFalse())
	g.Expect(c.longestLease(now)).To(Equal(54 * time.Second))
	g.Expect(c.hasLapsed(now.Add(time.Minute), b.state)).To(BeTrue())

	c, _ = informed(now)
	c.learn(now, stored(now, 8, r))
	c.hints.awaited = 0
	c.loaded(now, same, nil, NoFailure)
	g.Expect(c.hasLapsed(later, b.state)).To(BeTrue(), "the bucket has never allowed such a lease")
}

func TestNoLeaseIsBelievedThatIsShorterThanWithTheDefaultMargin(t *testing.T) {
	g := NewWithT(t)
	now := time.Now()
	c, r := informed(now)
	lapseTime := func() time.Duration { return c.leftOf(now, c.moment(now), c.key.lastWrite.lease) }
	least := timing.LapseTime(0, c.bucket.TTL, true)
	g.Expect(least).To(Equal(lapse))
	forged := r
	forged.Attempt, forged.LeaseMs = "forged", 1
	c.learn(now, stored(now, 8, forged))
	g.Expect(lapseTime()).To(Equal(least))

	r.LeaseMs = 9999
	c.learn(now, stored(now, 9, r))
	c.learn(now, stored(now, 10, forged))
	g.Expect(lapseTime()).To(BeNumerically(">", 9999*time.Millisecond), "nor shorter than one that the term had before")

	another := renewal("1")
	another.Instance, another.LeaseMs = "b.1", 5000
	c.learn(now, stored(now, 11, another))
	g.Expect(lapseTime()).To(Equal(least), "another term has its own")
}

func TestTakeoverWritesOverWhatWasReadAndStandsDownOnlyUntilItIsRead(t *testing.T) {
	for name, test := range map[string]struct {
		change    func(r *record.Record)
		standDown time.Duration
	}{
		"of a leader":          {func(*record.Record) {}, 2 * (learnDelay + ShortSpread)},
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
			c.waiting.due = now.Add(time.Hour)
			op, _ := c.Next(now)
			at := now.Add(lapse + slewPrecision + (c.bucket.TTL-lapse)/2) // all come by then
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
			g.Expect(op.Replaces).To(BeEquivalentTo(8))
			c.Done(at, Result{Outcome: Applied, Revision: 9})
			op, _ = c.Next(at)
			g.Expect(op.Kind).To(Equal(Load))
			c.Done(at, Result{Bucket: c.bucket})
			g.Expect(c.Term().StandDown).To(Equal(test.standDown))
			g.Expect(c.Term().AtOnce).To(BeFalse(), "leadership counts from the next campaign that succeeds")
			op, _ = c.Next(at)
			g.Expect(op.Until).To(BeTemporally("==", at.Add(test.standDown)))
			c.Done(op.Until, Result{})
			op, _ = c.Next(at.Add(test.standDown))
			g.Expect(op.Kind).To(Equal(Write), "which follows then")
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
	c := candidate()
	passed := func(from, to time.Time) time.Duration {
		return timing.LapseTime(0, c.bucket.TTL, true) - c.leftOf(to, c.moment(from), 0)
	}
	from := time.Now()
	g.Expect(passed(from, from.Add(time.Second))).To(Equal(time.Second))
	set := from.Round(0).Add(time.Hour) // without the monotonic reading, as after a step of the wall clock
	g.Expect(passed(from.Round(0), set)).To(Equal(time.Hour))
	g.Expect(passed(from, from.Round(0).Add(-time.Hour))).To(Equal(-time.Hour))
}

// A leader that took over a lapsed lease can hand over at once: those who saw that lease lapse need not wait for it once more.
func TestLeaseThatWasSeenToLapseDoesNotCountAfterTheNextRelease(t *testing.T) {
	for name, test := range map[string]struct {
		before func(c *Candidate, s *record.State)
		left   bool
	}{
		"over what was read":            {func(*Candidate, *record.State) {}, false},
		"over something else":           {func(_ *Candidate, s *record.State) { s.Replaced++ }, true},
		"over anything":                 {func(_ *Candidate, s *record.State) { s.Unconditional = true }, true},
		"the connection was made again": {func(c *Candidate, _ *record.State) { c.Notice(time.Now(), Reconnected{time.Now()}) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewWithT(t)
				c, _ := informed(time.Now())
				time.Sleep(lapse + time.Millisecond)
				taken := record.Record{
					Name: "x", Instance: "x.1", Attempt: "x.1.1", Won: string(Lapsed), BucketCreated: c.bucket.Created, LeaseMs: 9000, IntervalMs: 7500, Commitment: record.NewSecret().Commitment(),
				}
				s := stored(time.Now(), 8, taken)
				s.Replaced = 7
				test.before(c, s)
				c.learn(time.Now(), s)
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
		s := stored(time.Now(), 8, record.Record{Name: "x", Instance: "x.1", Attempt: "x.1.1", LeaseMs: 9000, Commitment: record.NewSecret().Commitment()})
		s.Replaced = 7
		c.learn(time.Now(), s)
		left := lapse - 2*time.Second
		g.Expect(c.earlierLeasesLeft(time.Now())).To(Equal(left+left/12), "its own clock may be slewed ahead until then")
	})
}

// play has a candidate go on from a time while more says so. Waits pass at once; answer says what comes of everything else.
func play(c *Candidate, at time.Time, more func(at time.Time) bool, answer func(op Op, at time.Time) Result) {
	for more(at) {
		op, _ := c.Next(at)
		result := Result{}
		if op.Kind == Wait {
			at = later(at.Add(time.Millisecond), op.Until)
		} else {
			result = answer(op, at)
		}
		c.Done(at, result)
	}
}

// The TTL may have been made longer, and the leader renew less often than by the TTL that is known.
func TestNothingThatOutlivesTheTTLIsWrittenOverBeforeTheBucketWasAsked(t *testing.T) {
	g := NewWithT(t)
	now := time.Now()
	c, r := informed(now)
	c.hints.source, c.bucket.StandDown, c.waiting.due = NoSource, 7500*time.Millisecond, now
	c.bucket.Read = now.Add(-time.Second)
	asked := 0
	play(c, now, func(at time.Time) bool { return at.Before(now.Add(3 * c.bucket.TTL)) }, func(op Op, at time.Time) (result Result) {
		switch op.Kind {
		case Read:
			result.State = *stored(at, 7, r)
		case Load:
			asked++
			result.Err, result.Failure = context.DeadlineExceeded, Timeout
		case Write:
			g.Expect(op.Replaces).NotTo(BeEquivalentTo(7))
			result.Outcome, result.Revision = Refused, 7
		}
		return result
	})
	g.Expect(asked).To(BeNumerically(">", 1))
}

// A message that never expires, or that nobody can read as a record, must not keep an election without a leader for ever.
func TestWhatOutlivesTheTTLIsWrittenOver(t *testing.T) {
	for name, s := range map[string]record.State{
		"a bare name":            {Revision: 8, Record: record.Record{Name: "x"}, Unconditional: true},
		"a record":               {Revision: 8, Record: record.Record{Name: "x", Instance: "x.1", Attempt: "x.1.1", LeaseMs: 9000}, Unconditional: true},
		"without a lease":        {Revision: 8, Record: record.Record{Name: "x", Instance: "x.1", Attempt: "x.1.1"}},
		"with an endless lease":  {Revision: 8, Record: record.Record{Name: "x", Instance: "x.1", Attempt: "x.1.1", LeaseMs: 3_600_000}},
		"with an endless wait":   {Revision: 8, Record: record.Record{Name: "x", Instance: "x.1", Attempt: "x.1.1", LeaseMs: 9000, StandDownMs: 3_600_000}},
		"from an earlier bucket": {Revision: 8, Record: record.Record{Name: "x", Instance: "x.1", Attempt: "x.1.1", LeaseMs: 9000, BucketCreated: time.Unix(-1, 0)}},
		"a copy of the holder's": {Revision: 8, Record: renewal("1"), Unconditional: true},
	} {
		for _, source := range []string{Republish, NoSource} {
			t.Run(name+", source "+source, func(t *testing.T) {
				g := NewWithT(t)
				now := time.Now()
				c, _ := informed(now)
				c.hints.source, c.bucket.StandDown, c.bucket.DefaultStandDown = source, 7500*time.Millisecond, true
				s := s
				s.Read = now
				c.learn(now, &s)
				c.hints.awaited = 0
				c.waiting.due = now
				var won time.Time
				more := func(at time.Time) bool { return won.IsZero() && at.Before(now.Add(3*c.bucket.TTL)) }
				play(c, now, more, func(op Op, at time.Time) (r Result) {
					switch op.Kind {
					case Read:
						s.Read, r.State = at, s
					case Load:
						r.Bucket = c.bucket
						r.Bucket.Read = at
					case Write:
						r.Outcome, r.Revision = Refused, 8
						if op.Replaces == 8 {
							r.Outcome, r.Revision, won = Applied, 9, at
						}
					}
					return r
				})
				// By a clock that chrony slews ahead, by one part in 12, the server expires what does expire before that.
				expired := (c.bucket.TTL + timing.ExpiryLateness) * 13 / 12
				g.Expect(won.Sub(now)).To(And(BeNumerically(">=", expired), BeNumerically("<=", 2*c.bucket.TTL)))
				for c.Term() == nil {
					op, _ := c.Next(won)
					g.Expect(op.Kind).To(Equal(Load))
					c.Done(won, Result{Bucket: c.bucket})
				}
				g.Expect(c.Term().StandDown).To(And(BeNumerically(">=", 7500*time.Millisecond), BeNumerically("<=", 11*time.Second)), "no less than after an expiry")
				g.Expect(c.Term().AtOnce).To(BeFalse())
			})
		}
	}
}
