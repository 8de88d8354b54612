package judge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natscampaign/election"
)

// tale is what happened, told to a judge.
type tale struct {
	name    string
	promise string // the broken one; empty if none is
	tell    func(s *story, a, b *actor)
}

// aboutAllElse breaks one of the other promises, or comes close without breaking it.
var aboutAllElse = []tale{
	{"a leader releases the key while its work goes on", "P3", func(s *story, a, _ *actor) {
		s.lead(a)
		s.WorkBegan(a.Ledger, election.Term{}, never, never)
		a.mayEnd = true
		a.state, a.number = election.CandidateState, 0
		s.release(a, 0)
	}},
	{"a winner abandons the key at once, while OnCampaign runs", "", func(s *story, a, _ *actor) {
		s.CallbackBegan(a.Ledger, "OnCampaign", s.now)
		s.writes(a, s.now, true)
		s.release(a, standDown)
	}},
	{"a winner abandons the key at once and passes on too short a stand-down", "P2", func(s *story, a, _ *actor) {
		s.writes(a, s.now, true)
		s.release(a, standDown-time.Millisecond)
	}},
	{"a leader-elect releases the key while OnCampaign runs", "P3", func(s *story, a, _ *actor) {
		s.acquires(a)
		s.CallbackBegan(a.Ledger, "OnCampaign", s.now)
		a.mayEnd = true
		a.state = election.CandidateState
		s.release(a, standDown)
	}},
	{"a leader releases the key after all has returned", "", func(s *story, a, b *actor) {
		s.lead(a)
		a.mayEnd = true
		a.state, a.number = election.CandidateState, 0
		s.release(a, 0)
		s.leadAfter(b, 1)
	}},
	{"the context of work does not end", "P3", func(s *story, a, _ *actor) {
		s.WorkBegan(a.Ledger, election.Term{}, never, never)
		s.CheckWorkContexts(s.now)
		s.wait(1)
		s.CheckWorkContexts(s.now)
	}},
	{"OnLost is called without OnWon", "P4", func(s *story, a, _ *actor) { s.CallbackBegan(a.Ledger, "OnLost", s.now) }},
	{"OnLost begins after the deadline", "P4", func(s *story, a, _ *actor) {
		s.lead(a)
		s.CallbackBegan(a.Ledger, "OnWon", s.now)
		s.CallbackReturned(a.Ledger, "OnWon", s.now)
		s.wait(9801 * time.Millisecond)
		a.state, a.number = election.CandidateState, 0
		s.CallbackBegan(a.Ledger, "OnLost", s.now)
	}},
	{"two callbacks run at once", "P4", func(s *story, a, _ *actor) {
		s.CallbackBegan(a.Ledger, "OnWon", s.now)
		s.CallbackBegan(a.Ledger, "OnCampaign", s.now)
	}},
	{"a candidate returns without OnLost", "P4", func(s *story, a, _ *actor) {
		s.CallbackBegan(a.Ledger, "OnWon", s.now)
		s.CallbackReturned(a.Ledger, "OnWon", s.now)
		a.state = election.UnknownState
		s.Returned(a.Ledger, nil, false, s.now)
	}},
	{"a number does not grow", "P5", func(s *story, a, b *actor) {
		s.newest = election.Term{Number: 7, BucketCreated: b.bucket}
		s.lead(a)
	}},
	{"a number does not grow across a reset", "", func(s *story, a, b *actor) {
		s.newest = election.Term{Number: 7, BucketCreated: b.bucket}
		s.put(nil, BySequence)
		s.lead(a)
	}},
	{"a number is below that of a term that was acquired later and led first", "", func(s *story, a, _ *actor) {
		s.leadAfterLaterTerm(a, 7)
	}},
	{"a number is above that of a term that was acquired later and led first", "P5", func(s *story, a, _ *actor) {
		s.leadAfterLaterTerm(a, 0)
	}},
	{"a number does not grow after a leader after a reset", "P5", func(s *story, a, b *actor) {
		s.put(nil, BySequence)
		s.wait(1)
		s.lead(b)
		b.state, b.number = election.CandidateState, 0
		s.newest.Number += 7
		s.overwrite(1)
		s.lead(a)
	}},
	{"a number does not grow across a rewind", "", func(s *story, a, b *actor) {
		s.newest, s.newestAt = election.Term{Number: 7, BucketCreated: b.bucket}, s.now
		s.overwriteAndRewind(1)
		s.lead(a)
	}},
	{"a leader's renewal is refused with a lower sequence than it demanded", "P11", func(s *story, a, _ *actor) {
		s.leadOnAfter(a, func(acquired time.Time) { s.WriteRefused(s.refusedRenewal(a, acquired), a.revision-1, s.now) })
	}},
	{"a leader's renewal is refused with a lower sequence, and it steps down", "", func(s *story, a, _ *actor) {
		s.leadOnAfter(a, func(acquired time.Time) {
			s.WriteRefused(s.refusedRenewal(a, acquired), a.revision-1, s.now)
			s.rewindTo(s.current)
			s.follow(a)
		})
	}},
	{"a leader's renewals are refused with a higher sequence, or none", "", func(s *story, a, _ *actor) {
		s.leadOnAfter(a, func(acquired time.Time) {
			s.WriteRefused(s.refusedRenewal(a, acquired), a.revision+1, s.now)
			s.WriteRefused(s.refusedRenewal(a, acquired), 0, s.now)
		})
	}},
	{"a leader's write of an earlier term is refused with a lower sequence", "", func(s *story, a, _ *actor) {
		s.leadOnAfter(a, func(acquired time.Time) { s.WriteRefused(s.refusedRenewal(a, acquired.Add(-1)), a.revision-1, s.now) })
	}},
	{"a leader reads a stranger's record from between its acquisition and its last write", "P11", func(s *story, a, _ *actor) {
		s.leadOnAfter(a, func(time.Time) { s.KeyRead(a.Ledger, strangers(a.revision-1), s.now) })
	}},
	{"a leader reads a stranger's record from before its acquisition, of a lagging replica", "", func(s *story, a, _ *actor) {
		s.leadOnAfter(a, func(time.Time) { s.KeyRead(a.Ledger, strangers(a.term.win.Revision-1), s.now) })
	}},
	{"a leader reads an earlier record of its own", "", func(s *story, a, _ *actor) {
		s.leadOnAfter(a, func(time.Time) {
			s.KeyRead(a.Ledger, &Entry{Revision: a.revision - 1, Write: &Write{By: a.Ledger}}, s.now)
		})
	}},
	{"a connected leader leads until it must have found out that history was rewound", "", func(s *story, a, _ *actor) {
		s.named = true
		s.leadThenRewind(a)
		s.now = s.mustDiscoverBy(a.Ledger)
		s.look()
	}},
	{"a connected leader leads for longer", "P11", func(s *story, a, _ *actor) {
		s.named = true
		s.leadThenRewind(a)
		s.now = s.mustDiscoverBy(a.Ledger).Add(1)
		s.look()
	}},
	{"a leader leads for longer that had trouble meanwhile", "", func(s *story, a, _ *actor) {
		s.named = true
		s.leadThenRewind(a)
		s.wait(7600 * time.Millisecond)
		a.troubledUntil = s.now
		s.look()
	}},
	{"a leader leads for longer that hit the record of its successor by chance", "", func(s *story, a, _ *actor) {
		s.named = true
		acquired := s.now
		s.leadThenRewind(a)
		s.writes(a, acquired, false)
		s.wait(8 * time.Second)
		s.look()
	}},
	{"a leader leads for longer in a replicated bucket, where a record from before its acquisition proves nothing", "", func(s *story, a, _ *actor) {
		s.leadThenRewind(a)
		s.wait(7700 * time.Millisecond)
		s.look()
	}},
	{"a leader leads for longer in a replicated bucket that went back before its second acquisition was acknowledged", "", func(s *story, a, _ *actor) {
		s.leadThenRewindBeforeAcknowledged(a)
		s.wait(7700 * time.Millisecond)
		s.look()
	}},
	{"a leader leads for longer in a replicated bucket, where its successor has renewed", "P11", func(s *story, a, b *actor) {
		s.leadThenRewind(a)
		acquired := s.now
		s.writes(b, acquired, true)
		s.writes(b, acquired, false)
		s.wait(7700 * time.Millisecond)
		s.look()
	}},
	{"a leader gives up without a reason", "P6", func(s *story, a, _ *actor) {
		s.lead(a)
		s.wait(time.Second)
		s.follow(a)
	}},
	{"a leader gives up without a reason, and its work returns at once", "P6", func(s *story, a, _ *actor) {
		s.lead(a)
		ctx, cancel := context.WithCancel(context.Background())
		s.WorkBegan(a.Ledger, election.Term{}, never, func() bool { return ctx.Err() != nil })
		s.wait(time.Second)
		cancel()
		s.WorkReturned(a.Ledger)
		s.follow(a)
	}},
	{"a leader's work returns by itself", "", func(s *story, a, _ *actor) {
		s.lead(a)
		s.WorkBegan(a.Ledger, election.Term{}, never, never)
		s.wait(time.Second)
		s.WorkReturned(a.Ledger)
		s.follow(a)
	}},
	{"a leader gives up whose lease had ended by a shorter TTL when its renewal was acknowledged", "", func(s *story, a, _ *actor) {
		s.renewLateAfterShorterTTL(a, storyTTL-a.Margin)
		s.follow(a)
	}},
	{"a leader gives up whose renewal was acknowledged before its lease ended by a shorter TTL", "P6", func(s *story, a, _ *actor) {
		s.renewLateAfterShorterTTL(a, storyTTL-a.Margin-1)
		s.follow(a)
	}},
	{"a leader gives up over whose record a late write of its own was stored by chance, after a rewind", "", func(s *story, a, _ *actor) {
		s.leadThenHit(a, func() { s.overwriteAndRewind(1) })
		s.follow(a)
	}},
	{"a leader gives up over whose record a late write of its own was stored", "P6", func(s *story, a, _ *actor) {
		s.leadThenHit(a, func() {})
		s.follow(a)
	}},
	{"a leader gives up after its key was overwritten", "", func(s *story, a, _ *actor) {
		s.lead(a)
		s.overwrite(1)
		s.follow(a)
	}},
	{"a leader leads by a write that it had given up and then read", "P7", func(s *story, a, _ *actor) {
		q := s.acquiresUnanswered(a)
		s.WriteKnown(q, s.now)
		s.promote(a, q)
	}},
	{"a leader learns that its connection is closed and steps down", "", func(s *story, a, _ *actor) {
		s.leadOnClosed(a)
		a.state, a.number = election.UnknownState, 0
		s.wait(1)
		s.look()
		s.Returned(a.Ledger, fmt.Errorf("ended: %w", nats.ErrConnectionClosed), false, s.now)
		s.ClosedStillRun(s.now, s.now.Add(time.Hour))
	}},
	{"a leader learns that its connection is closed and leads on", closedPromise, func(s *story, a, _ *actor) {
		s.leadOnClosed(a)
		s.wait(1)
		s.look()
	}},
	{"a candidate on a closed connection returns no error", closedPromise, func(s *story, a, _ *actor) {
		a.closedAt, a.state = s.now, election.UnknownState
		s.Returned(a.Ledger, nil, false, s.now)
	}},
	{"a candidate on a closed connection is stopped and returns no error", "", func(s *story, a, _ *actor) {
		a.closedAt, a.state = s.now, election.UnknownState
		s.Returned(a.Ledger, nil, true, s.now)
	}},
	{"a candidate on a closed connection has its work return by itself", "", func(s *story, a, _ *actor) {
		s.lead(a)
		s.WorkBegan(a.Ledger, election.Term{}, never, never)
		a.closedAt = s.now
		s.WorkReturned(a.Ledger)
		a.state, a.number = election.UnknownState, 0
		s.Returned(a.Ledger, errors.New("work failed"), false, s.now)
	}},
	{"a candidate runs on a closed connection until the limit", "", func(s *story, a, _ *actor) {
		a.closedAt = s.now
		s.wait(time.Hour)
		s.ClosedStillRun(s.now, s.now.Add(s.closedLimit()))
	}},
	{"a candidate runs on a closed connection beyond the limit", closedPromise, func(s *story, a, _ *actor) {
		a.closedAt = s.now
		s.wait(time.Hour)
		s.ClosedStillRun(s.now, s.now.Add(s.closedLimit()+1))
	}},
	{"a candidate reports a leader that it read", "", func(s *story, a, _ *actor) {
		s.LeaderReported(a.Ledger, "b", s.now)
	}},
	{"a candidate reports a leader that never existed", "P10", func(s *story, a, _ *actor) {
		s.LeaderReported(a.Ledger, InventedLeader, s.now)
	}},
	{"a leader leads after it returned", "P7", func(s *story, a, _ *actor) {
		s.lead(a)
		s.Returned(a.Ledger, nil, false, s.now)
	}},
}

// leadOnClosed has a candidate lead, and a write of it fail half a TTL after its connection was closed.
func (s *story) leadOnClosed(a *actor) {
	s.lead(a)
	a.closedAt = s.now
	s.wait(storyTTL / 2)
	a.sawClosedAt = s.now
}

func TestJudgeCondemnsTheStoriesThatBreakAPromiseAndNoOthers(t *testing.T) {
	for _, c := range slices.Concat(aboutLeading, aboutAllElse) {
		t.Run(c.name, func(t *testing.T) {
			s := newStory(t)
			c.tell(s, s.actor("a"), s.actor("b"))
			got := strings.Join(s.Failures, "\n")
			if ok := c.promise == "" && got == "" || c.promise != "" && strings.HasPrefix(got, c.promise+":"); !ok {
				t.Errorf("judged %q, want %q\n%s", got, c.promise, fmt.Sprint(s.journal))
			}
		})
	}
}
