package observe_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/admin"
	"github.com/natscampaign/election/internal/control"
	"github.com/natscampaign/election/internal/test/sessiontest"
	"github.com/natscampaign/election/observe"
)

// eventsOf collects the events of a bucket for sessions but renewals, in words. It returns what came since the last call.
func eventsOf(f *sessiontest.Fixture, keys ...string) (next func() []string) {
	f.Helper()
	o, err := observe.New(f.Bucket)
	f.Expect(err).NotTo(HaveOccurred())
	events, err := o.Observe(f.Context(), keys...)
	f.Expect(err).NotTo(HaveOccurred())
	time.Sleep(time.Millisecond) // the current state has come
	return func() (all []string) {
		for {
			select {
			case e := <-events:
				if e.Kind != observe.Renewed {
					all = append(all, fmt.Sprintf("%s %s %s %s", e.Leader.Name, e.Kind, e.Key, e.Reason))
				}
			case <-time.After(time.Second):
				return all
			}
		}
	}
}

func TestKeysOfSessionsAreReadAsThoseOfElections(t *testing.T) {
	sessiontest.Run(t, func(f *sessiontest.Fixture) {
		o, err := observe.New(f.Bucket)
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(o.Leaders(f.Context())).To(BeEmpty())
		a := f.Open("a").Start("one", "x.two")
		f.Open("b").Start("three")
		time.Sleep(sessiontest.TTL)
		leaders, err := o.Leaders(f.Context())
		f.Expect(err).NotTo(HaveOccurred())
		var names []string
		for _, l := range leaders {
			names = append(names, l.Key+" "+l.Name)
		}
		f.Expect(names).To(Equal([]string{"one a", "three b", "x.two a"}))
		l, err := o.Leader(f.Context(), "one")
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(l).To(Equal(leaders[0]))
		f.Expect(l.Instance).To(Equal(a.Status().ID))
		f.Expect(l.State).To(Equal(election.LeaderState))
		f.Expect([]any{l.Host != "", l.PID > 0, l.Interval > 0}).To(Equal([]any{true, true, true}))
		f.Expect(l.Term).To(Equal(l.Revision))
		f.Expect(time.Since(l.Since)).To(BeNumerically(">", sessiontest.TTL))
		f.Expect(time.Since(l.Renewed)).To(BeNumerically("<", sessiontest.TTL/3), "by the session")
		f.Expect(l.Expires).To(Equal(l.Renewed.Add(sessiontest.TTL)))
		_, err = o.Leader(f.Context(), "other")
		f.Expect(err).To(MatchError(election.ErrNoLeader))
	})
}

func TestObserverReportsHowSessionsGetAndLoseKeys(t *testing.T) {
	sessiontest.Run(t, func(f *sessiontest.Fixture) {
		next := eventsOf(f, "k")
		a := f.Open("a").Start("k", "unobserved")
		f.Expect(next()).To(Equal([]string{"a elected k vacant", "a leading k "}))
		f.Expect(eventsOf(f)()).To(ConsistOf("a leading k ", "a leading unobserved "), "without the key settled and the sessions")
		b := f.Open("b").Start("k")
		for _, p := range []*sessiontest.Process{a, b} {
			p.Link.DelayReplies(10 * time.Millisecond) // so that an observer is delivered each release before the next claim replaces it
		}
		operator, err := admin.New(f.Bucket)
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(operator.Transfer(f.Context(), "k", "b")).To(Succeed())
		f.Expect(next()).To(Equal([]string{"a released k transferred", "b elected k released", "b leading k "}))
		time.Sleep(sessiontest.TTL) // who has resigned does not campaign at once
		f.Expect(b.Close(f.Context())).To(Succeed())
		f.Expect(next()).To(Equal([]string{"b released k stopped", "a elected k released", "a leading k "}))

		f.Open("c").Start("k")
		time.Sleep(sessiontest.TTL)
		a.Link.Cut()
		time.Sleep(2 * sessiontest.TTL)
		f.Expect(next()).To(Equal([]string{"a expired k lapsed", "c elected k lapsed", "c leading k "}))
	})
}

func TestNobodyLeadsOnceTheLeaseOfTheLastSessionIsOver(t *testing.T) {
	sessiontest.Run(t, func(f *sessiontest.Fixture) {
		o, err := observe.New(f.Bucket)
		f.Expect(err).NotTo(HaveOccurred())
		next := eventsOf(f)
		a := f.Open("a").Start("k")
		f.Expect(next()).To(HaveLen(2))
		a.Link.Cut()
		time.Sleep(sessiontest.TTL / 2)
		f.Expect(o.Leaders(f.Context())).To(HaveLen(1))
		time.Sleep(sessiontest.TTL)
		f.Expect(o.Leaders(f.Context())).To(BeEmpty(), "though nobody closed the session, which is stored still")
		_, err = o.Leader(f.Context(), "k")
		f.Expect(err).To(MatchError(election.ErrNoLeader))
		f.Expect(next()).To(Equal([]string{"a expired k "}))
		time.Sleep(10 * sessiontest.TTL)
		f.Expect(o.Leaders(f.Context())).To(BeEmpty(), "though the claim is stored for ever")
		f.Expect(next()).To(BeEmpty())
	})
}

func TestObserverThatIsCutOffReportsNoEnd(t *testing.T) {
	sessiontest.Run(t, func(f *sessiontest.Fixture) {
		l := f.Server.Link(f.T)
		f.Open("a").Start("k")
		bucket := f.OpenBucket(l)
		o, err := observe.New(bucket)
		f.Expect(err).NotTo(HaveOccurred())
		events, err := o.Observe(f.Context())
		f.Expect(err).NotTo(HaveOccurred())
		time.Sleep(time.Second)
		l.Cut()
		time.Sleep(5 * sessiontest.TTL)
		l.Heal()
		time.Sleep(sessiontest.TTL)
		for {
			select {
			case e := <-events:
				f.Expect(e.Kind).To(BeElementOf(observe.Leading, observe.Renewed))
				continue
			case <-time.After(time.Second):
			}
			break
		}
	})
}

func TestHowTheLastTermOfAKeyOfASessionEndedIsKnown(t *testing.T) {
	sessiontest.Run(t, func(f *sessiontest.Fixture) {
		o, err := observe.New(f.Bucket)
		f.Expect(err).NotTo(HaveOccurred())
		operator, err := admin.New(f.Bucket)
		f.Expect(err).NotTo(HaveOccurred())
		ended := func(keys ...string) (all []string) {
			events, err := o.Ended(context.Background(), keys...)
			f.Expect(err).NotTo(HaveOccurred())
			for _, e := range events {
				all = append(all, fmt.Sprintf("%s %s %q led:%v %s by %q", e.Key, e.Kind, e.Leader.Name, !e.Leader.LeadsSince.IsZero() || e.Leader.Term > 0, e.Reason, e.By))
			}
			return all
		}
		a := f.Open("a").Start("closed")
		b := f.Open("b").Start("crashed")
		c := f.Open("c").Start("evicted", "resigned")
		f.Expect(ended()).To(BeEmpty())
		f.Expect(operator.Resign(f.Context(), "resigned")).To(Succeed())
		f.Expect(a.Close(f.Context())).To(Succeed())
		b.Link.Cut()
		c.Link.Cut()
		l, err := operator.Evict(f.Context(), "evicted")
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(l.Name).To(Equal("c"))
		time.Sleep(sessiontest.TTL + time.Second)
		f.Expect(ended()).To(Equal([]string{
			`closed released "a" led:true stopped by ""`,
			`crashed expired "b" led:true  by ""`,
			`evicted evicted "c" led:true deleted by "` + control.Operator() + `"`,
			`resigned released "c" led:true resigned by ""`,
		}))
		f.Expect(ended("crashed", "never")).To(HaveLen(1))
	})
}
