package judge

import (
	"time"

	"github.com/natscampaign/election"
)

// aboutLeading breaks P1 or P2, or comes close without breaking either.
var aboutLeading = []tale{
	{"a leader renews", "", func(s *story, a, _ *actor) { s.lead(a) }},
	{"a leader leads past its deadline", "P1", func(s *story, a, _ *actor) {
		s.lead(a)
		s.wait(9800 * time.Millisecond)
		s.look()
	}},
	{"a term is valid in which nobody leads", "P1", func(s *story, a, _ *actor) {
		s.lead(a)
		s.WorkBegan(a.Ledger, election.Term{}, never, never)
		a.workValid = func() bool { return true }
		a.mayEnd = true
		s.follow(a)
	}},
	{"a leader waits too short a stand-down", "P2", func(s *story, a, _ *actor) { s.leadAfter(a, standDown-time.Millisecond) }},
	{"two lead, and the first still has the key", "P2", func(s *story, a, b *actor) {
		s.lead(a)
		s.lead(b)
	}},
	{"two lead after an expiry that was far too early", "", func(s *story, a, b *actor) {
		s.lead(a)
		s.wait(2 * time.Second)
		s.put(nil, ByExpiry)
		s.lead(b)
	}},
	{"two lead after a renewal was acknowledged and deleted by an expiry", "", func(s *story, a, b *actor) {
		acquired := s.now
		s.lead(a)
		s.wait(2 * time.Second)
		s.writes(a, acquired, false)
		s.put(nil, ByLateExpiry)
		s.lead(b)
	}},
	{"two lead in a bucket whose revisions had been in use before it was reset", "", func(s *story, a, b *actor) {
		s.overwrite(3)
		s.put(nil, ByRecreation)
		s.seq = 0
		s.wait(1)
		s.lead(a) // by the third write
		s.lead(b)
	}},
	{"two lead, and the second acquired the key before a reset and hit the record of the first", "", func(s *story, a, b *actor) {
		s.removeNotified(b)
		s.wait(1)
		acquired := s.now
		q := s.acquires(b)
		s.wait(time.Second)
		s.put(nil, BySequence)
		s.wait(1)
		s.lead(a)
		s.remove()
		s.wait(500 * time.Millisecond)
		s.writes(b, acquired, false)
		s.wait(1500 * time.Millisecond)
		s.writes(b, acquired, false)
		s.promote(b, q)
	}},
	{"a leader gives up a term over which its own late release was written", "", func(s *story, a, _ *actor) {
		q := &Write{By: a.Ledger, Sent: s.now, Content: Content{Attempt: "x", Released: s.now}}
		s.wait(time.Second)
		s.lead(a)
		s.put(&Entry{Write: q}, ByWrite)
		s.wait(1)
		s.follow(a)
	}},
	{"two lead after a late release hit a later record of its writer, after a reset", "", func(s *story, a, b *actor) {
		s.leadAfterLateRelease(a, b, func() { s.put(nil, BySequence) })
	}},
	{"two lead after a late release hit a later record of its writer, without a reset", "P2", func(s *story, a, b *actor) {
		s.leadAfterLateRelease(a, b, func() {})
	}},
	{"two lead after a late release hit a later record of its writer, after a rewind", "", func(s *story, a, b *actor) {
		s.overwrite(1)
		before := s.current
		s.overwrite(1)
		s.leadAfterLateRelease(a, b, func() { s.rewindTo(before) })
	}},
	{"two lead, and the second acquired the key after the history of the first was rewound", "", func(s *story, a, b *actor) {
		s.leadThenRewind(a)
		s.lead(b)
	}},
	{"two lead that acquired the key after history was rewound", "P2", func(s *story, a, b *actor) {
		s.overwriteAndRewind(1)
		s.lead(a)
		s.lead(b)
	}},
	{"two lead, and the second hit the revision of a record that was lost in a rewind", "", func(s *story, a, b *actor) {
		b.StandDown = 0
		s.overwriteAndRewind(3)
		s.lead(a) // by the writes that have these revisions now
		s.leadAfter(b, 1)
	}},
	{"a candidate leads by its own update of a release that names it", "", func(s *story, a, b *actor) {
		s.leadByUpdate(a, b, func(*Entry) {})
	}},
	{"a candidate leads by such an update, which hit another record after a rewind", "", func(s *story, a, b *actor) {
		s.leadByUpdate(a, b, func(before *Entry) {
			s.rewindTo(before)
			s.overwrite(1)
		})
	}},
	{"a candidate leads by its own update of a record that is no release", "P2", func(s *story, a, b *actor) {
		s.leadByUpdate(a, b, func(*Entry) { b.lastRead = strangers(s.seq) })
	}},
	{"two lead for two leases after a rewind", "", func(s *story, a, b *actor) { s.leadBoth(a, b, 2*storyTTL) }},
	{"two lead for longer than two leases after a rewind", "P2", func(s *story, a, b *actor) { s.leadBoth(a, b, 2*storyTTL+1) }},
	{"two lead in a bucket that was reset before its first write", "P2", func(s *story, a, b *actor) {
		s.put(nil, ByRecreation)
		s.wait(1)
		s.lead(a)
		s.lead(b)
	}},
	{"two lead after a deletion without a notification", "", func(s *story, a, b *actor) {
		s.lead(a)
		s.remove()
		s.lead(b)
	}},
	{"two lead for longer than a TTL after such a deletion", "P2", func(s *story, a, b *actor) { s.leadOn(a, b, func() {}) }},
	{"two lead for longer than a TTL after such a deletion, and one hit another record after a reset", "", func(s *story, a, b *actor) {
		s.leadOn(a, b, func() {
			s.put(nil, BySequence)
			s.wait(1)
			s.overwrite(1)
		})
	}},
	{"a winner is notified of the deletion and waits less than a TTL", "P2", func(s *story, _, b *actor) {
		s.removeNotified(b)
		s.lead(b)
	}},
	{"a candidate adopts its own acquisition after such a deletion and waits less than a TTL", "P2", func(s *story, _, b *actor) {
		s.removeNotified(b)
		s.acquiresUnanswered(b)
		s.wait(2 * time.Second)
		s.leadAfter(b, storyTTL-1)
	}},
	{"a candidate adopts its own acquisition after such a deletion and waits a TTL", "", func(s *story, _, b *actor) {
		s.removeNotified(b)
		s.acquiresUnanswered(b)
		s.wait(2 * time.Second)
		s.leadAfter(b, storyTTL)
	}},
	{"a candidate adopts its own renewal as leader-elect after such a deletion and waits less than the rest", "P2", func(s *story, _, b *actor) {
		s.adoptRenewal(b, 8*time.Second-1)
	}},
	{"a candidate adopts its own renewal as leader-elect after such a deletion and waits the rest", "", func(s *story, _, b *actor) {
		s.adoptRenewal(b, 8*time.Second)
	}},
	{"a candidate adopts its own renewal as leader", "", func(s *story, _, b *actor) {
		b.StandDown = 0
		s.removeNotified(b)
		s.leadAfter(b, storyTTL)
		b.mayEnd = true
		s.follow(b)
		s.leadAfter(b, 1)
	}},
}

// adoptRenewal has a candidate with no stand-down of its own renew as leader-elect, 2 s after it acquired the key over a
// deletion of which it was notified, and lead another 2 s and the given stand-down later.
func (s *story) adoptRenewal(b *actor, waits time.Duration) {
	b.StandDown = 0
	s.removeNotified(b)
	acquired := s.now
	s.writes(b, acquired, true)
	s.wait(2 * time.Second)
	s.writes(b, acquired, false)
	s.wait(2 * time.Second)
	s.leadAfter(b, waits)
}
