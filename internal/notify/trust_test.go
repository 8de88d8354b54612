package notify

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/record"
)

// The reads that hints cause may lag, so that the hints seem wrong. The simulator found a follower that answered the next release late,
// though a campaign of its own had read by then what it had been notified of.
func TestHintsThatALaggingReplicaSeemedToContradictAreTrustedAgain(t *testing.T) {
	g := NewWithT(t)
	_, l := listener()
	l.wrong, l.next = maxWrongHints, time.Now().Add(time.Hour)
	holder := record.Record{Name: "a", Instance: "a.1", Attempt: "a.1.1"}
	read := func(revision uint64) {
		_, done := l.BeginRead()
		done(kv.State{Read: time.Now(), Revision: revision, Record: holder}, nil)
	}
	l.learn(kv.State{Read: time.Now(), Revision: 7, Record: holder})
	read(8)
	g.Expect(l.wrong).To(BeEquivalentTo(maxWrongHints), "a renewal proves nothing")
	holder.Term = 5
	read(9)
	g.Expect(l.wrong).To(BeZero())
}

func TestOnlyAReadThatFailedOnThisConnectionDelaysTheNextHint(t *testing.T) {
	release := record.Record{Name: "a", Instance: "a.1", Attempt: "a.1.1", Released: time.Unix(1, 0), Successors: []string{"me"}}
	for _, reconnected := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			g := NewWithT(t)
			n, l := listener()
			l.learn(kv.State{Read: time.Now(), Revision: 7, Record: record.Record{Name: "a", Instance: "a.1", Attempt: "a.1.1"}})
			_, done := l.BeginRead()
			time.Sleep(time.Second)
			if reconnected {
				now := time.Now()
				n.connected.Store(&now)
			}
			time.Sleep(time.Second)
			done(kv.State{}, context.DeadlineExceeded)
			n.notify("k", Change{Revision: 8}, release.Encode())
			g.Expect(l.ReadDue().After(time.Now())).To(Equal(!reconnected))
		})
	}
}

func TestSourceIsNotStalledBecauseAReadIsOlderThanWhatItReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		n, l := listener()
		source := Republish
		n.source.Store(&source)
		holder := record.Record{Name: "a", Instance: "a.1", Attempt: "a.1.1"}
		read := func(revision uint64) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.learn(kv.State{Read: time.Now(), Revision: revision, Record: holder})
		}
		read(7)
		n.notify("k", Change{Revision: 8}, holder.Encode())
		read(7) // its answer was on its way
		read(8)
		read(8)
		time.Sleep(2 * stalledAfter)
		l.CheckStalled()
		g.Expect(l.isStalled()).To(BeFalse())
		read(9)
		g.Expect(l.CheckStalled()).NotTo(BeZero())
	})
}

func TestOnlyARenewalByTheKnownHolderIsTakenForOneUnparsed(t *testing.T) {
	holder := record.Record{Name: "a", Instance: "a.1", Attempt: "a.1.1", Term: 5, Priorities: []int{3, 0}, Metadata: map[string]string{"k": `"attempt":"x"`}}
	for name, c := range map[string]struct {
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
				n, l := listener()
				holder := holder
				if l.learn(kv.State{Read: time.Now(), Revision: 7, Record: holder}); own {
					holder.Name, holder.Instance = "me", "me.1"
					l.Wrote(7, holder)
				}
				next := func(revision uint64, r record.Record) { n.notify("k", Change{Revision: revision}, r.Encode()) }
				next(8, holder)
				last := holder
				last.Attempt = "a.1.2"
				c.change(&last)
				g.Expect(formOf(last.Encode()) == l.renewal).To(Equal(c.renewal))
				next(9, last)
				g.Expect(l.hint != nil).To(Equal(!last.Renews(holder) || !last.Released.IsZero()))
				g.Expect(l.holder.priorities).To(Equal(last.Priorities))
				next(10, last)
				g.Expect(l.holder.priorities).To(Equal(last.Priorities))
			})
		}
	}
}

func TestRenewalByTheKnownHolderTakesNoMemory(t *testing.T) {
	g := NewWithT(t)
	n, l := listener()
	holder := record.Record{Name: "a", Instance: "a.1", Attempt: "a.1.1", Term: 5}
	l.learn(kv.State{Read: time.Now(), Revision: 7, Record: holder})
	value, revision := holder.Encode(), uint64(8)
	n.notify("k", Change{Revision: revision}, value)
	g.Expect(testing.AllocsPerRun(100, func() {
		revision++
		n.notify("k", Change{Revision: revision}, value)
	})).To(BeZero())
}

// A leader tells the target of a transfer when it will have released the key. Anybody else may say so, too.
func TestAReleaseThatIsExpectedIsAHint(t *testing.T) {
	const after = 100 * time.Millisecond
	holder := record.Record{Name: "a", Instance: "a.1", Attempt: "a.1.1", Term: 5}
	release := holder
	release.Released, release.Successors = time.Unix(1, 0), []string{"me"}
	announced := func(t *testing.T, then func(g *WithT, n *Notifier, l *Listener, read func(r record.Record, revision uint64))) {
		synctest.Test(t, func(t *testing.T) {
			n, l := listener()
			read := func(r record.Record, revision uint64) {
				_, done := l.BeginRead()
				done(kv.State{Read: time.Now(), Revision: revision, Record: r}, nil)
			}
			read(holder, 7)
			time.Sleep(l.TTL)
			l.ExpectRelease(time.Now().Add(after))
			then(NewWithT(t), n, l, read)
		})
	}
	t.Run("the key is read at that time", func(t *testing.T) {
		announced(t, func(g *WithT, _ *Notifier, l *Listener, _ func(record.Record, uint64)) {
			g.Expect(time.Until(l.ReadDue())).To(Equal(after))
			time.Sleep(after)
			synctest.Wait()
			g.Expect(l.Wake).To(HaveLen(1), "its loop is woken")
		})
	})
	t.Run("a notification that comes first has the key read at once, and once", func(t *testing.T) {
		announced(t, func(g *WithT, n *Notifier, l *Listener, read func(record.Record, uint64)) {
			n.notify("k", Change{Revision: 8}, release.Encode())
			g.Expect(l.ReadDue()).To(Equal(time.Now()))
			read(release, 8)
			g.Expect(l.ReadDue()).To(BeZero())
		})
	})
	t.Run("a release that comes later is answered at once", func(t *testing.T) {
		announced(t, func(g *WithT, n *Notifier, l *Listener, read func(record.Record, uint64)) {
			time.Sleep(after)
			read(holder, 7)
			n.notify("k", Change{Revision: 8}, release.Encode())
			g.Expect(l.ReadDue()).To(Equal(time.Now()))
		})
	})
	t.Run("a thousand that are forged cause a few reads, and then one per TTL", func(t *testing.T) {
		announced(t, func(g *WithT, n *Notifier, l *Listener, read func(record.Record, uint64)) {
			began, reads := time.Now(), 0
			for range 1000 {
				l.ExpectRelease(time.Now().Add(time.Millisecond))
				time.Sleep(l.TTL / 100)
				if at := l.ReadDue(); !at.IsZero() && !time.Now().Before(at) {
					read(holder, 7)
					reads++
				}
			}
			g.Expect(reads).To(BeNumerically("<=", maxWrongHints+int(time.Since(began)/l.TTL)))
			n.notify("k", Change{Revision: 8}, release.Encode())
			g.Expect(l.ReadDue()).To(Equal(time.Now()), "they do not delay the answer to a release")
		})
	})
}
