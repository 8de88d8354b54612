package core

import "time"

// Request is a kind of request. A request that succeeds says nothing of requests of the other kinds: in a full account, say, reads do.
type Request uint8

// The kinds of requests.
const (
	InfoRequest     Request = iota // loads the bucket's info
	ReadRequest                    // reads the key
	WriteRequest                   // writes the key
	MetadataRequest                // writes the metadata that is set
	requestKinds
)

// Requests are the errors of the last request of each kind, if it failed.
type Requests struct {
	failed [requestKinds]*failedRequest // nil if the last request succeeded
	last   bool                         // the very last request failed, of whatever kind
}

type failedRequest struct {
	err error
	at  time.Time
}

// Latest returns the latest error, and when the request failed; nil if there is none.
func (q *Requests) Latest() (at time.Time, err error) {
	for _, f := range q.failed {
		if f != nil && !f.at.Before(at) {
			err, at = f.err, f.at
		}
	}
	return at, err
}

// LastFailed reports whether the very last request failed.
func (q *Requests) LastFailed() bool { return q.last }

// requestFailed remembers an error until a request of the kind succeeds.
func (c *Candidate) requestFailed(now time.Time, kind Request, err error, failure Failure) {
	c.requests.failed[kind], c.requests.last = &failedRequest{err, now}, true
	if failure == Timeout {
		c.report(Event{Kind: Suspect})
	}
}

// requestSucceeded forgets the error of the last request of the kind.
func (c *Candidate) requestSucceeded(kind Request) {
	c.requests.failed[kind], c.requests.last = nil, false
}

// writeFailed reports whether the last write failed, other than by a refusal.
func (c *Candidate) writeFailed() bool { return c.requests.failed[WriteRequest] != nil }
