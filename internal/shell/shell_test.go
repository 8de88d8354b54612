package shell

import (
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/core"
	"github.com/natscampaign/election/internal/lease"
	"github.com/natscampaign/election/internal/timing"
)

// driver notes what a shell says.
type driver struct {
	shown *Term
	calls int
	woken time.Time
}

func (d *driver) NewTerm(t *core.Term) *Term { return &Term{Core: t, Driver: &termDriver{}} }
func (d *driver) Show(t *Term)               { d.shown = t }
func (d *driver) StartCalls()                { d.calls++ }
func (d *driver) Wake(at time.Time)          { d.woken = at }

// termDriver notes what a shell says of a term.
type termDriver struct {
	expires time.Duration
	ended   bool
	works   bool
}

func (d *termDriver) Expire(in time.Duration) { d.expires = in }
func (d *termDriver) EndContext()             { d.ended = true }
func (d *termDriver) StartWork()              { d.works = true }

// term returns a term whose lease lasts for so long.
func term(now time.Time, state core.State, left time.Duration) *Term {
	l := &core.Lease{Timing: &timing.Timing{TTL: time.Hour}, State: state, Lease: lease.New(lease.Of(now), left, lease.Read(), lease.Read()), Deadline: now.Add(left)}
	t := &Term{Core: &core.Term{Lease: l}, Driver: &termDriver{}}
	t.SetLease(l)
	return t
}

func newShell() (*Shell, *driver) {
	d := &driver{}
	s := New(core.New(&core.Rules{World: &core.World{Boot: lease.SinceBoot, Clocks: lease.Read}}), lease.SinceBoot, d)
	for k := range s.Calls.Has {
		s.Calls.Has[k] = true
	}
	return s, d
}

// A timer may fire just before it is stopped, and its goroutine may get the mutex much later.
func TestLateTimerOfAnEarlierTermTouchesNothingOfTheNext(t *testing.T) {
	g := NewWithT(t)
	s, _ := newShell()
	now := time.Now()
	before, present := term(now, core.Follower, 0), term(now, core.Leader, time.Minute)
	s.term = present
	s.core.Notice(now, core.Hold{}) // as any notice does, it has the terms published
	_ = s.Expired(now, before)
	g.Expect(present.Leads(now, s.boot)).To(BeTrue())
	g.Expect(present.Driver.(*termDriver)).To(Equal(&termDriver{}))
}

func TestOnLostIsCalledOnceForEachOnWonHoweverLateTheDriverAsks(t *testing.T) {
	g := NewWithT(t)
	s, d := newShell()
	now := time.Now()
	first, second := term(now, core.Leader, time.Minute), term(now, core.Leader, time.Minute)
	s.startCalls(s.Calls.leadership(first))
	call, due := s.NextCall(now)
	g.Expect(due).To(BeTrue())
	g.Expect(call.Kind).To(Equal(Won))
	first.SetLease(term(now, core.Follower, 0).Lease()) // while OnWon runs, this term ends, and the next begins
	s.startCalls(s.Calls.leadership(second))
	var kinds []CallKind
	for call, due = s.NextCall(now); due; call, due = s.NextCall(now) {
		kinds = append(kinds, call.Kind)
	}
	g.Expect(kinds).To(Equal([]CallKind{Lost, Won}))
	g.Expect(d.calls).To(Equal(1), "one goroutine at a time calls callbacks")
	s.startCalls(s.Calls.leadership(second))
	g.Expect(d.calls).To(Equal(2), "and ends when none is due")
}

func TestCampaignsThatWaitToBeAnnouncedAreBounded(t *testing.T) {
	g := NewWithT(t)
	s, _ := newShell()
	for range 10 * maxCampaigns {
		s.Take(time.Now(), &core.Event{Kind: core.Campaigned, State: core.Follower})
	}
	n := 0
	for _, due := s.NextCall(time.Now()); due; _, due = s.NextCall(time.Now()) {
		n++
	}
	g.Expect(n).To(Equal(maxCampaigns))
}

// A review found it: the events of a notice may be reported after those of the loop that came later, and OnNext(false) was left out.
func TestOnNextIsDueByTheOrderOfDecisionsNotOfReports(t *testing.T) {
	g := NewWithT(t)
	s, d := newShell()
	s.takeNext([]core.Event{{Kind: core.NextChanged, On: true}})
	call, due := s.NextCall(time.Now())
	g.Expect(due).To(BeTrue())
	g.Expect(call).To(Equal(Call{Kind: Next, Next: true}))
	s.takeNext([]core.Event{{Kind: core.NextChanged}})
	s.Take(time.Now(), &core.Event{Kind: core.NextChanged, On: true}) // reported late
	call, due = s.NextCall(time.Now())
	g.Expect(due).To(BeTrue())
	g.Expect(call).To(Equal(Call{Kind: Next}))
	_, due = s.NextCall(time.Now())
	g.Expect(due).To(BeFalse())
	g.Expect(d.calls).To(Equal(1))
}

// The caller of Start may recover from a panic in a handler of the log, while a callback of the run goes on.
func TestNothingIsLeftOfALoopThatHasPanicked(t *testing.T) {
	g := NewWithT(t)
	s, d := newShell()
	now := time.Now()
	s.looping, s.term = true, term(now, core.Leader, time.Minute)
	d.shown = s.term
	s.startCalls(s.Calls.leadership(s.term))
	_, due := s.NextCall(now)
	g.Expect(due).To(BeTrue())
	g.Expect(s.Discard()).To(BeFalse(), "OnWon runs")
	d.woken = time.Time{}
	for ; due; _, due = s.NextCall(now) {
	}
	g.Expect(d.woken).NotTo(BeZero(), "the run that waits for it is woken")
	g.Expect(s.Discard()).To(BeTrue())
	s.Return(now)
	g.Expect(d.shown).To(BeNil())
}

// A caller that asks for a lease may use it later: the term may be over then, and its session renewed for others.
func TestTheLeaseOfATermIsNotLengthenedOnceItWasAskedFor(t *testing.T) {
	g := NewWithT(t)
	now := time.Now()
	session := &atomic.Pointer[core.Lease]{}
	session.Store(term(now, core.Follower, time.Second).Lease())
	shown := &Term{}
	shown.SetLease(&core.Lease{State: core.Leader, Session: session})
	before := shown.Lease()
	session.Store(term(now, core.Follower, time.Minute).Lease())
	g.Expect(before.State).To(Equal(core.Leader))
	g.Expect(before.Left(now, lease.SinceBoot)).To(Equal(time.Second))
	g.Expect(shown.Leads(now.Add(2*time.Second), lease.SinceBoot)).To(BeTrue())
}
