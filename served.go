package election

import (
	"context"
	"time"

	"github.com/natscampaign/election/internal/control"
	"github.com/natscampaign/election/internal/core"
	"github.com/natscampaign/election/internal/timeutil"
	"github.com/natscampaign/election/internal/version"
)

// What operators and other candidates ask of a run, and what a run asks of the leader.

// preempt asks the leader, which has a lower priority, to hand over to this candidate. It does not wait for the answer: the release shows it.
func (r *run) preempt(instance, name string) {
	if r.backgroundCtx == nil || r.backgroundCtx.Err() != nil {
		r.backgroundCtx, r.cancelBackground = context.WithCancel(r.ctx)
	}
	ctx := r.backgroundCtx
	r.background.Go(func() {
		err := r.member.RequestTransfer(ctx, instance, r.instanceID(), served{r}.HandoverTimeout())
		if err != nil && ctx.Err() == nil {
			r.log.Warn("Leader of lower priority has not handed over", "leader", name, "error", err)
		}
	})
}

// served is what the control service needs of a run.
type served struct{ *run }

// Describe returns the candidate's description of itself.
func (s served) Describe() control.Candidate {
	now, v := time.Now(), s.view()
	moment := v.at(now)
	var standby *bool
	if !s.opts.NoStandbys {
		standby = new(moment.standby)
	}
	failedAt, failed := v.requests.latest()
	return control.Candidate{
		Key: s.key, Name: s.name, Instance: s.instanceID(), Host: s.host, PID: s.pid, Priority: s.opts.Priority, State: moment.state.String(),
		Ready: v.status.Ready, Standby: standby, Version: version.String(), Clock: now.UTC().Round(0),
		LastError: control.CutError(describe(failed)), LastErrorAt: failedAt.UTC().Round(0),
	}
}

// BucketCreated returns when the bucket was created, as far as is known.
func (s served) BucketCreated() time.Time { return s.status().Bucket.Created }

// HoldsKey reports whether the candidate holds the key.
func (s served) HoldsKey() bool {
	t := s.term.Load()
	return t != nil && t.left() > 0
}

// Refresh loads the bucket's info again: an operator has paused or resumed the election or changed the TTL, or the bucket was deleted and made again. It
// reports whether the server said something about the bucket, and tries for a TTL if it does not.
func (s served) Refresh(ctx context.Context) bool {
	for end := time.Now().Add(s.status().Bucket.TTL); ; {
		loaded, _ := s.load(ctx)
		s.tellLoaded(loaded)
		switch loaded.Failure {
		case core.NoFailure, core.Gone, core.Unfit:
			return true
		}
		if !time.Now().Before(end) || timeutil.Pause(ctx, refreshPause) != nil {
			return false
		}
	}
}

// refreshPause is the time between two tries to load the bucket's info.
const refreshPause = 250 * time.Millisecond

// ExpectRelease has the key read after the given time.
func (s served) ExpectRelease(after time.Duration) {
	s.tell(core.ReleaseExpected{At: time.Now().Add(after)})
}

// HandoverTimeout returns how long a handover may take.
func (s served) HandoverTimeout() time.Duration {
	bucket := s.status().Bucket
	return max(bucket.TTL, bucket.ReleaseTimeout) + control.HandoverTimeout
}
