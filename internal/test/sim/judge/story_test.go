package judge

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election"
)

// The stories have a TTL of 10 s, so that the default stand-down is 7.5 s and the margin 200 ms.
const (
	storyTTL  = 10 * time.Second
	standDown = 7500 * time.Millisecond
)

// story is a history made by hand, to try the judge.
type story struct {
	*Judge
	t       *testing.T
	now     time.Time
	seq     uint64
	current *Entry
}

// actor is a candidate that reports what the story says.
type actor struct {
	*Ledger
	state  election.State
	number uint64 // of its term; 0: it does not lead
	bucket time.Time
}

func (a *actor) State() election.State { return a.state }
func (a *actor) IsLeader() bool        { return a.number > 0 }
func (a *actor) Term() (election.Term, bool) {
	return election.Term{Key: "leader", Name: a.Name, Number: a.number, BucketCreated: a.bucket}, a.number > 0
}

func newStory(t *testing.T) *story {
	now := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	return &story{Judge: New(storyTTL, storyTTL, false, &Journal{Began: now}, Tally{}), t: t, now: now}
}

func (s *story) actor(name string) *actor {
	a := &actor{Ledger: s.Add(Candidate{Name: name, Margin: storyTTL / 50, StandDown: standDown, Interval: standDown}), state: election.CandidateState, bucket: s.now}
	a.Reports, a.running = a, true
	return a
}

func (s *story) wait(d time.Duration) { s.now = s.now.Add(d) }

func (s *story) look() { s.Observe(s.now) }

// put changes the key.
func (s *story) put(e *Entry, kind ChangeKind) {
	before := s.current
	if e != nil {
		s.seq++
		e.Revision = s.seq
		if e.Write != nil {
			e.Write.Applied, e.Write.Revision, e.Write.Replaced = s.now, s.seq, before
		}
	}
	s.current = e
	s.Changed(Change{At: s.now, Before: before, After: e, Kind: kind})
}

// overwrite has a stranger overwrite the key, some times over.
func (s *story) overwrite(times int) {
	for range times {
		s.put(&Entry{Write: &Write{}}, ByWrite)
	}
}

// remove has an operator delete the key.
func (s *story) remove() {
	s.put(&Entry{Op: jetstream.KeyValueDelete, Write: &Write{Remove: true}}, ByWrite)
}

// removeNotified has an operator delete the key and notifies a candidate.
func (s *story) removeNotified(a *actor) {
	s.remove()
	a.Notified = func() (*Entry, time.Time, *Entry) { return s.current, s.now.Add(-1), nil }
}

// rewindTo takes the bucket back to when the given entry was under the key.
func (s *story) rewindTo(e *Entry) {
	before := s.current
	s.current, s.seq = e, e.Revision
	s.Changed(Change{At: s.now, Before: before, After: e, Kind: ByRewind, Seq: e.Revision})
	s.wait(1)
}

// overwriteAndRewind has a stranger overwrite the key once and then some more times, which a rewind takes back.
func (s *story) overwriteAndRewind(times int) {
	s.overwrite(1)
	before := s.current
	s.overwrite(times)
	s.rewindTo(before)
}

// writes has a candidate write the key, in the term that it acquired at the given time. The write is acknowledged at once.
func (s *story) writes(a *actor, acquired time.Time, create bool) *Write {
	q := &Write{By: a.Ledger, Create: create, Sent: s.now, Content: Content{Attempt: "x", Since: acquired}}
	if s.current != nil {
		q.Expect = s.current.Revision
	}
	s.WriteSent(q, s.now)
	s.put(&Entry{Write: q}, ByWrite)
	q.Acknowledged = s.now
	s.WriteKnown(q, s.now)
	return q
}

// acquiresUnanswered has a candidate acquire the key by a write whose reply is lost.
func (s *story) acquiresUnanswered(a *actor) *Write {
	q := &Write{By: a.Ledger, Create: true, Sent: s.now, Content: Content{Attempt: "x", Since: s.now}}
	s.WriteSent(q, s.now)
	s.put(&Entry{Write: q}, ByWrite)
	return q
}

// acquires has a candidate acquire the key and report that it is leader-elect.
func (s *story) acquires(a *actor) *Write {
	q := s.writes(a, s.now, true)
	a.state = election.LeaderElectState
	s.look()
	return q
}

// promote has a candidate report that it leads by an acquisition.
func (s *story) promote(a *actor, q *Write) {
	a.state, a.number = election.LeaderState, q.Revision
	s.look()
}

// follow has a candidate report that it neither leads nor holds the key.
func (s *story) follow(a *actor) {
	a.state, a.number = election.CandidateState, 0
	s.look()
}

// leadAfter has a candidate acquire the key and lead after the given stand-down. It renews once within the stand-down.
func (s *story) leadAfter(a *actor, standDown time.Duration) {
	acquired := s.now
	q := s.acquires(a)
	if half := standDown / 2; half > 0 {
		s.wait(half)
		s.writes(a, acquired, false)
	}
	s.wait(standDown - standDown/2)
	s.writes(a, acquired, false)
	s.promote(a, q)
}

func (s *story) lead(a *actor) { s.leadAfter(a, standDown) }

// leadAfterLaterTerm has a candidate acquire the key before another does, in a term of the given number, and lead after that.
func (s *story) leadAfterLaterTerm(a *actor, number uint64) {
	acquired := s.now
	q := s.acquires(a)
	s.wait(time.Second)
	s.newest, s.newestAt = election.Term{Number: number, BucketCreated: a.bucket}, s.now
	s.wait(6500 * time.Millisecond)
	s.writes(a, acquired, false)
	s.promote(a, q)
}

// leadOn has a lose the key by a deletion and lead beside b for longer than a TTL. Before a renews once more, prepare makes that
// possible.
func (s *story) leadOn(a, b *actor, prepare func()) {
	first := s.now
	s.lead(a)
	s.remove()
	b.StandDown = 0
	second := s.now
	s.leadAfter(b, 1)
	s.wait(5 * time.Second)
	s.writes(b, second, false)
	s.wait(2 * time.Second)
	prepare()
	s.writes(a, first, false)
	s.wait(5 * time.Second)
	s.look()
	s.follow(b)
}

// leadThenRewind has a candidate lead, and a second later the bucket goes back to its state before the acquisition.
func (s *story) leadThenRewind(a *actor) {
	s.overwrite(1)
	before := s.current
	s.lead(a)
	s.wait(time.Second - 1)
	s.rewindTo(before)
}

// leadThenRewindBeforeAcknowledged has a candidate lead for the second time, by an acquisition that a rewind takes back before it is acknowledged.
func (s *story) leadThenRewindBeforeAcknowledged(a *actor) {
	s.lead(a)
	a.mayEnd = true
	s.follow(a)
	s.overwrite(1)
	before := s.current
	q := s.acquiresUnanswered(a)
	s.rewindTo(before)
	q.Acknowledged = s.now
	s.WriteKnown(q, s.now)
	a.term.mayLead = true
	s.promote(a, q)
}

// renewLateAfterShorterTTL has a candidate lead by a lease of twice the TTL that the bucket has now, and renew. The acknowledgement comes so long after
// its last renewal was sent.
func (s *story) renewLateAfterShorterTTL(a *actor, after time.Duration) {
	s.lead(a)
	s.longest, a.term.deadline, a.term.sent = 2*storyTTL, s.now.Add(2*storyTTL), s.now
	q := &Write{By: a.Ledger, Sent: s.now.Add(after - time.Second), Content: Content{Since: a.term.win.Content.Since}}
	s.wait(after)
	s.WriteKnown(q, s.now)
}

// leadBoth has b lead beside a for a while after history was rewound.
func (s *story) leadBoth(a, b *actor, together time.Duration) {
	b.StandDown = 0
	s.leadThenRewind(a)
	a.troubledUntil = s.now // a need not find out by its next renewal
	s.leadAfter(b, 1)
	for _, l := range []*actor{a, b} { // neither misses its deadline
		l.term.deadline = s.now.Add(time.Hour)
	}
	s.wait(together)
	b.mayEnd = true
	s.follow(b)
}

// refusedRenewal returns a renewal in the term that a candidate acquired at the given time.
func (s *story) refusedRenewal(a *actor, acquired time.Time) *Write {
	return &Write{By: a.Ledger, Sent: s.now, Expect: a.revision, Content: Content{Attempt: "x", Since: acquired}}
}

// leadOnAfter has a candidate acquire the key at the second revision and lead, and lead on after something happens.
func (s *story) leadOnAfter(a *actor, happens func(acquired time.Time)) {
	s.overwrite(1)
	acquired := s.now
	s.lead(a)
	happens(acquired)
	s.wait(1)
	s.look()
}

// strangers returns the record of a stranger with a revision.
func strangers(revision uint64) *Entry { return &Entry{Revision: revision, Write: &Write{}} }

// leadAfterLateRelease has b lead over a release that a sent before something happened and a led again.
func (s *story) leadAfterLateRelease(a, b *actor, happens func()) {
	q := &Write{By: a.Ledger, Sent: s.now, Content: Content{Attempt: "x", Released: s.now}}
	s.wait(time.Second)
	happens()
	s.wait(1)
	s.lead(a)
	s.put(&Entry{Write: q}, ByWrite)
	s.leadAfter(b, 1)
}

// leadByUpdate has b read a release of a's that names b, then something happen, and b lead by its own update of what it read. The update is applied.
func (s *story) leadByUpdate(a, b *actor, happens func(before *Entry)) {
	s.overwrite(1)
	before := s.current
	s.release(a, 0, b.Name)
	b.lastRead = s.current
	happens(before)
	q := &Write{By: b.Ledger, Expect: s.seq, Sent: s.now, Content: Content{Attempt: "x", Since: s.now}}
	s.WriteSent(q, s.now)
	s.put(&Entry{Write: q}, ByWrite)
	q.Acknowledged = s.now
	s.WriteKnown(q, s.now)
	s.promote(b, q)
}

// leadThenHit has a candidate lead, and then one of its writes arrive that it sent before something happened.
func (s *story) leadThenHit(a *actor, happens func()) {
	q := &Write{By: a.Ledger, Sent: s.now, Content: Content{Attempt: "x", Since: s.now}}
	s.wait(1)
	happens()
	s.lead(a)
	s.put(&Entry{Write: q}, ByWrite)
}

// release has a candidate release the key, pass on the given stand-down and name successors.
func (s *story) release(a *actor, left time.Duration, successors ...string) {
	q := &Write{By: a.Ledger, Sent: s.now, Content: Content{Attempt: "x", Released: s.now, StandDownMs: left.Milliseconds(), Successors: successors}}
	s.WriteSent(q, s.now)
	s.put(&Entry{Write: q}, ByWrite)
}

// never is what does not become true.
func never() bool { return false }
