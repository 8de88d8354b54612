package sim

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election"
)

// story is a history made by hand, to see that the judge condemns what it should and nothing else.
type story struct {
	*judge
	t     *testing.T
	now   time.Time
	seq   uint64
	stood *entry
}

// actor is a candidate that says what the story has it say.
type actor struct {
	*ledger
	state election.State
	term  uint64 // 0: it does not lead
	made  time.Time
}

func (a *actor) State() election.State { return a.state }
func (a *actor) IsLeader() bool        { return a.term > 0 }
func (a *actor) Term() (election.Term, bool) {
	return election.Term{Key: electionKey, Name: a.name, Number: a.term, Bucket: a.made}, a.term > 0
}

const storyTTL = 10 * time.Second // so that the stand-down is 7.5 s, and the margin 200 ms

func newStory(t *testing.T) *story {
	now := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	return &story{judge: newJudge(storyTTL, &journal{began: now}, tally{}), t: t, now: now}
}

func (s *story) actor(name string) *actor {
	a := &actor{ledger: s.enlist(name, &plan{standDown: -1, interval: -1, margin: -1}, storyTTL), state: election.CandidateState, made: s.now}
	a.ledger.status = a
	s.started(a.ledger)
	return a
}

// put changes what stands under the key.
func (s *story) put(e *entry, kind removal) {
	before := s.stood
	if e != nil {
		s.seq++
		e.revision = s.seq
		if e.write != nil {
			e.write.applied, e.write.revision, e.write.over = s.now, s.seq, before
		}
	}
	s.stood = e
	s.moved(mutation{at: s.now, before: before, after: e, removal: kind})
}

// writes has a candidate write the key, in the term that it won at the given time, and be acknowledged at once.
func (s *story) writes(a *actor, won time.Time, create bool) *write {
	q := &write{by: a.ledger, create: create, sent: s.now, note: note{Attempt: "x", Since: won}}
	if s.stood != nil {
		q.expect = s.stood.revision
	}
	s.sent(q, s.now)
	s.put(&entry{write: q}, removalWritten)
	q.answered = s.now
	s.known(q, s.now)
	return q
}

func (s *story) passes(d time.Duration) { s.now = s.now.Add(d) }

// unanswered has a candidate win the key by a write whose reply is lost.
func (s *story) unanswered(a *actor) {
	q := &write{by: a.ledger, create: true, sent: s.now, note: note{Attempt: "x", Since: s.now}}
	s.sent(q, s.now)
	s.put(&entry{write: q}, removalWritten)
}

// deleted has somebody delete the key, of which the candidate hears.
func (s *story) deleted(a *actor) {
	s.put(&entry{op: jetstream.KeyValueDelete, write: &write{remove: true}}, removalWritten)
	a.heard = func() (*entry, time.Time, *entry) { return s.stood, s.now.Add(-1), nil }
}

// leads has a candidate win and come to lead, after the given stand-down, in the course of which it renews.
func (s *story) leads(a *actor, standDown time.Duration) {
	won := s.now
	q := s.writes(a, won, true)
	a.state = election.LeaderElectState
	s.observe(s.now)
	if half := standDown / 2; half > 0 {
		s.passes(half)
		s.writes(a, won, false)
	}
	s.passes(standDown - standDown/2)
	s.writes(a, won, false)
	a.state, a.term = election.LeaderState, q.revision
	s.observe(s.now)
}

// wonBefore has a candidate win before another does in a term of the given number, and lead after that one has.
func (s *story) wonBefore(a *actor, number uint64) {
	won := s.now
	q := s.writes(a, won, true)
	a.state = election.LeaderElectState
	s.observe(s.now)
	s.passes(time.Second)
	s.newest, s.newestAt = election.Term{Number: number, Bucket: a.made}, s.now
	s.passes(6500 * time.Millisecond)
	s.writes(a, won, false)
	a.state, a.term = election.LeaderState, q.revision
	s.observe(s.now)
}

// leadOn has one lead beside another that lost the key by a deletion, until long after that one has written once more, which
// something makes possible.
func (s *story) leadOn(a, b *actor, makePossible func()) {
	first := s.now
	s.leads(a, 7500*time.Millisecond)
	s.put(&entry{op: jetstream.KeyValueDelete, write: &write{remove: true}}, removalWritten)
	b.standDown = 0
	second := s.now
	s.leads(b, 1)
	s.passes(5 * time.Second)
	s.writes(b, second, false)
	s.passes(2 * time.Second)
	makePossible()
	s.writes(a, first, false)
	s.passes(5 * time.Second)
	s.observe(s.now)
	b.state, b.term = election.CandidateState, 0
	s.observe(s.now)
}

// rewinds takes the bucket back to when the given entry stood under the key.
func (s *story) rewinds(e *entry) {
	before := s.stood
	s.stood, s.seq = e, e.revision
	s.moved(mutation{at: s.now, before: before, after: e, removal: removalRewound, seq: e.revision})
	s.passes(1)
}

// leadsBack has a candidate come to lead, and the bucket go back a second later to what stood under the key before.
func (s *story) leadsBack(a *actor) {
	s.put(&entry{write: &write{}}, removalWritten)
	before := s.stood
	s.leads(a, 7500*time.Millisecond)
	s.passes(time.Second - 1)
	s.rewinds(before)
}

// renewal is one of the term that a candidate won at the given time, to be refused.
func (s *story) renewal(a *actor, won time.Time) *write {
	return &write{by: a.ledger, sent: s.now, expect: a.revision, note: note{Attempt: "x", Since: won}}
}

// told has a candidate win at the second revision and lead, be told something then, and lead on.
func (s *story) told(a *actor, tell func(won time.Time)) {
	s.put(&entry{write: &write{}}, removalWritten)
	won := s.now
	s.leads(a, 7500*time.Millisecond)
	tell(won)
	s.passes(1)
	s.observe(s.now)
}

// foreign is the record of somebody else with a revision.
func foreign(revision uint64) *entry { return &entry{revision: revision, write: &write{}} }

// leadAfterRelease has b lead over a release that a sent before something happened and a led again.
func (s *story) leadAfterRelease(a, b *actor, happens func()) {
	q := &write{by: a.ledger, sent: s.now, note: note{Attempt: "x", Released: s.now}}
	s.passes(time.Second)
	happens()
	s.passes(1)
	s.leads(a, 7500*time.Millisecond)
	s.put(&entry{write: q}, removalWritten)
	s.leads(b, 1)
}

// displaced has a candidate stand down since the bucket went back to what it was.
func (s *story) displaced(a *actor) {
	s.rewinds(s.stood)
	a.state, a.term = election.CandidateState, 0
	s.observe(s.now)
}

// leadBoth has b lead beside a for a while since history was rewound.
func (s *story) leadBoth(a, b *actor, together time.Duration) {
	b.standDown = 0
	s.leadsBack(a)
	a.troubled = s.now // so that it may take its time to find out
	s.leads(b, 1)
	for _, l := range []*actor{a, b} { // somehow they do not miss their deadlines
		l.hold.bound = s.now.Add(time.Hour)
	}
	s.passes(together)
	b.state, b.term = election.CandidateState, 0
	s.leaves(b.ledger)
	s.observe(s.now)
}

// givesBack has a candidate release what it won just now, and pass on the given stand-down.
func (s *story) givesBack(a *actor, left time.Duration) {
	q := &write{by: a.ledger, sent: s.now, note: note{Attempt: "x", Released: s.now, StandDownMs: left.Milliseconds()}}
	s.sent(q, s.now)
	s.put(&entry{write: q}, removalWritten)
}

func (s *story) releases(a *actor) {
	q := &write{by: a.ledger, sent: s.now, note: note{Attempt: "x", Released: s.now}}
	s.sent(q, s.now)
	s.put(&entry{write: q}, removalWritten)
}

// stories are those in which one promise is broken, and the same without that.
var stories = []struct {
	name    string
	promise string // the one that is broken, empty if none is
	tell    func(s *story, a, b *actor)
}{
	{"a leader that renews", "", func(s *story, a, _ *actor) {
		s.leads(a, 7500*time.Millisecond)
	}},
	{"a leader past its deadline", "P1", func(s *story, a, _ *actor) {
		s.leads(a, 7500*time.Millisecond)
		s.passes(9800 * time.Millisecond)
		s.observe(s.now)
	}},
	{"a term that is valid in which nobody leads", "P1", func(s *story, a, _ *actor) {
		s.leads(a, 7500*time.Millisecond)
		s.worksOn(a.ledger, election.Term{}, context.Background())
		a.valid = func() bool { return true }
		a.state, a.term = election.CandidateState, 0
		s.leaves(a.ledger)
		s.observe(s.now)
	}},
	{"a leader that did not stand down", "P2", func(s *story, a, _ *actor) {
		s.leads(a, 7499*time.Millisecond)
	}},
	{"two leaders, one of which still has the key", "P2", func(s *story, a, b *actor) {
		s.leads(a, 7500*time.Millisecond)
		s.leads(b, 7500*time.Millisecond)
	}},
	{"two leaders after an expiry that was far too early", "", func(s *story, a, b *actor) {
		s.leads(a, 7500*time.Millisecond)
		s.passes(2 * time.Second)
		s.put(nil, removalExpired)
		s.leads(b, 7500*time.Millisecond)
	}},
	{"two leaders after a renewal was acknowledged and wiped", "", func(s *story, a, b *actor) {
		won := s.now
		s.leads(a, 7500*time.Millisecond)
		s.passes(2 * time.Second)
		s.writes(a, won, false)
		s.put(nil, removalWiped)
		s.leads(b, 7500*time.Millisecond)
	}},
	{"two leaders in a bucket whose revisions had been in use before it was reset", "", func(s *story, a, b *actor) {
		for range 3 {
			s.put(&entry{write: &write{}}, removalWritten)
		}
		s.put(nil, removalRemade)
		s.seq = 0
		s.passes(1)
		s.leads(a, 7500*time.Millisecond) // by the third write
		s.leads(b, 7500*time.Millisecond)
	}},
	{"two leaders, of whom the second won before the bucket was reset and hit what the first had left", "", func(s *story, a, b *actor) {
		s.deleted(b)
		s.passes(1)
		won := s.now
		q := s.writes(b, won, true)
		b.state = election.LeaderElectState
		s.observe(s.now)
		s.passes(time.Second)
		s.put(nil, removalForgotten)
		s.passes(1)
		s.leads(a, 7500*time.Millisecond)
		s.put(&entry{op: jetstream.KeyValueDelete, write: &write{remove: true}}, removalWritten)
		s.passes(500 * time.Millisecond)
		s.writes(b, won, false)
		s.passes(1500 * time.Millisecond)
		s.writes(b, won, false)
		b.state, b.term = election.LeaderState, q.revision
		s.observe(s.now)
	}},
	{"two leaders after a late release hit a later record of its writer in a bucket that was reset", "", func(s *story, a, b *actor) {
		s.leadAfterRelease(a, b, func() { s.put(nil, removalForgotten) })
	}},
	{"two leaders after a late release hit a later record of its writer in a bucket that was not reset", "P2", func(s *story, a, b *actor) {
		s.leadAfterRelease(a, b, func() {})
	}},
	{"two leaders after a late release hit a later record of its writer in a history that was rewound", "", func(s *story, a, b *actor) {
		s.put(&entry{write: &write{}}, removalWritten)
		before := s.stood
		s.put(&entry{write: &write{}}, removalWritten)
		s.leadAfterRelease(a, b, func() { s.rewinds(before) })
	}},
	{"two leaders, the second of whom won after the history of the first was rewound", "", func(s *story, a, b *actor) {
		s.leadsBack(a)
		s.leads(b, 7500*time.Millisecond)
	}},
	{"two leaders, both of whom won after the history was rewound", "P2", func(s *story, a, b *actor) {
		s.put(&entry{write: &write{}}, removalWritten)
		before := s.stood
		s.put(&entry{write: &write{}}, removalWritten)
		s.rewinds(before)
		s.leads(a, 7500*time.Millisecond)
		s.leads(b, 7500*time.Millisecond)
	}},
	{"two leaders, the second of whom hit what had the revision of a record that was lost with the history", "", func(s *story, a, b *actor) {
		b.standDown = 0
		s.put(&entry{write: &write{}}, removalWritten)
		before := s.stood
		for range 3 {
			s.put(&entry{write: &write{}}, removalWritten)
		}
		s.rewinds(before)
		s.leads(a, 7500*time.Millisecond) // by the writes that have these revisions now
		s.leads(b, 1)
	}},
	{"two leaders for as long as two leases may last after the history was rewound", "", func(s *story, a, b *actor) {
		s.leadBoth(a, b, 2*storyTTL)
	}},
	{"two leaders for longer", "P2", func(s *story, a, b *actor) {
		s.leadBoth(a, b, 2*storyTTL+1)
	}},
	{"two leaders in a bucket that was reset when nothing had been written to it", "P2", func(s *story, a, b *actor) {
		s.put(nil, removalRemade)
		s.passes(1)
		s.leads(a, 7500*time.Millisecond)
		s.leads(b, 7500*time.Millisecond)
	}},
	{"two leaders after a deletion that nobody heard of", "", func(s *story, a, b *actor) {
		s.leads(a, 7500*time.Millisecond)
		s.put(&entry{op: jetstream.KeyValueDelete, write: &write{remove: true}}, removalWritten)
		s.leads(b, 7500*time.Millisecond)
	}},
	{"two leaders for longer than a TTL after a deletion that nobody heard of", "P2", func(s *story, a, b *actor) {
		s.leadOn(a, b, func() {})
	}},
	{"two leaders for longer than a TTL after such a deletion, one of whom hit what stood in a bucket that was reset", "", func(s *story, a, b *actor) {
		s.leadOn(a, b, func() {
			s.put(nil, removalForgotten)
			s.passes(1)
			s.put(&entry{write: &write{}}, removalWritten)
		})
	}},
	{"a winner that heard of the deletion and waited too short a time", "P2", func(s *story, _, b *actor) {
		s.deleted(b)
		s.leads(b, 7500*time.Millisecond)
	}},
	{"one that takes over its own win after a deletion that it heard of, and waits too short a time", "P2", func(s *story, _, b *actor) {
		s.deleted(b)
		s.unanswered(b)
		s.passes(2 * time.Second)
		s.leads(b, storyTTL-1)
	}},
	{"one that takes over its own win after a deletion that it heard of, and waits for a TTL", "", func(s *story, _, b *actor) {
		s.deleted(b)
		s.unanswered(b)
		s.passes(2 * time.Second)
		s.leads(b, storyTTL)
	}},
	{"one that takes over what it renewed as leader-elect after such a deletion, and does not wait for what was left", "P2", func(s *story, _, b *actor) {
		b.standDown = 0
		s.deleted(b)
		won := s.now
		s.writes(b, won, true)
		s.passes(2 * time.Second)
		s.writes(b, won, false)
		s.passes(2 * time.Second)
		s.leads(b, 8*time.Second-1)
	}},
	{"one that takes over what it renewed as leader-elect after such a deletion, and waits for what was left", "", func(s *story, _, b *actor) {
		b.standDown = 0
		s.deleted(b)
		won := s.now
		s.writes(b, won, true)
		s.passes(2 * time.Second)
		s.writes(b, won, false)
		s.passes(2 * time.Second)
		s.leads(b, 8*time.Second)
	}},
	{"one that takes over what it wrote when it led", "", func(s *story, _, b *actor) {
		b.standDown = 0
		s.deleted(b)
		s.leads(b, storyTTL)
		b.state, b.term = election.CandidateState, 0
		s.leaves(b.ledger)
		s.observe(s.now)
		s.leads(b, 1)
	}},
	{"a release while work goes on", "P3", func(s *story, a, _ *actor) {
		s.leads(a, 7500*time.Millisecond)
		s.worksOn(a.ledger, election.Term{}, context.Background())
		s.leaves(a.ledger)
		a.state, a.term = election.CandidateState, 0
		s.releases(a)
	}},
	{"a win that is given back at once, while OnCampaign runs", "", func(s *story, a, _ *actor) {
		s.called(a.ledger, "OnCampaign", s.now)
		s.writes(a, s.now, true)
		s.givesBack(a, 7500*time.Millisecond)
	}},
	{"a win that is given back at once with less than is left of the stand-down", "P2", func(s *story, a, _ *actor) {
		s.writes(a, s.now, true)
		s.givesBack(a, 7499*time.Millisecond)
	}},
	{"a leader-elect that releases while OnCampaign runs", "P3", func(s *story, a, _ *actor) {
		s.writes(a, s.now, true)
		a.state = election.LeaderElectState
		s.observe(s.now)
		s.called(a.ledger, "OnCampaign", s.now)
		s.leaves(a.ledger)
		a.state = election.CandidateState
		s.givesBack(a, 7500*time.Millisecond)
	}},
	{"a release after all has returned", "", func(s *story, a, b *actor) {
		s.leads(a, 7500*time.Millisecond)
		s.leaves(a.ledger)
		a.state, a.term = election.CandidateState, 0
		s.releases(a)
		s.leads(b, 1)
	}},
	{"work whose context does not end", "P3", func(s *story, a, _ *actor) {
		s.worksOn(a.ledger, election.Term{}, context.Background())
		s.lingers(s.now)
		s.passes(1)
		s.lingers(s.now)
	}},
	{"OnLost without OnWon", "P4", func(s *story, a, _ *actor) {
		s.called(a.ledger, "OnLost", s.now)
	}},
	{"OnLost after the deadline", "P4", func(s *story, a, _ *actor) {
		s.leads(a, 7500*time.Millisecond)
		s.called(a.ledger, "OnWon", s.now)
		s.answered(a.ledger, "OnWon", s.now)
		s.passes(9801 * time.Millisecond)
		a.state, a.term = election.CandidateState, 0
		s.called(a.ledger, "OnLost", s.now)
	}},
	{"two callbacks at once", "P4", func(s *story, a, _ *actor) {
		s.called(a.ledger, "OnWon", s.now)
		s.called(a.ledger, "OnCampaign", s.now)
	}},
	{"a candidate that returns and owes OnLost", "P4", func(s *story, a, _ *actor) {
		s.called(a.ledger, "OnWon", s.now)
		s.answered(a.ledger, "OnWon", s.now)
		a.state = election.UnknownState
		s.returned(a.ledger, nil, false, s.now)
	}},
	{"a number that does not grow", "P5", func(s *story, a, b *actor) {
		s.newest = election.Term{Number: 7, Bucket: b.made}
		s.leads(a, 7500*time.Millisecond)
	}},
	{"a number that does not grow since the bucket was reset", "", func(s *story, a, b *actor) {
		s.newest = election.Term{Number: 7, Bucket: b.made}
		s.put(nil, removalForgotten)
		s.leads(a, 7500*time.Millisecond)
	}},
	{"a number below that of one who won later and led first", "", func(s *story, a, _ *actor) {
		s.wonBefore(a, 7)
	}},
	{"a number above that of one who won later and led first", "P5", func(s *story, a, _ *actor) {
		s.wonBefore(a, 0)
	}},
	{"a number that does not grow since a leader after the bucket was reset", "P5", func(s *story, a, b *actor) {
		s.put(nil, removalForgotten)
		s.passes(1)
		s.leads(b, 7500*time.Millisecond)
		b.state, b.term = election.CandidateState, 0
		s.newest.Number += 7
		s.put(&entry{write: &write{}}, removalWritten)
		s.leads(a, 7500*time.Millisecond)
	}},
	{"a number that does not grow since the history was rewound", "", func(s *story, a, b *actor) {
		s.put(&entry{write: &write{}}, removalWritten)
		before := s.stood
		s.put(&entry{write: &write{}}, removalWritten)
		s.newest, s.newestAt = election.Term{Number: 7, Bucket: b.made}, s.now
		s.rewinds(before)
		s.leads(a, 7500*time.Millisecond)
	}},
	{"a leader that is refused with a sequence before that which it demanded", "P11", func(s *story, a, _ *actor) {
		s.told(a, func(won time.Time) { s.refused(s.renewal(a, won), a.revision-1, s.now) })
	}},
	{"a leader that is so refused and stands down", "", func(s *story, a, _ *actor) {
		s.told(a, func(won time.Time) {
			s.refused(s.renewal(a, won), a.revision-1, s.now)
			s.displaced(a)
		})
	}},
	{"a leader that is refused with a later sequence, or none", "", func(s *story, a, _ *actor) {
		s.told(a, func(won time.Time) {
			s.refused(s.renewal(a, won), a.revision+1, s.now)
			s.refused(s.renewal(a, won), 0, s.now)
		})
	}},
	{"a leader whose write of an earlier term is refused with an earlier sequence", "", func(s *story, a, _ *actor) {
		s.told(a, func(won time.Time) { s.refused(s.renewal(a, won.Add(-1)), a.revision-1, s.now) })
	}},
	{"a leader that reads a record of somebody else from between its win and its last write", "P11", func(s *story, a, _ *actor) {
		s.told(a, func(time.Time) { s.read(a.ledger, foreign(a.revision-1), s.now) })
	}},
	{"a leader that reads a record of somebody else from before its win, from a replica that lags", "", func(s *story, a, _ *actor) {
		s.told(a, func(time.Time) { s.read(a.ledger, foreign(a.hold.win.revision-1), s.now) })
	}},
	{"a leader that reads an earlier record of its own", "", func(s *story, a, _ *actor) {
		s.told(a, func(time.Time) {
			s.read(a.ledger, &entry{revision: a.revision - 1, write: &write{by: a.ledger}}, s.now)
		})
	}},
	{"a connected leader for as long as it may take to find out that its history was rewound", "", func(s *story, a, _ *actor) {
		s.named = true
		s.leadsBack(a)
		s.now = s.discovered(a.ledger)
		s.observe(s.now)
	}},
	{"a connected leader for longer", "P11", func(s *story, a, _ *actor) {
		s.named = true
		s.leadsBack(a)
		s.now = s.discovered(a.ledger).Add(1)
		s.observe(s.now)
	}},
	{"a leader for longer that had trouble meanwhile", "", func(s *story, a, _ *actor) {
		s.named = true
		s.leadsBack(a)
		s.passes(7600 * time.Millisecond)
		a.troubled = s.now
		s.observe(s.now)
	}},
	{"a leader for longer whose record is under the key again, as it hit that of its successor by chance", "", func(s *story, a, _ *actor) {
		s.named = true
		won := s.now
		s.leadsBack(a)
		s.writes(a, won, false)
		s.passes(8 * time.Second)
		s.observe(s.now)
	}},
	{"a leader for longer in a replicated bucket, where a record from before its win proves nothing", "", func(s *story, a, _ *actor) {
		s.leadsBack(a)
		s.passes(7600 * time.Millisecond)
		s.observe(s.now)
	}},
	{"a leader for longer in a replicated bucket, where its successor has renewed", "P11", func(s *story, a, b *actor) {
		s.leadsBack(a)
		won := s.now
		s.writes(b, won, true)
		s.writes(b, won, false)
		s.passes(7600 * time.Millisecond)
		s.observe(s.now)
	}},
	{"a leader that gives up without cause", "P6", func(s *story, a, _ *actor) {
		s.leads(a, 7500*time.Millisecond)
		s.passes(time.Second)
		a.state, a.term = election.CandidateState, 0
		s.observe(s.now)
	}},
	{"a leader that gives up without cause, and its work returns at once", "P6", func(s *story, a, _ *actor) {
		s.leads(a, 7500*time.Millisecond)
		ctx, cancel := context.WithCancel(context.Background())
		s.worksOn(a.ledger, election.Term{}, ctx)
		s.passes(time.Second)
		cancel()
		a.state, a.term = election.CandidateState, 0
		s.idle(a.ledger)
		s.observe(s.now)
	}},
	{"a leader whose work returns by itself", "", func(s *story, a, _ *actor) {
		s.leads(a, 7500*time.Millisecond)
		s.worksOn(a.ledger, election.Term{}, context.Background())
		s.passes(time.Second)
		s.idle(a.ledger)
		a.state, a.term = election.CandidateState, 0
		s.observe(s.now)
	}},
	{"a leader that gives up since its key was overwritten", "", func(s *story, a, _ *actor) {
		s.leads(a, 7500*time.Millisecond)
		s.put(&entry{write: &write{}}, removalWritten)
		a.state, a.term = election.CandidateState, 0
		s.observe(s.now)
	}},
	{"a leader on a write that it had given up", "P7", func(s *story, a, _ *actor) {
		q := &write{by: a.ledger, create: true, sent: s.now, note: note{Attempt: "x", Since: s.now}}
		s.put(&entry{write: q}, removalWritten)
		s.known(q, s.now) // it has read it
		a.state, a.term = election.LeaderState, q.revision
		s.observe(s.now)
	}},
	{"a leader that learns that its connection is closed and stands down", "", func(s *story, a, _ *actor) {
		s.leads(a, 7500*time.Millisecond)
		s.disconnected(a.ledger, s.now)
		s.passes(storyTTL / 2)
		s.cutOff(a.ledger, s.now)
		a.state, a.term = election.UnknownState, 0
		s.passes(1)
		s.observe(s.now)
		s.returned(a.ledger, fmt.Errorf("ended: %w", nats.ErrConnectionClosed), false, s.now)
		s.unreturned(s.now, s.now.Add(time.Hour))
	}},
	{"a leader that learns that its connection is closed and leads on", closedPromise, func(s *story, a, _ *actor) {
		s.leads(a, 7500*time.Millisecond)
		s.disconnected(a.ledger, s.now)
		s.passes(storyTTL / 2)
		s.cutOff(a.ledger, s.now)
		s.passes(1)
		s.observe(s.now)
	}},
	{"a candidate on a closed connection that returns no error", closedPromise, func(s *story, a, _ *actor) {
		s.disconnected(a.ledger, s.now)
		a.state = election.UnknownState
		s.returned(a.ledger, nil, false, s.now)
	}},
	{"a candidate on a closed connection that is told to stop and returns no error", "", func(s *story, a, _ *actor) {
		s.disconnected(a.ledger, s.now)
		a.state = election.UnknownState
		s.returned(a.ledger, nil, true, s.now)
	}},
	{"a candidate on a closed connection whose work returns by itself", "", func(s *story, a, _ *actor) {
		s.leads(a, 7500*time.Millisecond)
		s.worksOn(a.ledger, election.Term{}, context.Background())
		s.disconnected(a.ledger, s.now)
		s.idle(a.ledger)
		a.state, a.term = election.UnknownState, 0
		s.returned(a.ledger, errWork, false, s.now)
	}},
	{"a candidate that runs on a closed connection for as long as it may", "", func(s *story, a, _ *actor) {
		s.disconnected(a.ledger, s.now)
		s.passes(time.Hour)
		s.unreturned(s.now, s.now.Add(s.closedLimit()))
	}},
	{"a candidate that runs on a closed connection for longer", closedPromise, func(s *story, a, _ *actor) {
		s.disconnected(a.ledger, s.now)
		s.passes(time.Hour)
		s.unreturned(s.now, s.now.Add(s.closedLimit()+1))
	}},
	{"a candidate that tells of a leader that it read", "", func(s *story, a, _ *actor) {
		s.announced(a.ledger, election.Leader{Name: "b"}, s.now)
	}},
	{"a candidate that tells of a leader that nobody ever was", "P10", func(s *story, a, _ *actor) {
		s.announced(a.ledger, election.Leader{Name: inventedLeader}, s.now)
	}},
	{"a leader that has returned", "P7", func(s *story, a, _ *actor) {
		s.leads(a, 7500*time.Millisecond)
		s.returned(a.ledger, nil, false, s.now)
	}},
}

// TestJudge tells them all.
func TestJudge(t *testing.T) {
	for _, c := range stories {
		t.Run(c.name, func(t *testing.T) {
			s := newStory(t)
			c.tell(s, s.actor("a"), s.actor("b"))
			got := strings.Join(s.failures, "\n")
			if ok := c.promise == "" && got == "" || c.promise != "" && strings.HasPrefix(got, c.promise+":"); !ok {
				t.Errorf("judged %q, want %q\n%s", got, c.promise, fmt.Sprint(s.journal))
			}
		})
	}
}
