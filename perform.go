package election

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election/internal/core"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/record"
)

// perform does one operation: it makes one request, or asks the Backoff.
func (r *run) perform(op *core.Op) (result core.Result) {
	if op.Kind == core.AskBackoff {
		return r.askBackoff(op.Lost)
	}
	late := time.Since(r.decidedAt) // what was reported since took its time, as a log handler may
	ctx, cancel := context.WithDeadline(r.scope(op.Scope), op.Limit.Add(late))
	defer cancel()
	switch op.Kind {
	case core.Read:
		result = r.read(ctx, op)
	case core.Load:
		loaded, _ := r.load(ctx)
		result.Bucket, result.Err, result.Failure = loaded.Bucket, loaded.Err, loaded.Failure
	case core.Write:
		result = r.write(ctx, op)
	case core.Delete:
		result.Err = r.bucket.Delete(ctx, r.key, jetstream.LastRevision(op.Over))
		result.Failure = failureOf(result.Err)
	}
	if isClosedForGood(result.Err) {
		r.fail(nats.ErrConnectionClosed)
	}
	return result
}

// scope returns the context that ends with a scope.
func (r *run) scope(s core.Scope) context.Context {
	switch t := r.term.Load(); {
	case s == core.WhileLeads && t != nil:
		return t.ctx
	case s == core.WhileRuns:
		return r.ctx
	}
	return context.WithoutCancel(r.ctx)
}

// await waits until the loop is woken. If the candidate waits for callbacks and work, it returns true once they have returned.
func (r *run) await(op *core.Op) (quiet bool) {
	if !op.Quiet {
		<-r.wake
		return false
	}
	idle, returned := r.calls.quiet(), r.currentWork.returned()
	for idle != nil || returned != nil {
		select {
		case <-idle:
			idle = nil
		case <-returned:
			returned = nil
		case <-r.wake:
			if !isClosed(idle) || !isClosed(returned) {
				return false
			}
			idle, returned = nil, nil
		}
	}
	r.workReturned()
	return true
}

// workReturned takes note of what the work returned, if there was any.
func (r *run) workReturned() {
	w := r.currentWork
	r.currentWork = nil
	switch {
	case w == nil:
	case w.led:
		r.result = w.err
	case w.err != nil && !errors.Is(w.err, context.Canceled):
		r.log.Warn("Work failed after its term had ended", "error", w.err)
	}
}

// askBackoff asks the Backoff for the time to the next campaign, after so many were lost in a row.
func (r *run) askBackoff(lost int) (result core.Result) {
	defer func() {
		if p := recover(); p != nil {
			r.log.Error("Backoff panicked, waiting one interval", "panic", p)
			result.Err = fmt.Errorf("the Backoff panicked: %v", p)
		}
	}()
	return core.Result{Delay: r.opts.Backoff.Duration(lost)}
}

// read reads what is stored under the key.
func (r *run) read(ctx context.Context, op *core.Op) (result core.Result) {
	before := r.bucket.LastError()
	result.State, result.Err = r.bucket.Read(ctx, r.key)
	result.Failure = failureOf(result.Err)
	switch {
	case result.Err == nil && result.State.Removal == record.Gone && op.Marker:
		result.State = r.bucket.ReadMarker(ctx, r.key, result.State)
	case result.Failure == core.Timeout:
		result.Refusal = r.bucket.ReadRefused(r.key, before)
	}
	return result
}

// load reads the bucket's info once, and returns what the server says, and what follows from it.
func (r *run) load(ctx context.Context) (loaded core.Loaded, info kv.Info) {
	info, err := r.bucket.Load(ctx)
	if err == nil {
		err = info.Validate()
	}
	if err == nil {
		_, paused := info.Paused[r.key]
		loaded.Bucket = core.Bucket{Created: info.Created, Read: info.Read, Took: info.Took, MarkerTTL: info.MarkerTTL, Pinned: info.Pinned, Paused: paused}
		loaded.Bucket.Timing, err = r.opts.TimingIn(info)
	}
	loaded.Err, loaded.Failure = err, failureOf(err)
	return loaded, info
}

const (
	// lateAnswer is how late the answer to a renewal must be at least until its sender looks for the cause.
	lateAnswer = 250 * time.Millisecond
	// lateAnswers is for how many answers of the server it waits in any case.
	lateAnswers = 4
)

// write writes the key, and classifies the answer.
func (r *run) write(ctx context.Context, op *core.Op) (result core.Result) {
	nc := r.bucket.Conn()
	reconnecting := op.Renewal && nc != nil && nc.IsReconnecting()
	if nc != nil {
		result.Reconnects = nc.Stats().Reconnects
		if !reconnecting && op.Reconnects != core.AnyReconnects && result.Reconnects > op.Reconnects {
			result.Reconnected = true
			return result
		}
	}
	var err error
	switch {
	case reconnecting: // the client may keep a write meanwhile, and send it after anything may have happened
		err = nats.ErrReconnectBufExceeded
	case op.Renewal:
		result.Revision, err = r.updateHeld(ctx, op)
	case op.Create:
		result.Revision, err = r.bucket.Create(ctx, r.key, op.Value)
	default:
		result.Revision, err = r.bucket.Update(ctx, r.key, op.Value, op.Over)
	}
	if op.Renewal && nc != nil { // the client may have sent it again, or late, on another connection
		result.Reconnects = nc.Stats().Reconnects
	}
	result.Err, result.Failure = err, failureOf(err)
	switch kv.Classify(err) {
	case kv.Applied:
		result.Outcome = core.Applied
	case kv.Refused:
		result.Outcome = core.Refused
		result.Last, result.Named = kv.LastSequence(err)
	case kv.Unknown:
		result.Outcome = core.Unknown
	default:
		result.Outcome = core.Failed
	}
	result.Crowd = op.Renewal && r.notifications().InCrowd()
	return result
}

// updateHeld writes over the record of a term. If the answer is late it asks the server about the bucket meanwhile, and the write ends early if
// the bucket is gone: a leader is subscribed to the attempts of others, so that the server finds somebody who could answer the write.
func (r *run) updateHeld(ctx context.Context, op *core.Op) (uint64, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := time.AfterFunc(max(lateAnswer, lateAnswers*r.took()), func() {
		r.suspectConnection()
		loaded, _ := r.load(ctx)
		r.tellLoaded(loaded)
		if kv.IsGone(loaded.Err) {
			cancel(kv.ErrGone)
		}
	})
	defer late.Stop()
	revision, err := r.bucket.Update(ctx, r.key, op.Value, op.Over)
	if err != nil && errors.Is(context.Cause(ctx), kv.ErrGone) {
		err = kv.ErrGone
	}
	return revision, err
}

// took returns how long the server took for its last answer about the bucket.
func (r *run) took() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.candidate.Took()
}

// suspectConnection has the connection examined: an answer or a notification has not come in time.
func (r *run) suspectConnection() { r.guard.Suspect(r.took()) }

// failureOf returns what an error means to the candidate.
func failureOf(err error) core.Failure {
	switch {
	case err == nil:
		return core.NoFailure
	case kv.IsGone(err):
		return core.Gone
	case kv.IsUnfit(err):
		return core.Unfit
	case isClosedForGood(err):
		return core.Ended
	case errors.Is(err, context.Canceled):
		return core.Canceled
	}
	switch kv.Failure(err) {
	case kv.FailedTimeout:
		return core.Timeout
	case kv.FailedNoStream:
		return core.NoStream
	case kv.FailedTooLarge:
		return core.TooLarge
	case kv.FailedDisconnected:
		return core.Disconnected
	}
	return core.Otherwise
}
