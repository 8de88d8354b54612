package chaos

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election/internal/drill/history"
	"github.com/natscampaign/election/internal/drill/processes"
	"github.com/natscampaign/election/internal/host"
	"github.com/natscampaign/election/internal/session"
	"github.com/natscampaign/election/internal/timeutil"
)

// Rewind is the kind of fault that makes the bucket forget writes, so that term numbers may come again.
const Rewind = "rewind"

// injectRewind kills the server that has the bucket just after a renewal, and starts it again with an older copy of the bucket. The copy
// lacks the last renewal or, with an odd variant, a change of leader and more than a TTL of writes.
func injectRewind(ctx context.Context, d *Drill, f *fault) error {
	if f.servers == nil {
		return f.skip(d, errors.New("no server is known to have the bucket"))
	}
	s := d.cluster.Servers[f.servers[0]]
	d.awaitWrite(ctx)
	if err := s.BackUpBucket(); err != nil {
		return err
	}
	if f.detail = "the bucket forgets the last renewal"; f.variant%2 == 1 {
		f.detail = "the bucket forgets a change of leader"
		_ = timeutil.Pause(ctx, f.duration/2)
		if err := d.inject(&fault{faultKind: handover, candidate: f.candidate, hitsLeader: f.hitsLeader, duration: f.duration}); err != nil {
			return err
		}
		_ = timeutil.Pause(ctx, f.duration/2)
	}
	d.awaitWrite(ctx)
	if err := d.appendRewindMarker(ctx); err != nil {
		return f.skip(d, err)
	}
	d.mu.Lock()
	f.span.From = host.Clock()
	if leader, _ := d.leaders.Latest(); leader >= 0 {
		f.candidate = d.fleet[leader]
	}
	d.mu.Unlock()
	s.Kill()
	if err := s.RestoreBucket(); err != nil {
		return err
	}
	return d.startServers(ctx, f.servers...)
}

// awaitWrite waits until a candidate writes the key, at most for a generous time.
func (d *Drill) awaitWrite(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, d.timing().OutageBound())
	defer cancel()
	key := processes.Key
	if d.Sessions > 0 {
		key = session.SessionKey("*")
	}
	watcher, err := d.bucket.Watch(ctx, key, jetstream.UpdatesOnly())
	if err != nil {
		return
	}
	defer func() { _ = watcher.Stop() }()
	select {
	case <-watcher.Updates():
	case <-ctx.Done():
	}
}

// appendRewindMarker appends a marker to the records of each key. The marker sorts after the records of all terms before the rewind and
// before the records of all terms after it, so that the numbers of terms may come again.
func (d *Drill) appendRewindMarker(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	d.rewinds++
	for _, key := range d.keys() {
		m := nats.NewMsg(processes.SubjectOfKey(key))
		m.Header.Set(processes.HeaderRewinds, strconv.Itoa(d.rewinds))
		if _, err := d.js.PublishMsg(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

// orderTermsByRewinds gives the terms of a run tokens that sort in the order of the terms even after rewinds. It returns how many terms
// after a rewind have a number that is not larger than all numbers before.
func orderTermsByRewinds(run *history.Run) (repeated int) {
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
			repeated++
		}
		if b.Token > latest {
			latest, latestRewinds = b.Token, rewinds
		}
		b.Token = processes.SortableToken(rewinds, b.Token)
	}
	return repeated
}

// renewalReplyLimit is how long after a renewal is due a leader with an intact link may take to receive the reply.
const renewalReplyLimit = 250 * time.Millisecond

// rewindDetectedBy returns the time by which the leader of b must have detected the rewinds of its term up to the given time; 0 if there
// was none. The leader detects a rewind by the reply to its next renewal, and stands down at once. Until then no lease prevents that
// another candidate leads.
func rewindDetectedBy(run *history.Run, b history.Belief, until time.Duration) (detected time.Duration) {
	lease := run.Timing.TTL - run.Timing.Margin
	for _, f := range run.Faults {
		if f.Kind == Rewind && f.From > b.From && f.From <= until {
			due := min(b.Deadline, f.From+lease) - lease + run.Timing.Interval
			detected = max(detected, due+renewalReplyLimit, f.From+history.Reconnect)
		}
	}
	if detected == 0 {
		return 0
	}
	blocked := slices.Clone(run.Outages) // times in which the leader cannot renew
	for _, f := range run.Faults {
		if f.Candidate == b.Candidate && !f.Ends {
			blocked = append(blocked, f.Span)
		}
	}
	slices.SortFunc(blocked, func(x, y history.Span) int { return cmp.Compare(x.From, y.From) })
	for _, o := range blocked {
		if o.From <= detected {
			detected = max(detected, o.To+history.Reconnect)
		}
	}
	return detected
}

// separateRewindOverlaps separates overlaps of two leaders from those that a rewind explains, because the earlier leader could not
// have detected it yet. It returns the violations with their total length, and the total length that rewinds explain.
func separateRewindOverlaps(run *history.Run, overlaps []history.Overlap) (overlap time.Duration, violations []history.Overlap, rewindOverlap time.Duration) {
	var unexplained, explained []history.Span
	for _, o := range overlaps {
		detected := min(max(o.From, rewindDetectedBy(run, o.A, o.From)), o.To)
		explained = append(explained, history.Span{From: o.From, To: detected})
		if o.From = detected; o.To > detected {
			unexplained, violations = append(unexplained, o.Span), append(violations, o)
		}
	}
	return history.TotalLength(unexplained), violations, history.TotalLength(explained)
}

// separateRewindOvertakings separates the overtakings from those that a rewind explains, because the leader could not have detected it
// yet. It returns the violations and the number of the others.
func separateRewindOvertakings(run *history.Run) (violations []history.Overtaking, explained int) {
	for _, o := range run.Overtaken {
		n := slices.IndexFunc(run.Beliefs, func(b history.Belief) bool {
			return b.Candidate == o.Candidate && b.Term == o.Term && b.From <= o.At && o.At <= b.To+history.BeliefEndTolerance
		})
		if n >= 0 && o.At < rewindDetectedBy(run, run.Beliefs[n], o.At) {
			explained++
			continue
		}
		violations = append(violations, o)
	}
	return violations, explained
}
