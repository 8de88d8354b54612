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

// How the loop does an operation: waits, requests, and the Backoff. All requests about the key and the bucket are made here, and all their errors
// are put into the words of package core: see errors.go.

const (
	// lateAnswer is how long a leader waits for the answer to a renewal at least, before it looks for the cause.
	lateAnswer = 250 * time.Millisecond
	// lateAnswers is the same in times of how long the server took for its last answer.
	lateAnswers = 4
)

// perform does one operation: it makes one request, or asks the Backoff.
func (r *run) perform(op *core.Op) (result core.Result) {
	if op.Kind == core.AskBackoff {
		return r.askBackoff(op.Failed)
	}
	late := time.Since(r.decidedAt) // to report what was decided may have taken time, as by a log handler
	ctx, cancel := context.WithDeadline(r.scope(op.Scope), op.Limit.Add(late))
	defer cancel()
	switch op.Kind {
	case core.Read:
		result = r.read(ctx, op)
	case core.Load:
		loaded, _ := r.load(ctx)
		r.noteLoaded(&loaded)
		result.Bucket, result.Err, result.Failure = loaded.Bucket, loaded.Err, loaded.Failure
	case core.Write:
		result = r.write(ctx, op)
	case core.Delete:
		result.Err = r.bucket.Delete(ctx, r.key, jetstream.LastRevision(op.Replaces))
		result.Failure = failureOf(result.Err)
	}
	r.noteResult(op, &result)
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

// await waits until the loop is woken.
func (r *run) await(op *core.Op) {
	if !op.Quiet {
		<-r.wake
		return
	}
	if r.quietWait.due != op.Due {
		r.quietWait = quietWait{due: op.Due, slow: time.After(quietWaitLogged)}
	}
	select {
	case <-r.wake:
	case <-r.quietWait.slow:
		r.log.Info("Waiting for callbacks and work to return", "at-most", time.Until(op.Due).Round(time.Millisecond))
		<-r.wake
	}
}

// quietWaitLogged is how long callbacks and work may take to return before the log says that they are waited for.
const quietWaitLogged = time.Second

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
		result.Refusal, result.Err = r.bucket.ExplainSilence(r.bucket.ToRead(r.key), before, result.Err)
	}
	return result
}

// load reads the bucket's info once. It returns what the server says, and what that means to the candidate.
func (r *run) load(ctx context.Context) (loaded core.Loaded, info kv.Info) {
	before := r.bucket.LastError()
	info, err := r.bucket.Load(ctx)
	if err == nil {
		err = info.Validate()
	}
	if err == nil {
		_, paused := info.Paused[r.key]
		loaded.Bucket = core.Bucket{Created: info.Created, Read: info.Read, Took: info.Took, MarkerTTL: info.MarkerTTL, LongestTTL: info.LongestTTL, Remembers: info.Remembers, Pinned: info.Pinned, Paused: paused}
		loaded.Bucket.Timing, err = r.opts.TimingIn(info)
	}
	loaded.Err, loaded.Failure = err, failureOf(err)
	if loaded.Failure == core.Timeout {
		_, loaded.Err = r.bucket.ExplainSilence(r.bucket.ToInspect(), before, err)
	}
	return loaded, info
}

// tellLoaded tells the candidate what the server says about the bucket. A connection that is closed for good ends the run.
func (r *run) tellLoaded(loaded core.Loaded) {
	r.noteLoaded(&loaded)
	r.tell(loaded)
	if isClosedForGood(loaded.Err) {
		r.fail(nats.ErrConnectionClosed)
	}
}

// write writes the key, and says what the answer proves. A renewal is not sent on a connection that has been made again more often than the operation
// allows, nor while there is no connection.
func (r *run) write(ctx context.Context, op *core.Op) (result core.Result) {
	nc := r.bucket.Conn()
	reconnecting, before := op.Renewal && nc != nil && nc.IsReconnecting(), r.bucket.LastError()
	if nc != nil {
		result.Reconnects = nc.Stats().Reconnects
		if !reconnecting && op.Reconnects != core.AnyReconnects && result.Reconnects > op.Reconnects {
			result.Reconnected = true
			return result
		}
	}
	if reconnecting { // the client would keep the write, and send it when anything may have happened
		result.Err = nats.ErrReconnectBufExceeded
	} else {
		result.Revision, result.Err = r.send(ctx, op)
	}
	if op.Renewal && nc != nil { // the client may have sent it again, or late, on another connection
		result.Reconnects = nc.Stats().Reconnects
	}
	result.Failure, result.Outcome = failureOf(result.Err), outcomeOfWrite(result.Err)
	if result.Failure == core.Timeout {
		_, result.Err = r.bucket.ExplainSilence(r.bucket.ToWrite(r.key), before, result.Err)
	}
	if result.Outcome == core.Refused {
		result.Last, result.Named = kv.LastSequence(result.Err)
	}
	result.Crowd = op.Renewal && r.notifications().InCrowd()
	return result
}

// send sends a write, and returns the revision that it got.
func (r *run) send(ctx context.Context, op *core.Op) (uint64, error) {
	switch {
	case op.Renewal:
		return r.sendRenewal(ctx, op)
	case op.Create:
		return r.bucket.Create(ctx, r.key, op.Value)
	case op.Deletes:
		return r.bucket.Release(ctx, r.key, op.Value, op.Replaces, op.Lasts)
	}
	return r.bucket.Update(ctx, r.key, op.Value, op.Replaces)
}

// sendRenewal writes over the record of a term. If the answer is late, it asks the server about the bucket meanwhile, and ends the write if the
// bucket is gone. The client does not notice that by itself: a leader subscribes to the subject of its key, for the attempts of others, and so the
// server does not report that nobody would answer the write.
func (r *run) sendRenewal(ctx context.Context, op *core.Op) (uint64, error) {
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
	revision, err := r.bucket.Update(ctx, r.key, op.Value, op.Replaces)
	if err != nil && errors.Is(context.Cause(ctx), kv.ErrGone) {
		err = kv.ErrGone
	}
	return revision, err
}

// noteResult takes note of what came of an operation. A write that is refused has not failed, unless it is a renewal: the server has answered it.
func (r *run) noteResult(op *core.Op, result *core.Result) {
	if result.Reconnected || result.Failure == core.Canceled { // it was not sent, or nobody needs its answer any more
		return
	}
	switch err := result.Err; op.Kind {
	case core.Read:
		r.noteRequest(readRequest, err)
	case core.Write:
		if result.Outcome == core.Refused && !op.Renewal {
			err = nil
		}
		r.noteRequest(writeRequest, err)
	}
}

// noteLoaded takes note of what came of a request for the bucket's info.
func (r *run) noteLoaded(loaded *core.Loaded) {
	if loaded.Failure != core.Canceled {
		r.noteRequest(infoRequest, loaded.Err)
	}
}
