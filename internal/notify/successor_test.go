package notify

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/record"
)

func TestSuccessorOfTheLastRenewalAnswersACrashBeforeAllOthers(t *testing.T) {
	g := NewWithT(t)
	_, l := listener()
	holder := record.Record{Name: "a", Instance: "a.1", Attempt: "a.1.1", Term: 1, Priorities: []int{3, 0}}
	l.learn(kv.State{Read: time.Now(), Revision: 7, Record: holder})
	holder.Successor = "me.1"
	l.notify(Change{Revision: 8, Record: holder})
	g.Expect(l.delay(l.holder.record())).To(BeZero())
	holder.Successor = "b.1"
	l.notify(Change{Revision: 9, Record: holder})
	for range 100 {
		g.Expect(l.delay(l.holder.record())).To(And(BeNumerically(">=", (l.Spread+HeadStart)/2), BeNumerically("<", l.Spread)), "the second half of what is left")
	}
}

func TestSuccessorIsOneThatIsSeenOfTheHighestPriority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		_, l := listener()
		l.roster.recording = true
		unnotified := attempt("u")
		unnotified.Notified = false
		l.attempted(unnotified)
		g.Expect(l.Successor()).To(BeEmpty())
		l.attempted(attempt("a"))
		time.Sleep(announceInterval * l.TTL)
		l.attempted(attempt("b"))
		g.Expect(l.Successor()).To(BeElementOf("a", "b"))
		time.Sleep(announceInterval*l.TTL + time.Second)
		g.Expect(l.Successor()).To(Equal("b"), "the other has not announced itself twice")
		higher := attempt("h")
		higher.Priority = 1
		l.attempted(higher)
		g.Expect(l.Successor()).To(Equal("h"))
		for _, order := range []Order{ByArrival, ByChance} {
			l.Order = order
			g.Expect(l.Successor()).To(BeEmpty(), "nobody comes before others")
		}
	})
}

func TestSuccessorSeldomChanges(t *testing.T) {
	g := NewWithT(t)
	_, l := listener()
	l.roster.recording = true
	changes := 0
	for range 3 { // the second and the third time each announces itself again
		for i := range 1000 {
			before := l.Successor()
			l.attempted(attempt(fmt.Sprint("c", i)))
			if l.Successor() != before {
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
		_, l := listener()
		l.roster.recording = true
		for _, process := range []string{"a", "b", "c"} {
			l.attempted(attempt(fmt.Sprint(process, i)))
		}
		of[l.Successor()[:1]]++
	}
	g.Expect(of).To(HaveLen(3))
	g.Expect(of).To(HaveEach(BeNumerically(">", 200)))
}

// All candidates receive the notification of a release. Were they all awake at once, the one that the release names would wait its turn for
// the processors of a host with many of them.
func TestAReleaseWakesACandidateWhenItIsItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		n, l := listener()
		holder := record.Record{Name: "a", Instance: "a.1", Attempt: "a.1.1", Term: 1}
		l.learn(kv.State{Read: time.Now(), Revision: 7, Record: holder})
		woken := func() bool {
			synctest.Wait()
			return len(l.Wake) > 0
		}
		release := holder
		release.Released, release.Successors = time.Unix(1, 0), []string{"b", "me"}
		n.notify("k", Change{Revision: 8}, release.Encode())
		g.Expect(woken()).To(BeFalse(), "it is the turn of b")
		time.Sleep(HeadStart)
		g.Expect(woken()).To(BeTrue())
		l.Wake = make(chan struct{}, 1)

		release.Successors = []string{"me", "b"}
		n.notify("k", Change{Revision: 9}, release.Encode())
		g.Expect(woken()).To(BeTrue())
		l.Wake = make(chan struct{}, 1)
		_, done := l.BeginRead()
		done(kv.State{Read: time.Now(), Revision: 9, Record: release}, nil)

		release.Successors = []string{"b", "me"}
		n.notify("k", Change{Revision: 10}, release.Encode())
		n.notify("k", Change{Revision: 11}, record.Record{Name: "b", Instance: "b.1", Attempt: "b.1.1"}.Encode())
		due := l.ReadDue()
		for time.Now().Before(due) {
			g.Expect(woken()).To(BeFalse(), "b was quicker, and what b writes next is waited for")
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Millisecond)
		g.Expect(woken()).To(BeTrue())
	})
}
