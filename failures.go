package election

import "time"

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
