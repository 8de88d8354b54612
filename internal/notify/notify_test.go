package notify

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/record"
)

// named is a bucket that has no more than a name.
type named struct{ jetstream.KeyValue }

func (named) Bucket() string { return "B" }

// listener returns the listener of a candidate "me" for the key "k", and its notifier.
func listener() (*Notifier, *Listener) {
	created := time.Unix(0, 0)
	n := &Notifier{bucket: kv.With(named{}, nil), remake: make(chan struct{}, 1), stalled: make(chan struct{}, 1)}
	n.created.Store(&created)
	l := &Listener{
		Config:   Config{Key: "k", Name: "me", Instance: "me.1", TTL: 10 * time.Second, Spread: time.Second, Log: slog.New(slog.DiscardHandler)},
		notifier: n, news: make(chan struct{}, 1),
	}
	n.listeners = map[string][]*Listener{"k": {l}}
	return n, l
}

// FuzzNotification handles what anybody may publish where the server republishes changes, or as an attempt.
func FuzzNotification(f *testing.F) {
	const subject = "$KV.B.k"
	value := []byte(`{"name":"a","instance":"i","attempt":"i.1"}`)
	f.Add(subject, "1", "2026-01-01T00:00:00Z", "", "", value)
	f.Add(subject, "2", "", "MaxAge", "", []byte{})
	f.Add(subject, "18446744073709551615", "x", "", "DEL", value)
	f.Add("$KV.C.k", "-1", "", "", "", value)
	f.Add(subject, "3", "", "", "", []byte(`{"name":"a","instance":"i","attempt":"i.1","released":"2026-01-01T00:00:00Z","successors":["me"]}`))
	f.Fuzz(func(t *testing.T, subject, sequence, stamp, reason, operation string, data []byte) {
		n, l := listener()
		l.RecordAttempts(true)
		m := nats.NewMsg("election.B.x." + subject)
		for name, value := range map[string]string{
			"Nats-Subject": subject, "Nats-Sequence": sequence, "Nats-Time-Stamp": stamp, "Nats-Marker-Reason": reason, "KV-Operation": operation,
		} {
			if value != "" {
				m.Header.Set(name, value)
			}
		}
		m.Data = data
		for range 2 {
			n.republished(m)
			l.attempted(record.Parse(data, 0))
			if at := l.ReadDue(); at.After(time.Now().Add(2 * l.TTL)) {
				t.Errorf("reads the key at %v", at)
			}
			due := time.Now().Add(time.Second)
			if at := l.NextCampaign(due, due.Add(time.Hour), true); !at.Equal(due) {
				t.Errorf("a notification moves the next campaign to %v", at)
			}
			if size := len(strings.Join(l.Successors("", []string{"b"}), "")); size > record.MaxSuccessorBytes {
				t.Errorf("successors of %d bytes", size)
			}
			if n := len(l.Priorities(nil, time.Now())); n > record.MaxPriorities {
				t.Errorf("%d priorities", n)
			}
		}
	})
}

func TestAttemptsOfStrangersTakeLittleMemory(t *testing.T) {
	g := NewWithT(t)
	_, l := listener()
	l.RecordAttempts(true)
	for i := range 3 * maxRoster {
		l.attempted(record.Parse(record.Record{Instance: fmt.Sprint(i), Attempt: "1", Name: strings.Repeat("x", 1000)}.Encode(), 0))
	}
	g.Expect(len(l.roster.seen)).To(BeNumerically("<=", 4096))
	for instance, s := range l.roster.seen {
		g.Expect(len(instance) + len(s.name)).To(BeNumerically("<", 500))
	}
}

func TestSuccessorsComeByPriorityAndThenLatestFirst(t *testing.T) {
	g := NewWithT(t)
	_, l := listener()
	l.RecordAttempts(true)
	for _, c := range []struct {
		name     string
		priority int
		notified bool
	}{{"old", 0, true}, {"high", 5, true}, {"not-notified", 9, false}, {"new", 0, true}, {"me", 0, true}} {
		l.attempted(record.Record{Instance: c.name, Name: c.name, Priority: c.priority, Notified: c.notified})
	}
	g.Expect(l.Successors("", []string{"before", "new"})).To(Equal([]string{"high", "new", "old", "before"}))
	g.Expect(l.Successors("old", nil)).To(Equal([]string{"old", "high", "new"}), "the target comes first")
	g.Expect(l.Priorities([]int{7}, time.Now())).To(Equal([]int{7, 5, 0}))
	l.Order = ByChance
	g.Expect(l.Successors("", []string{"before"})).To(BeEmpty())
	g.Expect(l.Successors("old", nil)).To(Equal([]string{"old"}))
	g.Expect(l.Waiting()).To(BeZero())
}

// attempt is an attempt of the candidate of a name.
func attempt(name string) record.Record {
	return record.Record{Name: name, Instance: name, Attempt: name + ".1", Notified: true}
}

// released is the release of a lock by the candidate of a name, which knows how many others wait, and names the first of them.
func released(by string, waiting int, first ...string) record.Record {
	r := attempt(by)
	r.Released, r.Waiting, r.Successors = time.Now(), waiting, first
	return r
}

func TestQueueIsInTheOrderOfArrival(t *testing.T) {
	g := NewWithT(t)
	_, l := listener()
	l.Order = ByArrival
	l.RecordAttempts(false)
	for _, name := range []string{"b", "a", "c", "b", "d"} { // b announces itself twice
		l.attempted(attempt(name))
		time.Sleep(time.Microsecond)
	}
	first := attempt("urgent")
	first.Priority = 1
	l.attempted(first)
	g.Expect(l.Successors("", []string{"before"})).To(Equal([]string{"urgent", "b", "a", "c", "d"}))
	g.Expect(l.Waiting()).To(Equal(5))

	withdrawn, renewal := attempt("a"), attempt("c")
	withdrawn.Withdrawn, renewal.Term = true, 7
	l.attempted(withdrawn)
	l.attempted(renewal)
	l.notify(Change{Revision: 9, Record: attempt("d")})
	g.Expect(l.Successors("", nil)).To(Equal([]string{"urgent", "b"}), "who gave up, or has the lock, does not wait")
	l.attempted(released("b", 0))
	g.Expect(l.Successors("", nil)).To(Equal([]string{"urgent"}))
}

func TestWhoMissesItsTurnQueuesAgain(t *testing.T) {
	queue := func(g *WithT) *Listener {
		_, l := listener()
		l.Order = ByArrival
		use := Watch
		l.notifier.source.Store(&use)
		l.RecordAttempts(false)
		for _, name := range []string{"a", "b", "c"} {
			l.attempted(attempt(name))
			time.Sleep(time.Microsecond)
		}
		g.Expect(l.ShouldAnnounce(true, 5)).To(BeTrue(), "it has not yet")
		g.Expect(l.ShouldAnnounce(true, 5)).To(BeFalse())
		return l
	}
	for name, c := range map[string]struct {
		release record.Record
		winner  string
		again   bool
		left    []string
	}{
		"it is named first":                 {released("x", 4, "me", "a", "b", "c"), "a", true, []string{"b", "c"}},
		"it comes after the winner":         {released("x", 4, "a", "b", "me", "c"), "b", false, []string{"c"}},
		"it is not known":                   {released("x", 3, "a", "b", "c"), "a", true, []string{"b", "c"}},
		"it may come after those named":     {released("x", 4, "a", "b", "c"), "a", false, []string{"b", "c"}},
		"the winner is not named":           {released("x", 3, "a", "b", "me"), "late", true, []string{"c"}},
		"the winner is the one that it was": {released("x", 1, "me"), "me", false, []string{"a", "b", "c"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			l := queue(g)
			l.notify(Change{Revision: 7, Record: c.release})
			l.notify(Change{Revision: 8, Record: attempt(c.winner)})
			g.Expect(l.ShouldAnnounce(true, 5)).To(Equal(c.again))
			g.Expect(l.Successors("", nil)).To(Equal(c.left))
			l.notify(Change{Revision: 9, Record: attempt("y")})
			g.Expect(l.ShouldAnnounce(true, 5)).To(BeFalse(), "a change that follows no release says nothing")
		})
	}
}

func TestEachSuccessorHasItsTurnAndAllOthersComeAfterThem(t *testing.T) {
	g := NewWithT(t)
	_, l := listener()
	release := record.Record{Released: time.Now(), Successors: []string{"a", "b", "c"}, HeadStartMs: 500}
	for name, delay := range map[string]time.Duration{"a": 0, "b": 500 * time.Millisecond, "c": 525 * time.Millisecond} {
		l.Name = name
		g.Expect(l.delay(release)).To(Equal(delay), name)
	}
	l.Name = "d"
	for range 100 {
		g.Expect(l.delay(release)).To(And(BeNumerically(">=", 550*time.Millisecond), BeNumerically("<", 575*time.Millisecond)))
	}
}

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
	g.Expect(l.wrong).To(Equal(maxWrongHints), "a renewal proves nothing")
	holder.Term = 5
	read(9)
	g.Expect(l.wrong).To(BeZero())
}

func TestRenewalsReportThePrioritiesOfTheCandidates(t *testing.T) {
	g := NewWithT(t)
	_, l := listener()
	holder := record.Record{Name: "a", Instance: "a.1", Attempt: "a.1.1", Term: 1}
	l.learn(kv.State{Read: time.Now(), Revision: 7, Record: holder})
	holder.Priorities = []int{3, 0}
	l.notify(Change{Revision: 8, Record: holder})
	for range 100 {
		g.Expect(l.delay(l.predecessor)).To(And(BeNumerically(">=", l.Spread/2), BeNumerically("<", l.Spread)), "the second half of the spread")
	}
}

// The simulator found it: a candidate read a replica that lagged, then the release was purged, and the candidate led at once.
func TestStandDownThatAReleasePassesOnOutlastsAStaleRead(t *testing.T) {
	g := NewWithT(t)
	_, l := listener()
	holder := record.Record{Name: "a", Instance: "a.1", Attempt: "a.1.1"}
	release := holder
	release.Released, release.StandDownMs = time.Now(), 700
	l.notify(Change{Revision: 8, Record: release})
	l.learn(kv.State{Read: time.Now(), Revision: 7, Record: holder})
	_, left := l.Past()
	g.Expect(left).To(Equal(700 * time.Millisecond))
	l.notify(Change{Revision: 9, Removal: kv.Removed})
	removed, left := l.Past()
	g.Expect(removed).To(BeEquivalentTo(9))
	g.Expect(left).To(Equal(700 * time.Millisecond))
	l.learn(kv.State{Read: time.Now(), Revision: 10, Record: holder})
	removed, left = l.Past()
	g.Expect(removed).To(BeZero())
	g.Expect(left).To(BeZero())
}
