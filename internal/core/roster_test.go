package core

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/record"
)

func TestAttemptsOfStrangersTakeLittleMemory(t *testing.T) {
	g := NewWithT(t)
	c := candidate()
	c.recordAttempts(true)
	for i := range 3 * maxRoster {
		attempted(c, record.Parse(record.Record{Instance: fmt.Sprint(i), Attempt: "1", Name: strings.Repeat("x", 1000)}.Encode(), 0))
	}
	g.Expect(len(c.others.seen)).To(BeNumerically("<=", 4096))
	for instance, s := range c.others.seen {
		g.Expect(len(instance) + len(s.name)).To(BeNumerically("<", 500))
	}
}

func TestSuccessorsComeByPriorityAndThenLatestFirst(t *testing.T) {
	g := NewWithT(t)
	c := candidate()
	c.recordAttempts(true)
	for _, other := range []struct {
		name     string
		priority int
		notified bool
	}{{"old", 0, true}, {"high", 5, true}, {"not-notified", 9, false}, {"new", 0, true}, {"me.1", 0, true}} {
		attempted(c, record.Record{Instance: other.name, Name: other.name, Priority: other.priority, Notified: other.notified})
	}
	g.Expect(names(c.successors(time.Now(), nobody, known("before", "new")))).To(Equal([]string{"high", "new", "old", "before"}))
	g.Expect(names(c.successors(time.Now(), target("old"), nil))).To(Equal([]string{"old", "high", "new"}), "the target comes first")
	g.Expect(c.priorities(time.Now(), []int{7}, time.Now())).To(Equal([]int{7, 5, 0}))
	c.Order = ByChance
	g.Expect(c.successors(time.Now(), nobody, known("before"))).To(BeEmpty())
	g.Expect(names(c.successors(time.Now(), target("old"), nil))).To(Equal([]string{"old"}))
	g.Expect(c.queue()).To(BeEmpty())
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

func TestSuccessorsOfOneNameAreDistinguishedByTheirInstances(t *testing.T) {
	g := NewWithT(t)
	c := candidate()
	c.others.recording = true
	for _, instance := range []string{"me.2", "me.3"} {
		attempted(c, record.Record{Name: "me", Instance: instance, Attempt: instance + ".1", Notified: true})
	}
	id := func(instance string) record.Successor {
		return record.Successor{Name: "me", ID: record.QueueID(instance)}
	}
	before := []record.Successor{id("me.1"), id("me.4"), {Name: "me"}, {Name: "b", ID: "of b....."}}
	successors := c.successors(time.Now(), nobody, before)
	g.Expect(successors).To(ConsistOf(id("me.2"), id("me.3"), id("me.4"), record.Successor{Name: "b"}), "not this one itself")
	g.Expect(c.successors(time.Now(), id("me.4"), nil)[0]).To(Equal(id("me.4")))

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

func TestQueueIsInTheOrderOfArrival(t *testing.T) {
	g := NewWithT(t)
	c := candidate()
	c.Order = ByArrival
	c.recordAttempts(true)
	for _, name := range []string{"b", "a", "c", "b", "d"} { // b announces itself twice
		attempted(c, attempt(name))
		time.Sleep(time.Microsecond)
	}
	c.inherit(time.Now(), ids("y", "c", "me.1", "x"))
	g.Expect(c.queue()).To(Equal(ids("y", "c", "x", "b", "a", "d")), "those that the holder before knew come first")
	g.Expect(names(c.successors(time.Now(), target("b"), known("before")))).To(Equal([]string{"b"}))
	withdrawn, unnotified := attempt("a"), attempt("slow")
	withdrawn.Withdrawn, unnotified.Notified = true, false
	attempted(c, withdrawn)
	attempted(c, unnotified)
	g.Expect(c.queue()).To(Equal(ids("y", "c", "x", "b", "d")))
	for i := range 2 * record.MaxQueue {
		attempted(c, attempt(fmt.Sprint(i)))
	}
	g.Expect(c.queue()).To(HaveLen(record.MaxQueue))
}

func TestWhoHasNoPlaceInTheQueueAnnouncesItselfAgain(t *testing.T) {
	long := make([]string, record.MaxQueue)
	for i := range long {
		long[i] = fmt.Sprint("w", i)
	}
	for name, test := range map[string]struct {
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
			c := candidate()
			c.Order, c.hints.source = ByArrival, Watch
			announces := func() bool { return c.shouldAnnounce(time.Now(), true, 5) }
			g.Expect(announces()).To(BeTrue(), "it has not yet")
			g.Expect(announces()).To(BeFalse())
			release := attempt("x")
			release.Released, release.Queue = time.Now(), ids(test.queue...)
			c.changed(time.Now(), &change{Revision: 7, Record: release})
			c.changed(time.Now(), &change{Revision: 8, Record: attempt(test.winner)})
			g.Expect(announces()).To(Equal(test.again))
			c.changed(time.Now(), &change{Revision: 9, Record: attempt("y")})
			g.Expect(announces()).To(BeFalse(), "a change that follows no release says nothing")
		})
	}
}

func TestSuccessorIsOneThatIsSeenOfTheHighestPriority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		c := candidate()
		c.others.recording = true
		successor := func() string { return c.successor(time.Now()) }
		unnotified := attempt("u")
		unnotified.Notified = false
		attempted(c, unnotified)
		g.Expect(successor()).To(BeEmpty())
		attempted(c, attempt("a"))
		time.Sleep(announceInterval * c.bucket.TTL)
		attempted(c, attempt("b"))
		g.Expect(successor()).To(BeElementOf("a", "b"))
		time.Sleep(announceInterval*c.bucket.TTL + time.Second)
		g.Expect(successor()).To(Equal("b"), "the other has not announced itself twice")
		higher := attempt("h")
		higher.Priority = 1
		attempted(c, higher)
		g.Expect(successor()).To(Equal("h"))
		for _, order := range []Order{ByArrival, ByChance} {
			c.Order = order
			g.Expect(successor()).To(BeEmpty(), "nobody comes before others")
		}
	})
}

func TestSuccessorSeldomChanges(t *testing.T) {
	g := NewWithT(t)
	c := candidate()
	c.others.recording = true
	changes := 0
	for range 3 { // the second and the third time each announces itself again
		for i := range 1000 {
			before := c.successor(time.Now())
			attempted(c, attempt(fmt.Sprint("c", i)))
			if c.successor(time.Now()) != before {
				changes++
			}
		}
	}
	g.Expect(changes).To(BeNumerically("<", 30), "7 in the mean")
}

func TestElectionsOfTheSameProcessesHaveDifferentSuccessors(t *testing.T) {
	g := NewWithT(t)
	of := map[string]int{}
	for i := range 1000 {
		c := candidate()
		c.others.recording = true
		for _, process := range []string{"a", "b", "c"} {
			attempted(c, attempt(fmt.Sprint(process, i)))
		}
		of[c.successor(time.Now())[:1]]++
	}
	g.Expect(of).To(HaveLen(3))
	g.Expect(of).To(HaveEach(BeNumerically(">", 200)))
}
