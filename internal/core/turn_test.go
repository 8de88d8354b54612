package core

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/record"
)

func TestTheFirstTwoSuccessorsHaveTheirTurnAndAllOthersComeAfterThem(t *testing.T) {
	g := NewWithT(t)
	c := candidate()
	release := record.Record{Released: time.Now(), Successors: []string{"a", "b", "c"}, HeadStartMs: 500}
	for name, delay := range map[string]time.Duration{"a": 0, "b": 500 * time.Millisecond} {
		c.Name = name
		g.Expect(c.bidDelay(&release)).To(Equal(delay), name)
	}
	for _, name := range []string{"c", "d"} {
		c.Name = name
		for range 100 {
			g.Expect(c.bidDelay(&release)).To(And(BeNumerically(">=", 525*time.Millisecond), BeNumerically("<", 550*time.Millisecond)), name)
		}
	}
}

// Somebody may have filled the queue of a lock with waiters that do not exist.
func TestWaitersAnswerInTheirOrderOnceTheFirstTwoHaveNot(t *testing.T) {
	g := NewWithT(t)
	c := candidate()
	release := record.Record{Released: time.Now(), HeadStartMs: waiterHeadStart.Milliseconds()}
	for i := range record.MaxQueue {
		release.Queue = append(release.Queue, record.QueueID(fmt.Sprint("w", i)))
	}
	var last time.Duration
	soon := 0
	for i := range record.MaxQueue {
		c.Instance = fmt.Sprint("w", i)
		delay := c.bidDelay(&release)
		g.Expect(delay).To(BeNumerically(">=", last), c.Instance)
		if last = delay; delay < waiterHeadStart+queueSpread+queueSpread/2 {
			soon++
		}
	}
	g.Expect(soon).To(BeNumerically("<=", record.MaxQueue/8), "few of them try before one has won that is there")
	c.Instance = "not listed"
	for range 100 {
		g.Expect(c.bidDelay(&release)).To(And(BeNumerically(">=", last), BeNumerically("<", 75*time.Millisecond)))
	}
}

func TestRenewalsReportThePrioritiesOfTheCandidates(t *testing.T) {
	g := NewWithT(t)
	c := candidate()
	holder := record.Record{Name: "a", Instance: "a.1", Attempt: "a.1.1", Term: 1}
	learn(c, 7, holder)
	holder.Priorities = []int{3, 0}
	c.changed(time.Now(), &change{Revision: 8, Record: holder})
	spread := c.bucket.Spread()
	for range 100 {
		g.Expect(delay(c)).To(And(BeNumerically(">=", spread/2), BeNumerically("<", spread)), "the second half of the spread")
	}
}

func TestCandidateWhosePriorityTheLeaderDidNotSeeAnswersWithinTheSpread(t *testing.T) {
	g := NewWithT(t)
	c := candidate() // of priority 0
	release := record.Record{Released: time.Now(), Priorities: []int{1}}
	for range 100 {
		g.Expect(c.bidDelay(&release)).To(And(BeNumerically(">=", ShortSpread/2), BeNumerically("<", ShortSpread)))
	}
}

func TestSuccessorOfTheLastRenewalAnswersACrashBeforeAllOthers(t *testing.T) {
	g := NewWithT(t)
	c := candidate()
	holder := record.Record{Name: "a", Instance: "a.1", Attempt: "a.1.1", Term: 1, Priorities: []int{3, 0}}
	learn(c, 7, holder)
	holder.Successor = "me.1"
	c.changed(time.Now(), &change{Revision: 8, Record: holder})
	g.Expect(delay(c)).To(BeZero())
	holder.Successor = "b.1"
	c.changed(time.Now(), &change{Revision: 9, Record: holder})
	spread := c.bucket.Spread()
	for range 100 {
		g.Expect(delay(c)).To(And(BeNumerically(">=", (spread+HeadStart)/2), BeNumerically("<", spread)), "the second half of what is left")
	}
}

// All candidates receive the notification of a release. Were they all awake at once, the one that the release names would wait its turn for
// the processors of a host with many of them.
func TestAReleaseWakesACandidateWhenItIsItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		c := candidate()
		holder := record.Record{Name: "a", Instance: "a.1", Attempt: "a.1.1", Term: 1}
		learn(c, 7, holder)
		waits(c)
		g.Expect(woken(c)).To(BeFalse())
		release := holder
		release.Released, release.Successors = time.Unix(1, 0), []string{"b", "me"}
		notify(c, 8, release)
		g.Expect(woken(c)).To(BeFalse(), "it is the turn of b")
		time.Sleep(HeadStart - 1)
		g.Expect(woken(c)).To(BeFalse(), "it still is")
		time.Sleep(time.Nanosecond)
		g.Expect(woken(c)).To(BeTrue())
		read(c, 8, release)
		waits(c)
		g.Expect(woken(c)).To(BeFalse(), "it has done so")

		release.Successors = []string{"me", "b"}
		notify(c, 9, release)
		g.Expect(woken(c)).To(BeTrue())
		read(c, 9, release)
		waits(c)
		g.Expect(woken(c)).To(BeFalse(), "it has done so")

		release.Successors = []string{"b", "me"}
		notify(c, 10, release)
		notify(c, 11, record.Record{Name: "b", Instance: "b.1", Attempt: "b.1.1"})
		due := c.readDue()
		g.Expect(due.After(time.Now())).To(BeTrue())
		for time.Now().Before(due) {
			g.Expect(woken(c)).To(BeFalse(), "b was quicker, and what b writes next is waited for")
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Millisecond)
		g.Expect(woken(c)).To(BeTrue())
	})
}
