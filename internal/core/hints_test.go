package core

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/record"
)

// FuzzNotified handles what anybody may publish where the server republishes changes, or as an attempt.
func FuzzNotified(f *testing.F) {
	value := []byte(`{"name":"a","instance":"i","attempt":"i.1"}`)
	f.Add(uint64(1), int64(1767225600), uint8(record.Kept), value)
	f.Add(uint64(2), int64(0), uint8(record.Expired), []byte{})
	f.Add(uint64(1<<64-1), int64(-1), uint8(record.Removed), value)
	f.Add(uint64(0), int64(1<<62), uint8(record.RemovedOrExpired), []byte("0"))
	f.Add(uint64(3), int64(0), uint8(record.Kept), []byte(`{"name":"a","instance":"i","attempt":"i.1","released":"2026-01-01T00:00:00Z","successors":["me"]}`))
	f.Add(uint64(4), int64(0), uint8(record.Kept), []byte(`{"name":"b","instance":"i","attempt":"i.2","notified":true,"priority":9,"priorities":[9,8]}`))
	f.Add(uint64(5), int64(0), uint8(record.Kept), []byte(`me`))
	f.Fuzz(func(t *testing.T, revision uint64, written int64, removal uint8, data []byte) {
		for _, held := range []bool{false, true} {
			now := time.Now()
			c := candidate()
			c.recordAttempts(true)
			c.hints.source = Republish
			if held {
				learn(c, 2, record.Parse(value, 2))
			}
			due := now.Add(time.Second)
			c.waiting = waiting{due: due, failed: OpeningCampaigns, fallback: due.Add(time.Hour)}
			for range 2 {
				c.Notice(now, &Notification{
					Revision: revision, Written: time.Unix(written, 0), Removal: record.Removal(removal) % record.Gone, Value: &Value{Bytes: data, Revision: revision},
				})
				c.Notice(now, Attempt{&Value{Bytes: data}})
				if at := c.readDue(); at.After(now.Add(2 * c.bucket.TTL)) {
					t.Errorf("reads the key at %v", at)
				}
				if at := c.waiting.nextCampaign(c); !held && !at.Equal(due) || at.After(c.waiting.fallback) {
					t.Errorf("a notification moves the next campaign to %v", at)
				}
				if size := len(strings.Join(names(c.successors(now, nobody, []record.Successor{{Name: "b"}})), "")); size > record.MaxSuccessorBytes {
					t.Errorf("successors of %d bytes", size)
				}
				if n := len(c.priorities(now, nil, now)); n > record.MaxPriorities {
					t.Errorf("%d priorities", n)
				}
			}
		}
	})
}

// The reads that hints cause may lag, so that the hints seem wrong. The simulator found a follower that answered the next release late,
// though a campaign of its own had read by then what it had been notified of.
func TestHintsThatALaggingReplicaSeemedToContradictAreTrustedAgain(t *testing.T) {
	g := NewWithT(t)
	c := candidate()
	c.hints.wrong, c.hints.notBefore = maxWrongHints, time.Now().Add(time.Hour)
	holder := record.Record{Name: "a", Instance: "a.1", Attempt: "a.1.1"}
	learn(c, 7, holder)
	read(c, 8, holder)
	g.Expect(c.hints.wrong).To(BeEquivalentTo(maxWrongHints), "a renewal proves nothing")
	holder.Term = 5
	read(c, 9, holder)
	g.Expect(c.hints.wrong).To(BeZero())
}

func TestOnlyAReadThatFailedOnThisConnectionDelaysTheNextHint(t *testing.T) {
	release := record.Record{Name: "a", Instance: "a.1", Attempt: "a.1.1", Released: time.Unix(1, 0), Successors: []string{"me"}}
	for _, reconnected := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			g := NewWithT(t)
			c := candidate()
			learn(c, 7, record.Record{Name: "a", Instance: "a.1", Attempt: "a.1.1"})
			beginRead(c)
			time.Sleep(time.Second)
			if reconnected {
				c.Notice(time.Now(), Reconnected{At: time.Now()})
			}
			time.Sleep(time.Second)
			c.Done(time.Now(), Result{Err: context.DeadlineExceeded, Failure: Timeout})
			notify(c, 8, release)
			g.Expect(c.readDue()).NotTo(BeZero())
			g.Expect(c.readDue().After(time.Now())).To(Equal(!reconnected))
		})
	}
}

func TestSourceIsNotStalledBecauseAReadIsOlderThanWhatItReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		c := candidate()
		c.hints.source = Republish
		holder := record.Record{Name: "a", Instance: "a.1", Attempt: "a.1.1"}
		learn(c, 7, holder)
		notify(c, 8, holder)
		learn(c, 7, holder) // its answer was on its way
		learn(c, 8, holder)
		learn(c, 8, holder)
		time.Sleep(2 * stalledAfter)
		c.checkStalled(time.Now())
		g.Expect(c.SourceOverdue()).To(BeFalse())
		learn(c, 9, holder)
		g.Expect(c.stalledAt()).To(Equal(time.Now().Add(stalledAfter)))
		time.Sleep(stalledAfter)
		c.checkStalled(time.Now())
		g.Expect(c.SourceOverdue()).To(BeTrue())
		notify(c, 9, holder)
		g.Expect(c.SourceOverdue()).To(BeFalse())
		g.Expect(c.stalledAt()).To(BeZero())
	})
}

func TestOnlyARenewalByTheKnownHolderIsTakenForOneUnparsed(t *testing.T) {
	holder := record.Record{Name: "a", Instance: "a.1", Attempt: "a.1.1", Term: 5, Priorities: []int{3, 0}, Metadata: map[string]string{"k": `"attempt":"x"`}}
	for name, test := range map[string]struct {
		change  func(r *record.Record)
		renewal bool
	}{
		"the next attempt":          {func(*record.Record) {}, true},
		"a release":                 {func(r *record.Record) { r.Released = time.Now() }, false},
		"another priority":          {func(r *record.Record) { r.Priorities = []int{4} }, false},
		"another term":              {func(r *record.Record) { r.Term = 6 }, false},
		"other metadata":            {func(r *record.Record) { r.Metadata = map[string]string{"k": "attempt"} }, false},
		"another instance":          {func(r *record.Record) { r.Instance = "a.2" }, false},
		"an attempt of odd letters": {func(r *record.Record) { r.Attempt = `a.1.2","released":"` }, false},
	} {
		for _, own := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, own: %v", name, own), func(t *testing.T) {
				g := NewWithT(t)
				c := candidate()
				holder := holder
				if learn(c, 7, holder); own {
					holder.Name, holder.Instance = "me", "me.1"
					c.wrote(time.Now(), 7, &holder)
				}
				notify(c, 8, holder)
				last := holder
				last.Attempt = "a.1.2"
				test.change(&last)
				fingerprint := fingerprintOf(last.Encode())
				g.Expect(fingerprint == c.hints.fingerprint).To(Equal(test.renewal))
				notify(c, 9, last)
				g.Expect(c.hints.hint != nil).To(Equal(!last.Renews(holder) || !last.Released.IsZero()))
				g.Expect(c.key.holder.priorities).To(Equal(last.Priorities))
				notify(c, 10, last)
				g.Expect(c.key.holder.priorities).To(Equal(last.Priorities))
			})
		}
	}
}

func TestRenewalByTheKnownHolderTakesNoMemory(t *testing.T) {
	g := NewWithT(t)
	c := candidate()
	holder := record.Record{Name: "a", Instance: "a.1", Attempt: "a.1.1", Term: 5}
	learn(c, 7, holder)
	value := holder.Encode()
	v := Value{Bytes: value, Revision: 8}
	n := Notification{Revision: 8, Value: &v}
	c.Notice(time.Now(), &n)
	g.Expect(testing.AllocsPerRun(100, func() {
		n.Revision++
		v = Value{Bytes: value, Revision: n.Revision}
		c.Notice(time.Now(), &n)
	})).To(BeZero())
	g.Expect(c.key.lastWrite.revision).To(Equal(n.Revision), "each was taken for a renewal")
}

// A leader tells the target of a transfer when it will have released the key. Anybody else may say so, too.
func TestAReleaseThatIsExpectedIsAHint(t *testing.T) {
	const after = 100 * time.Millisecond
	holder := record.Record{Name: "a", Instance: "a.1", Attempt: "a.1.1", Term: 5}
	release := holder
	release.Released, release.Successors = time.Unix(1, 0), []string{"me"}
	expect := func(c *Candidate, after time.Duration) {
		c.Notice(time.Now(), ReleaseExpected{At: time.Now().Add(after)})
	}
	announced := func(t *testing.T, then func(g *WithT, c *Candidate)) {
		synctest.Test(t, func(t *testing.T) {
			c := candidate()
			read(c, 7, holder)
			time.Sleep(c.bucket.TTL)
			waits(c)
			expect(c, after)
			then(NewWithT(t), c)
		})
	}
	t.Run("the key is read at that time", func(t *testing.T) {
		announced(t, func(g *WithT, c *Candidate) {
			g.Expect(time.Until(c.readDue())).To(Equal(after))
			g.Expect(woken(c)).To(BeFalse())
			time.Sleep(after)
			g.Expect(woken(c)).To(BeTrue(), "its loop is woken")
		})
	})
	t.Run("a notification that comes first has the key read at once, and once", func(t *testing.T) {
		announced(t, func(g *WithT, c *Candidate) {
			notify(c, 8, release)
			g.Expect(c.readDue()).To(Equal(time.Now()))
			read(c, 8, release)
			g.Expect(c.readDue()).To(BeZero())
		})
	})
	t.Run("a release that comes later is answered at once", func(t *testing.T) {
		announced(t, func(g *WithT, c *Candidate) {
			time.Sleep(after)
			read(c, 7, holder)
			notify(c, 8, release)
			g.Expect(c.readDue()).To(Equal(time.Now()))
		})
	})
	t.Run("a thousand that are forged cause a few reads, and then one per TTL", func(t *testing.T) {
		announced(t, func(g *WithT, c *Candidate) {
			began, reads := time.Now(), 0
			for range 1000 {
				expect(c, time.Millisecond)
				time.Sleep(c.bucket.TTL / 100)
				if at := c.readDue(); !at.IsZero() && !time.Now().Before(at) {
					read(c, 7, holder)
					reads++
				}
			}
			g.Expect(reads).To(BeNumerically("<=", maxWrongHints+int(time.Since(began)/c.bucket.TTL)))
			notify(c, 8, release)
			g.Expect(c.readDue()).To(Equal(time.Now()), "they do not delay the answer to a release")
		})
	})
}

// Without markers of expiries nothing but a read tells a candidate that renewals are forged.
func TestForgedRenewalsHideACrashForThreeTTLsAtMostWithoutMarkers(t *testing.T) {
	for name, marker := range map[string]time.Duration{"without markers": 0, "with markers": time.Second} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			began := time.Now()
			c, r := informed(began)
			c.bucket.MarkerTTL = marker
			c.waitAgain(began)
			forge := began
			var read time.Time
			for now := began; read.IsZero() && now.Before(began.Add(10*c.bucket.TTL)); now = now.Add(100 * time.Millisecond) {
				if now.Sub(forge) > c.bucket.TTL/4 {
					forge, r.Attempt = now, now.String()
					c.notified(now, &Notification{Revision: 8, Written: now, Value: &Value{Bytes: r.Encode(), Revision: 8}})
				}
				if op, _ := c.Next(now); op.Kind == Read {
					read = now
				} else if op.Kind == Wait && !op.Until.IsZero() && !now.Before(op.Until) {
					c.Done(now, Result{})
				}
			}
			if marker > 0 {
				g.Expect(read).To(BeZero(), "the marker of the expiry would be notified")
			} else {
				g.Expect(read.Sub(began)).To(BeNumerically("<=", 3*c.bucket.TTL))
			}
		})
	}
}
