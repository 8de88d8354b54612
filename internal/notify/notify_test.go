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
	n.connected.Store(&time.Time{})
	l := &Listener{
		Config: Config{
			Key: "k", Name: "me", Instance: "me.1", TTL: 10 * time.Second, Spread: time.Second, Wake: make(chan struct{}, 1), Log: slog.New(slog.DiscardHandler),
		},
		notifier: n,
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
			if size := len(strings.Join(names(l.Successors(record.Successor{}, []record.Successor{{Name: "b"}})), "")); size > record.MaxSuccessorBytes {
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
	}{{"old", 0, true}, {"high", 5, true}, {"not-notified", 9, false}, {"new", 0, true}, {"me.1", 0, true}} {
		l.attempted(record.Record{Instance: c.name, Name: c.name, Priority: c.priority, Notified: c.notified})
	}
	g.Expect(names(l.Successors(nobody, known("before", "new")))).To(Equal([]string{"high", "new", "old", "before"}))
	g.Expect(names(l.Successors(target("old"), nil))).To(Equal([]string{"old", "high", "new"}), "the target comes first")
	g.Expect(l.Priorities([]int{7}, time.Now())).To(Equal([]int{7, 5, 0}))
	l.Order = ByChance
	g.Expect(l.Successors(nobody, known("before"))).To(BeEmpty())
	g.Expect(names(l.Successors(target("old"), nil))).To(Equal([]string{"old"}))
	g.Expect(l.Queue()).To(BeEmpty())
}

// attempt is an attempt of the candidate of a name.
func attempt(name string) record.Record {
	return record.Record{Name: name, Instance: name, Attempt: name + ".1", Notified: true}
}

var nobody record.Successor

// target returns a successor as a transfer names it, when the instances of the tests are the names.
func target(name string) record.Successor {
	return record.Successor{Name: name, ID: record.QueueID(name)}
}

// known returns successors that were known before.
func known(names ...string) (successors []record.Successor) {
	for _, name := range names {
		successors = append(successors, target(name))
	}
	return successors
}

// names returns the names of successors.
func names(successors []record.Successor) (names []string) {
	for _, s := range successors {
		names = append(names, s.Name)
	}
	return names
}

func TestSuccessorsOfOneNameAreDistinguishedByTheirInstances(t *testing.T) {
	g := NewWithT(t)
	_, l := listener()
	l.roster.recording = true
	for _, instance := range []string{"me.2", "me.3"} {
		l.attempted(record.Record{Name: "me", Instance: instance, Attempt: instance + ".1", Notified: true})
	}
	id := func(instance string) record.Successor {
		return record.Successor{Name: "me", ID: record.QueueID(instance)}
	}
	before := []record.Successor{id("me.1"), id("me.4"), {Name: "me"}, {Name: "b", ID: "of b....."}}
	successors := l.Successors(nobody, before)
	g.Expect(successors).To(ConsistOf(id("me.2"), id("me.3"), id("me.4"), record.Successor{Name: "b"}), "not this one itself")
	g.Expect(l.Successors(id("me.4"), nil)[0]).To(Equal(id("me.4")))

	var r record.Record
	r.SetSuccessors(successors)
	place, named := r.Place("me", "me.3")
	g.Expect(named).To(BeTrue())
	g.Expect(r.Named()[place]).To(Equal(id("me.3")))
	_, named = r.Place("me", "me.1")
	g.Expect(named).To(BeFalse())
	place, named = r.Place("b", "any")
	g.Expect(named).To(BeTrue(), "it may have been started again, as another instance")
	g.Expect(place).To(Equal(3))
}

// ids returns the ids of candidates in a queue.
func ids(names ...string) (ids []string) {
	for _, name := range names {
		ids = append(ids, record.QueueID(name))
	}
	return ids
}

func TestQueueIsInTheOrderOfArrival(t *testing.T) {
	g := NewWithT(t)
	_, l := listener()
	l.Order = ByArrival
	l.RecordAttempts(true)
	for _, name := range []string{"b", "a", "c", "b", "d"} { // b announces itself twice
		l.attempted(attempt(name))
		time.Sleep(time.Microsecond)
	}
	l.Inherit(ids("y", "c", "me.1", "x"))
	g.Expect(l.Queue()).To(Equal(ids("y", "c", "x", "b", "a", "d")), "those that the holder before knew come first")
	g.Expect(names(l.Successors(target("b"), known("before")))).To(Equal([]string{"b"}))
	withdrawn, unnotified := attempt("a"), attempt("slow")
	withdrawn.Withdrawn, unnotified.Notified = true, false
	l.attempted(withdrawn)
	l.attempted(unnotified)
	g.Expect(l.Queue()).To(Equal(ids("y", "c", "x", "b", "d")))
	for i := range 2 * record.MaxQueue {
		l.attempted(attempt(fmt.Sprint(i)))
	}
	g.Expect(l.Queue()).To(HaveLen(record.MaxQueue))
}

func TestWhoHasNoPlaceInTheQueueAnnouncesItselfAgain(t *testing.T) {
	long := make([]string, record.MaxQueue)
	for i := range long {
		long[i] = fmt.Sprint("w", i)
	}
	for name, c := range map[string]struct {
		queue  []string
		winner string
		again  bool
	}{
		"it misses its turn":      {[]string{"me.1", "a"}, "a", true},
		"its turn is later":       {[]string{"a", "b", "me.1"}, "b", false},
		"it is not listed":        {[]string{"a", "b"}, "a", true},
		"the queue is too long":   {long, "w0", false},
		"the winner comes after":  {[]string{"a", "me.1"}, "late", true},
		"it has the lock":         {[]string{"me.1"}, "me.1", false},
		"nobody else is expected": {nil, "a", true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			_, l := listener()
			l.Order = ByArrival
			use := Watch
			l.notifier.source.Store(&use)
			g.Expect(l.ShouldAnnounce(true, 5)).To(BeTrue(), "it has not yet")
			g.Expect(l.ShouldAnnounce(true, 5)).To(BeFalse())
			release := attempt("x")
			release.Released, release.Queue = time.Now(), ids(c.queue...)
			l.notify(Change{Revision: 7, Record: release})
			l.notify(Change{Revision: 8, Record: attempt(c.winner)})
			g.Expect(l.ShouldAnnounce(true, 5)).To(Equal(c.again))
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
	l.Name, release.Queue = "d", ids("x", "d.1")
	l.Instance = "d.1"
	g.Expect(l.delay(release)).To(Equal(575*time.Millisecond), "who waits in the queue comes after the successors")
	l.Instance = "d.2"
	for range 100 {
		g.Expect(l.delay(release)).To(And(BeNumerically(">=", 600*time.Millisecond), BeNumerically("<", 625*time.Millisecond)))
	}
}

func TestRenewalsReportThePrioritiesOfTheCandidates(t *testing.T) {
	g := NewWithT(t)
	_, l := listener()
	holder := record.Record{Name: "a", Instance: "a.1", Attempt: "a.1.1", Term: 1}
	l.learn(kv.State{Read: time.Now(), Revision: 7, Record: holder})
	holder.Priorities = []int{3, 0}
	l.notify(Change{Revision: 8, Record: holder})
	for range 100 {
		g.Expect(l.delay(l.holder.record())).To(And(BeNumerically(">=", l.Spread/2), BeNumerically("<", l.Spread)), "the second half of the spread")
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
