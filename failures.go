package election

import (
	"time"

	"github.com/natscampaign/election/internal/core"
)

// requestKind is a kind of request. A request that succeeds says nothing of requests of the other kinds: in a full account, say, reads do.
type requestKind uint8

// The kinds of requests.
const (
	infoRequest     requestKind = iota // loads the bucket's info
	readRequest                        // reads the key
	writeRequest                       // writes the key
	metadataRequest                    // writes the metadata that is set
	requestKinds
)

// requests are the errors of the last request of each kind, if it failed. They make Status.LastError.
type requests struct {
	failed     [requestKinds]*failedRequest // nil if the last request succeeded
	lastFailed bool                         // the very last request failed, of whatever kind
}

type failedRequest struct {
	err error
	at  time.Time
}

// latest returns the latest error, and when the request failed; nil if there is none.
func (q *requests) latest() (at time.Time, err error) {
	for _, f := range q.failed {
		if f != nil && !f.at.Before(at) {
			err, at = f.err, f.at
		}
	}
	return at, err
}

// note takes note of what came of a request, until the next one of its kind.
func (q *requests) note(now time.Time, kind requestKind, err error) {
	if q.lastFailed = err != nil; err != nil {
		q.failed[kind] = &failedRequest{err, now}
		return
	}
	if f := q.failed[kind]; kind == infoRequest && f != nil && isUnusable(f.err) { // the others failed because of the bucket
		q.failed = [requestKinds]*failedRequest{}
	}
	q.failed[kind] = nil
}

// isUnusable reports whether an error says that the bucket is gone or unfit.
func isUnusable(err error) bool {
	failure := failureOf(err)
	return failure == core.Gone || failure == core.Unfit
}

// noteResult takes note of what came of an operation. A write that is refused has not failed, unless it is a renewal: the server has answered it.
func (e *Election) noteResult(op *core.Op, result *core.Result) {
	if result.Reconnected || result.Failure == core.Canceled { // it was not sent, or nobody needs its answer any more
		return
	}
	switch err := result.Err; op.Kind {
	case core.Read:
		e.noteRequest(readRequest, err)
	case core.Write:
		if result.Outcome == core.Refused && !op.Renewal {
			err = nil
		}
		e.noteRequest(writeRequest, err)
	}
}

// noteLoaded takes note of what came of a request for the bucket's info.
func (e *Election) noteLoaded(loaded *core.Loaded) {
	if loaded.Failure != core.Canceled {
		e.noteRequest(infoRequest, loaded.Err)
	}
}

// noteRequest takes note of what came of a request.
func (e *Election) noteRequest(kind requestKind, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.requests.note(time.Now(), kind, err)
}

// lastRequestFailed reports whether the last request failed, of whatever kind.
func (e *Election) lastRequestFailed() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.requests.lastFailed
}
