package session_test

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/core"
	"github.com/natscampaign/election/internal/lease"
	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/session"
	"github.com/natscampaign/election/internal/timing"
)

// bucket is a server that applies every write at once. What is stored is delivered when the test says so.
type bucket struct {
	stored      map[string]session.Change
	undelivered []session.Change
	position    uint64
	created     time.Time
	reads       int // of everything
}

func newBucket(created int64) *bucket {
	return &bucket{stored: map[string]session.Change{}, created: time.Unix(created, 0)}
}

func (b *bucket) put(key string, r record.Record, unconditional bool) uint64 {
	b.position++
	ch := session.Change{Key: key, Revision: b.position, Unconditional: unconditional, Record: r}
	if !unconditional {
		ch.Replaced = b.stored[key].Revision
	}
	b.stored[key] = ch
	b.undelivered = append(b.undelivered, b.stored[key])
	return b.position
}

// apply applies a write, and returns the answer.
func (b *bucket) apply(op *session.Op) *session.Result {
	return &session.Result{Outcome: core.Applied, Revision: b.put(op.Key, record.Parse(op.Value, 0), false)}
}

// all returns the result of a read of everything.
func (b *bucket) all() *session.Result {
	return &session.Result{Outcome: core.Applied, Changes: slices.Collect(maps.Values(b.stored)), Position: b.position, Created: b.created}
}

// process is a process with one session, at a time that the test moves on.
type process struct {
	*session.Session
	b      *bucket
	claims []*session.Claim
	now    time.Time
	works  bool   // work goes on
	failed string // the key whose writes fail
	silent string // the key whose writes nobody answers or applies

	applied func(key string) core.Outcome // is called when a write is applied, and returns what the answer says; may be nil
	failing func()                        // is called before a write fails; may be nil
}

// open returns a process whose session is to be opened in a bucket.
func open(t *testing.T, b *bucket, name string, now time.Time) *process {
	p := &process{b: b, now: now}
	durations, err := (&timing.Durations{}).Timing(10 * time.Second)
	if err != nil {
		t.Fatal(err)
	}
	never := func() (time.Duration, bool) { return 0, false }
	clocks := func() lease.Reading { return lease.Reading{Instant: lease.Of(p.now)} }
	ids := 0
	p.Session = session.New(&session.Rules{Name: name, Timing: durations, World: &core.World{
		Random: func(time.Duration) time.Duration { return 0 }, NewID: func() string { ids++; return fmt.Sprint(name, ids) },
		NewSecret: record.NewSecret, Clocks: clocks, Boot: never, Slewed: never, Started: clocks(),
	}})
	p.goOn()
	p.deliver()
	p.goOn()
	return p
}

// newProcess returns a process that leads the key.
func newProcess(t *testing.T, key string) (*process, *session.Claim) {
	p := open(t, newBucket(1), "a", time.Now())
	c := p.campaign(key)
	for range 100 {
		p.goOn()
		p.deliver()
		p.goOn()
		if p.leads(c) {
			return p, c
		}
		p.now = p.now.Add(time.Second)
	}
	t.Fatal("it does not come to lead")
	return nil, nil
}

// evicted returns a process that leads "k", for how much longer, and its next renewal. It has been told neither of that nor that an operator had evicted it
// before, and another session has taken the key since.
func evicted(t *testing.T) (p *process, c *session.Claim, left time.Duration, renewal session.Change) {
	p, c = newProcess(t, "k")
	p.now = p.now.Add(5 * time.Second)
	left = p.Left(p.now)
	p.b.put(session.ClaimKey("k"), record.Record{Name: "an operator"}, true)
	p.decide()
	renewal = p.b.stored[session.SessionKey(p.ID())]
	NewWithT(t).Expect(renewal.Revision).To(Equal(p.b.position), "it is renewed")
	p.b.put(session.ClaimKey("k"), record.Record{Name: "b", Instance: "x", Attempt: "x.1", Since: p.now}, false)
	return p, c, left, renewal
}

// releaseOf returns the release of a claim by another session, in the bucket that was created at that time.
func releaseOf(now, created time.Time) record.Record {
	secret := record.NewSecret()
	return record.Record{
		Name: "b", Instance: "x", Attempt: "x.1", Since: now, Released: now, BucketCreated: created, Secret: secret, Commitment: secret.Commitment(),
	}
}

func (p *process) leads(c *session.Claim) bool {
	return c.Term() != nil && c.Term().Lease.State == core.Leader && c.Term().Lease.Left(p.now, nil) > 0
}

func (p *process) campaign(key string) *session.Claim {
	c := p.Campaign(key)
	c.Begin(p.now, p.now)
	p.claims = append(p.claims, c)
	return c
}

// decide makes the requests that the session decides on, and has claims look again.
func (p *process) decide() (more bool) {
	ops, _ := p.Next(p.now)
	for i := range ops {
		op := &ops[i]
		if op.Kind == session.Follow {
			p.Done(p.now, op.ID, p.b.all())
			p.b.undelivered = nil
			p.b.reads++
			continue
		}
		if op.Key == p.failed {
			if p.failing != nil {
				p.failing()
			}
			p.Done(p.now, op.ID, &session.Result{Outcome: core.Failed})
			continue
		}
		if op.Key == p.silent {
			p.Done(p.now, op.ID, &session.Result{Outcome: core.Unknown})
			continue
		}
		r := p.b.apply(op)
		if p.applied != nil {
			r.Outcome = p.applied(op.Key)
		}
		p.Done(p.now, op.ID, r)
	}
	touched := p.Touched()
	for _, c := range p.claims {
		c.Done(p.now, core.Result{Quiet: !p.works})
		c.Next(p.now)
	}
	return len(ops)+len(touched) > 0
}

func (p *process) goOn() {
	for range 100 {
		if more := p.decide(); p.Show(p.now) && !more {
			return
		}
	}
}

func (p *process) deliver() {
	for i := range p.b.undelivered {
		p.Seen(p.now, &p.b.undelivered[i])
	}
	p.b.undelivered = nil
}

// pass lets time pass.
func (p *process) pass(d time.Duration) {
	for end := p.now.Add(d); p.now.Before(end); p.now = p.now.Add(250 * time.Millisecond) {
		p.goOn()
		p.deliver()
		p.goOn()
	}
}

// A goroutine that reads a lease does not wait for the goroutine that decides, which may not be run for a while. What it has decided is to be seen in an order that is
// safe at each step: first that a term is over, then that the others last longer.
func TestARenewalLengthensNoTermThatItShowsToBeOver(t *testing.T) {
	g := NewWithT(t)
	p, c := newProcess(t, "k")
	seen := c.Term().Lease
	left := seen.Left(p.now, nil)
	p.now = p.now.Add(5 * time.Second)
	p.b.put(session.ClaimKey("k"), record.Record{Name: "a stranger", Instance: "x"}, true)
	g.Expect(left).To(BeNumerically(">", 5*time.Second))
	p.decide()
	p.deliver()
	g.Expect(c.Term()).To(BeNil(), "it was overwritten before the session was renewed")
	g.Expect(seen.Left(p.now, nil)).To(Equal(left-5*time.Second), "others still see the term, but no longer than before")
}

func TestATermThatOutlivesItsLeaseEndsInOneWayWhoeverNoticesFirst(t *testing.T) {
	for name, notice := range map[string]func(*process, *session.Claim){
		"the session":          func(p *process, _ *session.Claim) { p.goOn() },
		"the term's own timer": func(p *process, c *session.Claim) { c.Notice(p.now, core.End{Term: c.Term(), Why: core.Deadline}) },
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			p, c := newProcess(t, "k")
			term := c.Term()
			p.now = p.now.Add(term.Lease.Left(p.now, nil))
			notice(p, c)
			p.goOn()
			g.Expect(term.Reason).To(Equal(core.Deadline))
			g.Expect(term.Outcome).To(Equal(core.Ending{How: core.KeyLost}))
		})
	}
}

func TestAReleaseNamesATermOnlyIfLeadershipHasCounted(t *testing.T) {
	g := NewWithT(t)
	p, led := newProcess(t, "k")
	p.b.put(session.ClaimKey("waits"), record.Record{Name: "a stranger", Instance: "x"}, true)
	p.deliver()
	waits := p.campaign("waits")
	p.pass(p.Timing.Interval)
	g.Expect(waits.Term().Lease.State).To(Equal(core.LeaderElect))
	number := led.Term().Number
	led.Notice(p.now, core.Stop{})
	waits.Notice(p.now, core.Stop{})
	p.pass(time.Second)
	for key, term := range map[string]uint64{"k": number, "waits": 0} {
		r := p.b.stored[session.ClaimKey(key)].Record
		g.Expect(r.Released.IsZero()).To(BeFalse(), key)
		g.Expect(r.Term).To(Equal(term), key)
	}
}

// A read may have left out the record of the session, for it was renewed soon; and the renewal may come late.
func TestAClaimIsNotTakenOverBecauseItsSessionHasNotBeenDelivered(t *testing.T) {
	g := NewWithT(t)
	p, _ := newProcess(t, "k")
	p.b.put(session.SessionKey("x"), record.Record{Name: "b", Instance: "x"}, false)
	p.b.undelivered = nil
	p.b.put(session.ClaimKey("other"), record.Record{Name: "b", Instance: "x", Attempt: "x.1", Since: p.now}, false)
	c := p.campaign("other")
	p.deliver()
	p.pass(time.Second)
	g.Expect(c.Term()).To(BeNil())
	g.Expect(p.b.stored[session.ClaimKey("other")].Record.Instance).To(Equal("x"))
}

// What is delivered while the session is being opened may have a greater revision than anything in the new bucket.
func TestAReleaseThatWasSeenInAnEarlierBucketProvesNothing(t *testing.T) {
	for created, state := range map[int64]core.State{1: core.Leader, 2: core.LeaderElect} {
		t.Run(fmt.Sprint(state), func(t *testing.T) {
			g := NewWithT(t)
			p, _ := newProcess(t, "k")
			p.now = p.now.Add(p.Left(p.now))
			p.Next(p.now)
			ops, _ := p.Next(p.now)
			g.Expect(p.Step()).To(Equal(session.Opening))
			p.Done(p.now, ops[0].ID, &session.Result{Outcome: core.Unknown}) // it is lost
			p.b.put(session.ClaimKey("other"), releaseOf(p.now, p.b.created), false)
			p.deliver()
			if !time.Unix(created, 0).Equal(p.b.created) {
				p.b = newBucket(created)
			}
			c := p.campaign("other")
			for range 20 { // before everything is read again
				p.goOn()
				p.now = p.now.Add(10 * time.Millisecond)
			}
			p.pass(p.Timing.Interval)
			g.Expect(c.Term().Lease.State).To(Equal(state))
		})
	}
}

// An operator may have purged the key, and another session may have led it before.
func TestAClaimThatAReadDoesNotShowIsNotTakenUntilItIsKnownWhy(t *testing.T) {
	g := NewWithT(t)
	p, _ := newProcess(t, "k")
	p.b.put(session.ClaimKey("other"), releaseOf(p.now, p.b.created), false)
	p.deliver()
	delete(p.b.stored, session.ClaimKey("other"))
	p.MayHaveMissed(p.now)
	c := p.campaign("other")
	p.pass(p.Timing.Interval)
	g.Expect(c.Term().Lease.State).To(Equal(core.LeaderElect))
}

// By chance the release of a session of an earlier bucket may replace a claim that has the revision which its own had there.
func TestAReleaseOfAnEarlierBucketProvesNothing(t *testing.T) {
	for created, state := range map[time.Time]core.State{time.Unix(1, 0): core.Leader, time.Unix(0, 0): core.LeaderElect} {
		t.Run(fmt.Sprint(state), func(t *testing.T) {
			g := NewWithT(t)
			p, _ := newProcess(t, "k")
			p.b.put(session.ClaimKey("other"), releaseOf(p.now, created), false)
			p.deliver()
			c := p.campaign("other")
			p.pass(time.Second)
			g.Expect(c.Term().Lease.State).To(Equal(state))
		})
	}
}

func TestAKeyWhoseWorkDoesNotReturnIsLeftToOthersAfterALease(t *testing.T) {
	g := NewWithT(t)
	p, c := newProcess(t, "k")
	term := c.Term()
	p.works = true
	c.Notice(p.now, core.End{Term: term, Why: core.Resigned})
	p.pass(p.Timing.ReleaseTimeout - time.Second)
	_, isRelease := p.b.stored[session.ClaimKey("k")].Record.IsRelease()
	g.Expect(isRelease).To(BeFalse(), "the work may return in time")
	p.failed, p.failing = session.ClaimKey("k"), func() {}
	p.pass(2 * time.Second)
	g.Expect(term.Outcome.How).To(Equal(core.WorkGoesOn))
	p.failed = ""
	p.pass(p.Timing.Interval + time.Second)
	r := p.b.stored[session.ClaimKey("k")].Record
	wait, isRelease := r.IsRelease()
	g.Expect(isRelease).To(BeTrue(), "it is tried again")
	g.Expect(wait).To(BeNumerically(">=", p.Timing.LeaseTime()))
	g.Expect(c.Step()).To(Equal(session.Returning))
	p.works = false
	p.goOn()
	g.Expect(c.Step()).To(Equal(session.Watching))
}

// The consumer may be late. A renewal that proves a claim is not repeated until it is delivered.
func TestAClaimIsProvenByOneRenewal(t *testing.T) {
	g := NewWithT(t)
	p, _ := newProcess(t, "k")
	p.campaign("other")
	for range 20 {
		p.goOn()
		p.now = p.now.Add(10 * time.Millisecond)
	}
	before := p.b.position
	for range 20 {
		p.goOn()
		p.now = p.now.Add(10 * time.Millisecond)
	}
	g.Expect(p.b.position - before).To(BeNumerically("<=", 1))
}

func TestALeaseThatOthersSawRunOutIsNotLengthened(t *testing.T) {
	g := NewWithT(t)
	p, c := newProcess(t, "k")
	term := c.Term()
	p.now = p.now.Add(5 * time.Second)
	p.decide()
	p.deliver()
	left := term.Lease.Left(p.now, nil)
	p.now = p.now.Add(left) // the goroutine that decides is not run meanwhile
	g.Expect(p.Show(p.now)).To(BeFalse())
	g.Expect(c.Term()).To(BeNil())
	g.Expect(term.Reason).To(Equal(core.Deadline))
	g.Expect(term.Lease.Left(p.now, nil)).To(BeNumerically("<=", 0))
}

// The session is open, so nobody else may take such a claim.
func TestAClaimThatNobodyHoldsIsReleasedThoughOneReleaseFails(t *testing.T) {
	g := NewWithT(t)
	p, c := newProcess(t, "k")
	p.works = true
	c.Notice(p.now, core.Stop{})
	p.pass(25 * time.Second)
	g.Expect(c.Step()).To(Equal(session.Returning), "the work goes on after the release timeout")
	p.works, p.failed = false, session.ClaimKey("k")
	p.pass(time.Second)
	g.Expect(c.Step()).To(Equal(session.Finished))
	c.Notice(p.now, core.EndRun{})
	p.Forget(c)
	p.claims, p.failed = nil, ""
	p.pass(10 * time.Second)
	_, released := p.b.stored[session.ClaimKey("k")].Record.IsRelease()
	g.Expect(released).To(BeTrue())
}

// What a release revealed is known to all who read the bucket, and so is who leads.
func TestAClaimThatIsStoredAgainTogetherWithItsReleaseProvesNothing(t *testing.T) {
	g := NewWithT(t)
	p, _ := newProcess(t, "other")
	key, secret := session.ClaimKey("k"), record.NewSecret()
	claim := record.Record{Name: "x", Instance: "x", Attempt: "x.1", Since: p.now, Commitment: secret.Commitment()}
	release := releaseOf(p.now, p.b.created)
	release.Secret, release.Commitment = secret, secret.Commitment()
	present := record.Record{Name: "x", Instance: "x", Attempt: "x.2", Since: p.now, Commitment: record.NewSecret().Commitment(), Predecessors: record.Secrets{secret}}
	p.b.put(session.SessionKey("x"), record.Record{Name: "x", Instance: "x", LeaseMs: 9000}, false)
	for _, r := range []record.Record{claim, release, present, claim, release} {
		p.b.put(key, r, false)
		p.deliver()
		p.goOn()
	}
	c := p.campaign("k")
	p.pass(8 * time.Second)
	g.Expect(p.leads(c)).To(BeFalse(), "x leads, and has not been told")
	p.pass(10 * time.Second)
	g.Expect(p.leads(c)).To(BeTrue())
}

func TestAClaimThatIsReadAgainHasItsSuccessorWaitNoLonger(t *testing.T) {
	for _, bySession := range []bool{false, true} {
		t.Run(fmt.Sprint("its session is released: ", bySession), func(t *testing.T) {
			g := NewWithT(t)
			p, _ := newProcess(t, "other")
			ofSession, ofClaim := record.NewSecret(), record.NewSecret()
			p.b.put(session.SessionKey("x"), record.Record{Name: "x", Instance: "x", Attempt: "x.0", LeaseMs: 9000, Commitment: ofSession.Commitment()}, false)
			p.b.put(session.ClaimKey("k"), record.Record{Name: "x", Instance: "x", Attempt: "x.1", Since: p.now, Commitment: ofClaim.Commitment()}, false)
			p.deliver()
			c := p.campaign("k")
			p.pass(time.Second)
			p.MayHaveMissed(p.now)
			p.pass(2 * time.Second)
			g.Expect(p.Knows()).To(BeTrue())
			g.Expect(p.leads(c)).To(BeFalse())
			key, secret := session.ClaimKey("k"), ofClaim
			if bySession {
				key, secret = session.SessionKey("x"), ofSession
			}
			r := releaseOf(p.now, p.b.created)
			r.Secret, r.Commitment = secret, secret.Commitment()
			p.b.put(key, r, false)
			p.pass(time.Second)
			g.Expect(p.leads(c)).To(BeTrue())
		})
	}
}

// The release may be applied late, while the work of the next term runs.
func TestAClaimWhoseReleaseIsNotAnsweredIsNotHeldAgain(t *testing.T) {
	g := NewWithT(t)
	p, first := newProcess(t, "k")
	stopped := p.campaign("other")
	p.applied = func(key string) core.Outcome {
		if key != session.ClaimKey("other") {
			return core.Applied
		}
		stopped.Notice(p.now, core.Stop{})
		p.silent = key
		return core.Unknown
	}
	p.pass(time.Second)
	stored := p.b.stored[session.ClaimKey("other")].Revision
	g.Expect(stored).NotTo(BeZero())
	stopped.Notice(p.now, core.EndRun{})
	p.Forget(stopped)
	p.claims, p.applied = []*session.Claim{first}, nil
	p.pass(5 * time.Second)
	again := p.campaign("other")
	p.silent = ""
	p.pass(30 * time.Second)
	g.Expect(p.leads(again)).To(BeTrue())
	g.Expect(again.Term().Number).To(BeNumerically(">", stored))
}

// Whoever reads the bucket knows the attempt of a claim that was lost on its way, and may store a copy.
func TestACopyOfAClaimThatWasLostOnItsWayDoesNotLead(t *testing.T) {
	g := NewWithT(t)
	p, _ := newProcess(t, "other")
	key := session.ClaimKey("k")
	p.b.put(key, releaseOf(p.now, p.b.created), false)
	p.deliver()
	c := p.campaign("k")
	var lost []byte
	ops, _ := p.Next(p.now)
	for range 10 {
		for _, op := range ops {
			if op.Key == key {
				lost = op.Value
			}
			p.Done(p.now, op.ID, &session.Result{Outcome: core.Unknown})
		}
		c.Done(p.now, core.Result{})
		c.Next(p.now)
		ops, _ = p.Next(p.now)
	}
	g.Expect(lost).NotTo(BeEmpty())
	p.b.put(session.SessionKey("x"), record.Record{Name: "x", Instance: "x", Attempt: "x.0", LeaseMs: 9000}, false)
	p.b.put(key, record.Record{Name: "x", Instance: "x", Attempt: "x.1", Since: p.now}, false) // x leads at once
	p.b.undelivered = p.b.undelivered[:len(p.b.undelivered)-1]
	p.b.put(key, record.Parse(lost, 0), false)
	p.pass(5 * time.Second)
	g.Expect(p.leads(c)).To(BeFalse(), "x leads, and has not been told")
}

// The consumer may deliver a renewal before its answer comes.
func TestARenewalThatIsDeliveredBeforeItsAnswerIsNoContradiction(t *testing.T) {
	g := NewWithT(t)
	p, _ := newProcess(t, "k")
	p.now = p.now.Add(5 * time.Second)
	ops, _ := p.Next(p.now)
	g.Expect(ops).To(HaveLen(1))
	answer := p.b.apply(&ops[0])
	p.Seen(p.now, &p.b.undelivered[0])
	p.Done(p.now, ops[0].ID, answer)
	g.Expect(p.Knows()).To(BeTrue())
}

// A permission may be missing for a key: the server does not answer then.
func TestAttemptsThatNobodyAnswersAreForgotten(t *testing.T) {
	g := NewWithT(t)
	p, _ := newProcess(t, "k")
	p.campaign("other")
	p.silent = session.ClaimKey("other")
	remembered := func() int { return reflect.ValueOf(p.Session).Elem().FieldByName("doubtful").Len() }
	p.pass(15 * time.Minute)
	before := remembered()
	g.Expect(before).To(BeNumerically(">", 0))
	p.pass(15 * time.Minute)
	g.Expect(remembered()).To(BeNumerically("~", before, before/10))
}

// A consumer leaves out what is replaced before it is delivered.
func TestAReleaseThatTheNextLeaderHasReplacedBeforeItWasSeenIsARelease(t *testing.T) {
	for name, answer := range map[string]core.Outcome{"the answer comes later": core.Applied, "no answer comes": core.Unknown} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			p, c := newProcess(t, "k")
			term := c.Term()
			p.applied = func(key string) core.Outcome {
				g.Expect(key).To(Equal(session.ClaimKey("k")))
				p.applied = nil
				p.b.put(key, record.Record{Name: "b", Instance: "b's"}, false)
				p.b.undelivered = p.b.undelivered[1:]
				p.deliver()
				return answer
			}
			c.Notice(p.now, core.End{Term: term, Why: core.Resigned})
			for range 10 {
				p.goOn()
			}
			g.Expect(c.Term()).NotTo(BeIdenticalTo(term))
			g.Expect(term.Outcome.How).To(Equal(core.KeyReleased))
		})
	}
}

func TestAReleaseThatIsRefusedBecauseSomebodyElseHasTheKeyIsNone(t *testing.T) {
	g := NewWithT(t)
	p, c := newProcess(t, "k")
	term := c.Term()
	p.b.put(session.ClaimKey("k"), record.Record{Name: "b", Instance: "b's"}, false)
	p.failed = session.ClaimKey("k")
	p.failing = p.deliver
	c.Notice(p.now, core.End{Term: term, Why: core.Resigned})
	for range 10 {
		p.goOn()
	}
	g.Expect(c.Term()).NotTo(BeIdenticalTo(term))
	g.Expect([]any{term.Outcome.How, term.LostBy}).To(Equal([]any{core.KeyLost, core.Overwritten}))
}

// What the consumer of an earlier bucket has delivered is still on its way while the session is being opened in a new one.
func TestThatAnEarlierBucketIsSettledProvesNothing(t *testing.T) {
	for created, leads := range map[int64]bool{1: true, 2: false} {
		t.Run(fmt.Sprint(leads), func(t *testing.T) {
			g := NewWithT(t)
			p, _ := newProcess(t, "k")
			p.now = p.now.Add(p.Left(p.now))
			p.Next(p.now)
			ops, _ := p.Next(p.now)
			g.Expect(p.Step()).To(Equal(session.Opening))
			p.b.put("settled", record.Record{Name: "b", Instance: "x", Attempt: "x.1"}, false)
			p.deliver()
			if created != p.b.created.Unix() {
				p.b = newBucket(created)
			}
			p.Done(p.now, ops[0].ID, p.b.apply(&ops[0]))
			c := p.campaign("other")
			p.pass(time.Second)
			g.Expect(p.leads(c)).To(Equal(leads))
		})
	}
}

// The session does not know of the claim, for neither the answer nor the change was delivered; or a server refused it that takes itself for the leader,
// and the leader stored it. Its release says how long a successor waits for leaders before.
func TestTheReleaseOfASessionCoversAClaimOfWhichItDoesNotKnow(t *testing.T) {
	for name, answer := range map[string]core.Outcome{"no answer": core.Unknown, "refused": core.Refused} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			p, led := newProcess(t, "k")
			p.b.put(session.ClaimKey("other"), record.Record{Name: "an operator"}, true) // evicts a leader that does not know of it yet
			p.deliver()
			c := p.campaign("other")
			p.applied = func(key string) core.Outcome {
				if key == session.ClaimKey("other") {
					p.b.undelivered = nil
					return answer
				}
				return core.Applied
			}
			p.goOn()
			p.goOn()
			g.Expect(p.b.stored[session.ClaimKey("other")].Record.Instance).To(Equal(p.ID()))
			p.Close(p.now)
			led.Notice(p.now, core.Stop{})
			c.Notice(p.now, core.Stop{})
			p.goOn()
			g.Expect(p.Step()).To(Equal(session.Released))

			q := open(t, p.b, "b", p.now)
			d := q.campaign("other")
			q.pass(p.Timing.LeaseTime())
			g.Expect(d.Term().Lease.State).To(Equal(core.LeaderElect))
			q.pass(p.Timing.TTL)
			g.Expect(q.leads(d)).To(BeTrue())
		})
	}
}

// A consumer that is behind leaves out what was replaced: here, that an operator evicted the leader, for another session has taken the key since.
func TestARenewalProvesNothingUntilWhatWasStoredBeforeItWasDeliveredIsKnown(t *testing.T) {
	for name, tells := range map[string]func(p *process, renewal, taken session.Change){
		"a consumer that has left out the eviction": func(p *process, renewal, _ session.Change) {
			p.Seen(p.now, &renewal)
		},
		"a read that does not show the claim": func(p *process, renewal, taken session.Change) {
			p.MayHaveMissed(p.now)
			p.now = p.now.Add(300 * time.Millisecond)
			ops, _ := p.Next(p.now)
			r := session.Result{Outcome: core.Applied, Position: renewal.Revision, Created: p.b.created}
			for _, ch := range p.b.stored {
				if ch.Key != taken.Key {
					r.Changes = append(r.Changes, ch)
				}
			}
			p.Done(p.now, ops[len(ops)-1].ID, &r)
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			p, c, left, renewal := evicted(t)
			taken := p.b.stored[session.ClaimKey("k")]
			before := p.now
			tells(p, renewal, taken)
			g.Expect(p.Left(p.now)).To(BeNumerically("<=", left-p.now.Sub(before)))
			g.Expect(p.leads(c)).To(BeTrue())
			p.Seen(p.now, &taken)
			g.Expect(p.leads(c)).To(BeFalse())
		})
	}
}

// What another session has stored twice is delivered once. Of what has expired nothing is, and nothing says so.
func TestARenewalIsVerifiedThoughTheConsumerHasLeftSomethingOut(t *testing.T) {
	g := NewWithT(t)
	p, _ := newProcess(t, "k")
	put := func(id string) uint64 {
		return p.b.put(session.SessionKey(id), record.Record{Name: "b", Instance: id, Attempt: fmt.Sprint(id, p.b.position)}, false)
	}
	leaveOut := func(sequences ...uint64) {
		p.b.undelivered = slices.DeleteFunc(p.b.undelivered, func(ch session.Change) bool { return slices.Contains(sequences, ch.Revision) })
	}
	renew := func() (left time.Duration) {
		own := session.SessionKey(p.ID())
		for before := p.b.stored[own].Revision; p.b.stored[own].Revision == before; p.decide() {
			p.now = p.now.Add(100 * time.Millisecond)
			left = p.Left(p.now)
		}
		return left
	}
	replaced, expired := put("x"), uint64(0)
	left := renew()
	leaveOut(replaced)
	p.deliver()
	g.Expect(p.Left(p.now)).To(Equal(left))
	put("x")
	p.deliver()
	g.Expect(p.Left(p.now)).To(Equal(p.Timing.LeaseTime()))

	expired = put("y")
	left = renew()
	leaveOut(expired)
	p.deliver()
	g.Expect(p.Left(p.now)).To(Equal(left))
	p.now = p.now.Add(10 * time.Millisecond)
	p.decide()
	p.deliver()
	g.Expect(p.Left(p.now)).To(Equal(p.Timing.LeaseTime()), "by the next renewal")

	replaced = put("x")
	renew()
	leaveOut(replaced)
	p.deliver()
	leaveOut(put("z"))
	put("x")
	p.deliver()
	g.Expect(p.Left(p.now)).To(Equal(p.Timing.LeaseTime()), "though something else has been left out since")
}

// A client may overwrite a key all the time, and nothing says what has replaced what is left out of that.
func TestASessionKeepsItsLeaseThoughSomethingIsLeftOutAllTheTime(t *testing.T) {
	g := NewWithT(t)
	p, c := newProcess(t, "k")
	for range 300 {
		for range 2 {
			p.b.put(session.ClaimKey("other"), record.Record{Name: "x"}, true)
		}
		p.b.undelivered = p.b.undelivered[1:]
		p.goOn()
		p.deliver()
		p.now = p.now.Add(100 * time.Millisecond)
		g.Expect(p.leads(c)).To(BeTrue())
	}
}

// Renewals that wait for what is left out must not have other sessions miss something, and so on.
func TestARenewalThatWaitsIsNotFollowedByMoreAndMore(t *testing.T) {
	g := NewWithT(t)
	p, c := newProcess(t, "k")
	p.campaign("another") // which a renewal is to prove
	last, renewals := p.b.position, 0
	for range 200 { // milliseconds: the session does not read everything before
		p.b.position++ // is left out
		p.goOn()
		if r := p.b.stored[session.SessionKey(p.ID())].Revision; r > last {
			last, renewals = r, renewals+1
		}
		p.deliver()
		p.now = p.now.Add(time.Millisecond)
	}
	g.Expect(renewals).To(BeNumerically("<=", 6))
	g.Expect(p.leads(c)).To(BeTrue())
}

// A renewal that is not answered when a read begins, or is sent while it goes on, is not proven by it. On a slow link that may be so of each.
func TestASessionOnASlowLinkKeepsItsLeaseThoughOneReadFollowsTheOther(t *testing.T) {
	for name, c := range map[string]struct {
		roundTrip     time.Duration
		leftOut, gone bool
	}{
		"because each shows a claim of a session that is not known": {roundTrip: 400 * time.Millisecond, gone: true},
		"because something is left out all the time":                {roundTrip: 300 * time.Millisecond, leftOut: true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			p, claim := newProcess(t, "k")
			l := &slowLink{process: p, half: c.roundTrip / 2}
			if c.gone {
				l.reading = func() {
					id := fmt.Sprint("gone-", p.b.reads)
					p.b.put(session.ClaimKey(id), record.Record{Name: "x", Instance: id, Attempt: id + ".1"}, false)
				}
			}
			p.MayHaveMissed(p.now)
			for end := p.now.Add(3 * p.Timing.TTL); p.now.Before(end); p.now = p.now.Add(10 * time.Millisecond) {
				if c.leftOut {
					p.b.position++
				}
				l.goOn(claim)
				g.Expect(p.leads(claim)).To(BeTrue())
			}
			g.Expect(p.b.reads).To(BeNumerically(">=", 4))
		})
	}
}

// Why a claim was refused is to be read, though that waits for a renewal, and the renewal is verified.
func TestAReadThatIsDueIsNotForgottenBecauseARenewalIsVerified(t *testing.T) {
	g := NewWithT(t)
	p, _ := newProcess(t, "k")
	p.applied = func(key string) core.Outcome {
		if key == session.ClaimKey("x") {
			return core.Refused
		}
		return core.Applied
	}
	c := p.campaign("x")
	position := p.b.position
	p.decide()
	p.decide()
	p.b.undelivered, p.b.position = nil, position
	p.now = p.now.Add(5 * time.Second)
	ops, _ := p.Next(p.now)
	g.Expect(ops).To(HaveLen(1), "a renewal")
	c.Next(p.now)
	p.b.apply(&ops[0])
	p.deliver()
	reads := p.b.reads
	p.decide()
	g.Expect(p.b.reads).To(Equal(reads + 1))
}

// A replica that falls behind while everything is read may go on to deliver signs of life only.
func TestARenewalThatIsAnsweredDuringAReadIsReadIfItIsNotDelivered(t *testing.T) {
	g := NewWithT(t)
	p, _ := newProcess(t, "k")
	p.now = p.now.Add(5 * time.Second)
	left := p.Left(p.now)
	p.MayHaveMissed(p.now)
	shown := p.b.all()
	ops, _ := p.Next(p.now)
	g.Expect(ops).To(HaveLen(2), "a read and a renewal")
	p.Done(p.now, ops[1].ID, p.b.apply(&ops[1]))
	p.Done(p.now, ops[0].ID, shown)
	p.b.undelivered = nil
	p.pass(500 * time.Millisecond)
	g.Expect(p.Left(p.now)).To(BeNumerically(">", left))
}

// A claim is taken meanwhile, so that another renewal follows before the read has ended.
func TestAReadProvesTheRenewalThatWasAnsweredBefore(t *testing.T) {
	g := NewWithT(t)
	p, _ := newProcess(t, "k")
	p.now = p.now.Add(5 * time.Second)
	left := p.Left(p.now)
	p.decide()
	p.campaign("x")
	p.now = p.now.Add(time.Millisecond)
	p.decide()
	p.decide()
	p.b.undelivered = nil
	p.MayHaveMissed(p.now)
	p.now = p.now.Add(250 * time.Millisecond)
	ops, _ := p.Next(p.now)
	g.Expect(ops).To(HaveLen(2), "a read and a renewal")
	p.Done(p.now, ops[1].ID, p.b.apply(&ops[1]))
	p.Done(p.now, ops[0].ID, p.b.all())
	g.Expect(p.Left(p.now)).To(BeNumerically(">", left))
}

// It is renewed because a claim was taken since. It would be taken for another session that has the next claim, and be closed once its lease has lapsed.
func TestAReadMayShowTheOwnRecordTwice(t *testing.T) {
	g := NewWithT(t)
	p, c := newProcess(t, "k")
	p.campaign("x")
	p.decide()
	p.decide()
	shown := slices.SortedFunc(maps.Values(p.b.stored), func(a, b session.Change) int { return cmp.Compare(a.Revision, b.Revision) })
	p.MayHaveMissed(p.now)
	p.now = p.now.Add(250 * time.Millisecond)
	ops, _ := p.Next(p.now)
	g.Expect(ops).To(HaveLen(2), "a read and a renewal")
	p.b.undelivered = nil
	p.Done(p.now, ops[1].ID, p.b.apply(&ops[1]))
	p.Done(p.now, ops[0].ID, &session.Result{Outcome: core.Applied, Changes: append(shown, p.b.undelivered...), Position: p.b.position, Created: p.b.created})
	p.b.undelivered = nil
	p.campaign("next")
	p.pass(time.Second)
	reads := p.b.reads
	p.pass(2 * p.Timing.TTL)
	g.Expect(p.b.reads).To(Equal(reads))
	g.Expect(p.leads(c)).To(BeTrue())
}

// slowLink is a link between a process and its server. A read takes two round trips, and shows what is stored after one and a half.
type slowLink struct {
	*process
	half     time.Duration // of a round trip
	reading  func()        // is called when the server is to show what is stored
	consumer int           // which has begun to deliver; 0 if none has
	under    []underWay
}

// underWay is something that happens at a time.
type underWay struct {
	at time.Time
	do func()
}

func (l *slowLink) after(d time.Duration, do func()) {
	l.under = append(l.under, underWay{l.now.Add(d), do})
	slices.SortStableFunc(l.under, func(a, b underWay) int { return a.at.Compare(b.at) })
}

// goOn lets happen what is due, and the session decide.
func (l *slowLink) goOn(c *session.Claim) {
	for len(l.under) > 0 && !l.now.Before(l.under[0].at) {
		next := l.under[0]
		l.under = l.under[1:]
		next.do()
	}
	ops, _ := l.Next(l.now)
	for _, op := range ops {
		if op.Kind == session.Follow {
			l.read(op.ID)
			continue
		}
		l.after(l.half, func() {
			r := l.b.apply(&op)
			l.deliverLater()
			l.after(l.half, func() { l.Done(l.now, op.ID, r) })
		})
	}
	l.Touched()
	c.Next(l.now)
	l.Show(l.now)
}

func (l *slowLink) read(op uint64) {
	l.consumer = 0
	l.b.reads++
	l.after(3*l.half, func() {
		l.consumer = l.b.reads
		if l.reading != nil {
			l.reading()
		}
		l.b.undelivered = nil
		r := l.b.all()
		l.after(l.half, func() { l.Done(l.now, op, r) })
	})
}

// deliverLater has the consumer deliver what is stored, if there is one and no other takes its place before.
func (l *slowLink) deliverLater() {
	changes, by := l.b.undelivered, l.consumer
	l.b.undelivered = nil
	l.after(l.half, func() {
		for i := range changes {
			if by != 0 && by == l.consumer {
				l.Seen(l.now, &changes[i])
			}
		}
	})
}

// What has replaced the eviction is not delivered yet.
func TestARenewalDoesNotCountThoughTheGapIsNotRememberedForWhichItWaits(t *testing.T) {
	for name, happens := range map[string]func(p *process){
		"because there are many more": func(p *process) {
			for range 2000 {
				p.b.position++ // is left out
				p.b.put(session.SessionKey("y"), record.Record{Name: "y", Instance: "y", Attempt: "y.1"}, false)
				ch := p.b.undelivered[len(p.b.undelivered)-1]
				p.Seen(p.now, &ch)
			}
		},
		"because everything is read, but for the claim and the renewal": func(p *process) {
			p.b.put(session.ClaimKey("other"), record.Record{Name: "z", Instance: "z", Attempt: "z.1"}, false) // of a session that is not known
			ch := p.b.undelivered[len(p.b.undelivered)-1]
			p.Seen(p.now, &ch)
			p.now = p.now.Add(250 * time.Millisecond)
			ops, _ := p.Next(p.now)
			i := slices.IndexFunc(ops, func(op session.Op) bool { return op.Kind == session.Follow })
			p.Done(p.now, ops[i].ID, &session.Result{Outcome: core.Applied, Position: p.b.position, Created: p.b.created})
			p.b.put(session.SessionKey("y"), record.Record{Name: "y", Instance: "y", Attempt: "y.1"}, false)
			ch = p.b.undelivered[len(p.b.undelivered)-1]
			p.Seen(p.now, &ch)
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			p, _, left, renewal := evicted(t)
			before := p.now
			p.Seen(p.now, &renewal)
			happens(p)
			g.Expect(p.Left(p.now)).To(BeNumerically("<=", left-p.now.Sub(before)))
		})
	}
}

// A renewal that is stored while everything is read may come after a change that is left out, though the claim is shown as it was before.
func TestARenewalThatIsStoredDuringAReadProvesNothing(t *testing.T) {
	for name, shows := range map[string]bool{"the read shows it": true, "it is delivered next": false} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			p, c := newProcess(t, "k")
			before := p.b.stored[session.ClaimKey("k")]
			p.MayHaveMissed(p.now)
			next := func() session.Op {
				for {
					if ops, _ := p.Next(p.now); len(ops) > 0 {
						return ops[0]
					}
					p.now = p.now.Add(100 * time.Millisecond)
				}
			}
			read := next()
			g.Expect(read.Kind).To(Equal(session.Follow))
			p.b.put(session.ClaimKey("k"), record.Record{Name: "an operator", Instance: "x"}, false) // is left out
			op := next()
			left := p.Left(p.now)
			p.Done(p.now, op.ID, p.b.apply(&op))
			renewal := p.b.stored[op.Key]
			g.Expect(op.Key).To(Equal(session.SessionKey(p.ID())))
			r := session.Result{Outcome: core.Applied, Position: renewal.Revision - 1, Created: p.b.created, Changes: []session.Change{before}}
			if shows {
				r.Position, r.Changes = renewal.Revision, append(r.Changes, renewal)
			}
			p.Done(p.now, read.ID, &r)
			if !shows {
				p.Seen(p.now, &renewal)
			}
			g.Expect(p.leads(c)).To(BeTrue())
			g.Expect(p.Left(p.now)).To(Equal(left))
		})
	}
}

// The bucket was made again, and a claim in it happens to have the revision over which the session takes the key.
func TestAClaimWhoseAnswerShowsAnotherHistoryDoesNotCountAtOnce(t *testing.T) {
	g := NewWithT(t)
	p, _ := newProcess(t, "k")
	at := p.b.put(session.ClaimKey("other"), releaseOf(p.now, p.b.created), false)
	p.b.put(session.SessionKey("y"), record.Record{Name: "y", Instance: "y", Attempt: "y.1"}, false)
	p.b.put(session.SessionKey("z"), record.Record{Name: "z", Instance: "z", Attempt: "z.1"}, false)
	p.deliver()
	p.b = newBucket(2)
	p.b.position = at // the key is claimed there
	c := p.campaign("other")
	p.now = p.now.Add(100 * time.Millisecond)
	p.decide()
	ops, _ := p.Next(p.now)
	for _, op := range ops {
		if op.Key == session.ClaimKey("other") {
			g.Expect(op.Replaces).To(Equal(at))
			p.Done(p.now, op.ID, p.b.apply(&op))
		}
	}
	c.Done(p.now, core.Result{})
	g.Expect(c.Term().Lease.State).To(Equal(core.LeaderElect))
}

// A process also knows claims of keys for which it does not campaign.
func TestASessionIsClosedThoughAnotherClaimOfItIsGone(t *testing.T) {
	g := NewWithT(t)
	p, _ := newProcess(t, "k")
	p.b.put(session.SessionKey("x"), record.Record{Name: "b", Instance: "x", Attempt: "x.0"}, false)
	p.b.put(session.ClaimKey("other"), record.Record{Name: "b", Instance: "x", Attempt: "x.1", Since: p.now}, false)
	p.b.put(session.ClaimKey("another"), record.Record{Name: "b", Instance: "x", Attempt: "x.2", Since: p.now}, false)
	p.deliver()
	c := p.campaign("other")
	p.pass(time.Second)
	delete(p.b.stored, session.ClaimKey("another"))
	p.MayHaveMissed(p.now)
	p.pass(3 * p.Timing.TTL)
	g.Expect(p.leads(c)).To(BeTrue())
}

func TestASessionIsRememberedIfAClaimOfItComesLate(t *testing.T) {
	g := NewWithT(t)
	p, _ := newProcess(t, "k")
	secret := record.NewSecret()
	x := record.Record{Name: "b", Instance: "x", Attempt: "x.0", Commitment: secret.Commitment()}
	p.b.put(session.SessionKey("x"), x, false)
	x.Released, x.Secret, x.Attempt = p.now, secret, "x.1"
	p.b.put(session.SessionKey("x"), x, false)
	p.deliver()
	p.failed, p.failing = session.SessionKey("x"), func() { // its record is to be made anew so that it expires
		p.failed = ""
		p.b.put(session.ClaimKey("other"), record.Record{Name: "b", Instance: "x", Attempt: "x.2", Since: p.now}, false)
		p.deliver()
	}
	p.pass(p.Timing.TTL)
	g.Expect(p.failed).To(BeEmpty())
	c := p.campaign("other")
	p.pass(3 * p.Timing.TTL)
	g.Expect(p.leads(c)).To(BeTrue())
}

func TestKeysThatAreGoneAreNotReadAgainAndAgain(t *testing.T) {
	g := NewWithT(t)
	p, _ := newProcess(t, "k")
	for _, key := range []string{"one", "two"} {
		p.b.put(session.ClaimKey(key), record.Record{Name: "an operator"}, true)
	}
	p.deliver()
	delete(p.b.stored, session.ClaimKey("one"))
	p.MayHaveMissed(p.now)
	p.goOn()
	delete(p.b.stored, session.ClaimKey("two")) // which the next read misses first
	p.pass(2 * time.Second)
	before := p.b.reads
	p.pass(p.Timing.TTL)
	g.Expect(p.b.reads).To(Equal(before))
}

// What has replaced a change that was left out may be left out, too, and other changes come in its place.
func TestARenewalIsNotVerifiedByOtherChangesThanThatWhichReplacedWhatWasLeftOut(t *testing.T) {
	g := NewWithT(t)
	p, c, left, renewal := evicted(t)
	p.Seen(p.now, &renewal)
	p.b.put(session.SessionKey("x"), record.Record{Name: "b", Instance: "x", Attempt: "x.0"}, false)
	other := p.b.stored[session.SessionKey("x")]
	p.b.put(session.ClaimKey("k"), record.Record{Name: "c", Instance: "y", Attempt: "y.1", Since: p.now}, false)
	p.Seen(p.now, &other)
	g.Expect(p.Left(p.now)).To(Equal(left))
	g.Expect(p.leads(c)).To(BeTrue())
}

func TestALateConsumerDoesNotHaveTheSessionRenewedAtEachAnswer(t *testing.T) {
	g := NewWithT(t)
	p, _ := newProcess(t, "k")
	p.pass(p.Timing.TTL)
	renewals, last := 0, p.b.stored[session.SessionKey(p.ID())].Revision
	for i := range 90 { // claims are taken, one after the other
		p.campaign(fmt.Sprint("more-", i))
		p.decide()
		p.decide()
		if r := p.b.stored[session.SessionKey(p.ID())].Revision; r != last {
			renewals, last = renewals+1, r
		}
		p.now = p.now.Add(5 * time.Millisecond)
	}
	g.Expect(renewals).To(BeNumerically("<=", 3))
}

func TestAKeyThatIsTakenWhileTheCandidateIsPausedIsGivenUp(t *testing.T) {
	for why, reason := range map[core.Holds]core.Reason{core.Paused: core.Resigned, core.NotHealthy: core.Unhealthy} {
		g := NewWithT(t)
		p := open(t, newBucket(1), "a", time.Now())
		c := p.campaign("k")
		var won *core.Term
		p.applied = func(key string) core.Outcome {
			if key == session.ClaimKey("k") && c.Step() == session.Taking {
				c.Notice(p.now, core.Hold{Why: why, On: true})
			}
			if won == nil {
				won = c.Term()
			}
			return core.Applied
		}
		p.pass(3 * p.Timing.TTL)
		g.Expect(won).NotTo(BeNil())
		g.Expect(won.Reason).To(Equal(reason))
		g.Expect(won.Led()).To(BeFalse())
		g.Expect(p.leads(c)).To(BeFalse())
		_, isRelease := p.b.stored[session.ClaimKey("k")].Record.IsRelease()
		g.Expect(isRelease).To(BeTrue())
	}
}

// The caller has recovered from a panic in a handler of the log, say, and runs the election again while the work of the run before goes on.
func TestAKeyWhoseLoopHasPanickedIsLedAgainOnceItsWorkMayBeOver(t *testing.T) {
	g := NewWithT(t)
	p, c := newProcess(t, "k")
	p.works = true
	c.Notice(p.now, core.EndRun{})
	c.Notice(p.now, core.NewRun{Started: p.now})
	c.Begin(p.now, p.now)
	p.pass(p.Timing.TTL - time.Second)
	g.Expect(p.leads(c)).To(BeFalse())
	p.pass(2 * time.Second)
	g.Expect(p.leads(c)).To(BeTrue())
}

// Of an empty bucket no consumer delivers anything, so that a read of it has no result.
func TestASessionIsOpenedSoonThoughTheFirstWriteIntoAnEmptyBucketIsLost(t *testing.T) {
	g := NewWithT(t)
	p, _ := newProcess(t, "k") // for its rules
	p.Session, p.b, p.claims = session.New(p.Rules), newBucket(1), nil
	began, lost := p.now, false
	for p.Step() != session.Open {
		ops, until := p.Next(p.now)
		for i := range ops {
			op := &ops[i]
			if op.Kind == session.Write && lost {
				p.Done(p.now, op.ID, p.b.apply(op))
				continue
			}
			lost, p.now = true, op.Limit
			p.Done(p.now, op.ID, &session.Result{Outcome: core.Unknown})
		}
		if len(ops) == 0 && until.After(p.now) {
			p.now = until
		}
	}
	g.Expect(p.now.Sub(began)).To(BeNumerically("<", 2*p.Timing.RequestTimeout()+time.Second))
}
