package chaos

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election/internal/history"
	"github.com/natscampaign/election/internal/processes"
	"github.com/natscampaign/election/internal/timeutil"
)

// Rewind is the fault after which numbers of terms may be smaller than before.
const Rewind = "rewind"

// injectRewind kills the server that has the bucket just after a renewal, and has it come back with an older copy of that: what
// was written since is forgotten. That is the last renewal or, with an odd variant, a change of leader and more than a TTL.
func injectRewind(ctx context.Context, d *Drill, i *injury) error {
	s := d.cluster.Servers[i.servers[0]]
	d.awaitWrite(ctx)
	if err := s.CopyBucket(); err != nil {
		return err
	}
	if i.note = "the last renewal is forgotten"; i.variant%2 == 1 {
		i.note = "a change of leader is forgotten"
		_ = timeutil.Pause(ctx, i.hold/2) // its term has a number that comes again
		if err := d.injure(&injury{breakage: inOrder, candidate: i.candidate, led: i.led, hold: i.hold}); err != nil {
			return err
		}
		_ = timeutil.Pause(ctx, i.hold/2)
	}
	d.awaitWrite(ctx)
	if err := d.markRewind(ctx); err != nil {
		return i.notDone(d, err)
	}
	d.mu.Lock()
	i.span.From = history.Now()
	if leader, _ := d.board.Leader(); leader >= 0 {
		i.candidate = d.fleet[leader]
	}
	d.mu.Unlock()
	s.End(true)
	if err := s.RestoreBucket(); err != nil {
		return err
	}
	return d.revive(ctx, i.servers...)
}

// awaitWrite waits until the key is written, but not for long.
func (d *Drill) awaitWrite(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, d.timing().OutageBound())
	defer cancel()
	news, err := d.bucket.Watch(ctx, processes.Key, jetstream.UpdatesOnly())
	if err != nil {
		return
	}
	defer func() { _ = news.Stop() }()
	select {
	case <-news.Updates():
	case <-ctx.Done():
	}
}

// markRewind appends a record to the stream of records that is later than those of all terms so far, and earlier than those
// of all terms that are won from here on, whatever their numbers.
func (d *Drill) markRewind(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, wellWithin)
	defer cancel()
	d.rewinds++
	m := nats.NewMsg(processes.Subject)
	m.Header.Set(processes.HeaderRewinds, strconv.Itoa(d.rewinds))
	_, err := d.js.PublishMsg(ctx, m)
	return err
}

// orderByRewinds gives the terms of a run tokens that sort by when they were led also where the bucket had forgotten their
// predecessors. It returns how many have a number that is not larger than those of all before.
func orderByRewinds(run *history.Run) (setBack int) {
	slices.SortStableFunc(run.Beliefs, func(a, b history.Belief) int { return cmp.Compare(a.From, b.From) })
	latest, latestRewinds := "", 0
	for n := range run.Beliefs {
		b := &run.Beliefs[n]
		rewinds := 0
		for _, f := range run.Faults {
			if f.Kind == Rewind && f.From <= b.From {
				rewinds++
			}
		}
		if rewinds > latestRewinds && b.Token <= latest {
			setBack++
		}
		if b.Token > latest {
			latest, latestRewinds = b.Token, rewinds
		}
		b.Token = processes.AfterRewinds(rewinds, b.Token)
	}
	return setBack
}

// toldWithin is how long after a renewal was due a leader whose link is whole may take to know what the server answers.
const toldWithin = 250 * time.Millisecond

// untoldUntil returns until when a leader may not know of a rewind in its term, before the given moment. The answer to its next
// renewal tells it, once it can ask, and it stands down at once. No lease prevents that another leads until then. It is 0 if
// there was no such rewind.
func untoldUntil(run *history.Run, b history.Belief, before time.Duration) (told time.Duration) {
	lease := run.Timing.TTL - run.Timing.Margin
	for _, f := range run.Faults {
		if f.Kind == Rewind && f.From > b.From && f.From <= before {
			due := min(b.Deadline, f.From+lease) - lease + run.Timing.Interval
			told = max(told, due+toldWithin, f.From+history.Reconnect)
		}
	}
	if told == 0 {
		return 0
	}
	busy := slices.Clone(run.Outages) // in which it cannot ask
	for _, f := range run.Faults {
		if f.Candidate == b.Candidate && !f.Ends {
			busy = append(busy, f.Span)
		}
	}
	slices.SortFunc(busy, func(x, y history.Span) int { return cmp.Compare(x.From, y.From) })
	for _, o := range busy {
		if o.From <= told {
			told = max(told, o.To+history.Reconnect)
		}
	}
	return told
}

// splitOverlaps returns for how long two believed at once, with each such time, and apart from that for how long they did
// because the earlier leader was not told of a rewind yet.
func splitOverlaps(run *history.Run, f *history.Findings) (overlap time.Duration, wrong []history.Overlap, rewound time.Duration) {
	var not, explained []history.Span
	for _, o := range f.Overlaps {
		told := min(max(o.From, untoldUntil(run, o.A, o.From)), o.To)
		explained = append(explained, history.Span{From: o.From, To: told})
		if o.From = told; o.To > told {
			not, wrong = append(not, o.Span), append(wrong, o)
		}
	}
	return length(not), wrong, length(explained)
}

// length returns how long spans last together.
func length(spans []history.Span) (sum time.Duration) {
	slices.SortFunc(spans, func(a, b history.Span) int { return cmp.Compare(a.From, b.From) })
	counted := time.Duration(0)
	for _, s := range spans {
		sum += max(0, s.To-max(s.From, counted))
		counted = max(counted, s.To)
	}
	return sum
}

// splitOvertaken returns the beliefs in a term although there was a record of a later one, but for those of leaders that were
// not told of a rewind yet, and how many those are.
func splitOvertaken(run *history.Run) (wrong []history.Overtaking, rewound int) {
	for _, o := range run.Overtaken {
		n := slices.IndexFunc(run.Beliefs, func(b history.Belief) bool {
			return b.Candidate == o.Candidate && b.Term == o.Term && b.From <= o.At && o.At <= b.To+endOfBelief
		})
		if n >= 0 && o.At < untoldUntil(run, run.Beliefs[n], o.At) {
			rewound++
			continue
		}
		wrong = append(wrong, o)
	}
	return wrong, rewound
}

// endOfBelief is how much later than the last true answer the end of a belief may be.
const endOfBelief = 100 * time.Millisecond
