package election

import (
	"cmp"
	"fmt"
	"time"
)

// Term is one uninterrupted time of leadership: what the leader holds in its hand. It is comparable, may be copied, and
// answers for as long as anybody keeps it.
//
// Number is the revision of the write that won the key, so that for one key of one bucket every later term has a larger
// one. Bucket, the instant at which the stream behind the bucket was created, orders terms across a bucket that was
// deleted and made again. Together they are a fencing token in the sense of Martin Kleppmann's "How to do distributed
// locking" (2016): see [Term.Token].
type Term struct {
	Key    string    `json:"key"`
	Name   string    `json:"name"`   // the candidate that leads
	Number uint64    `json:"number"` // the revision of the write that won
	Bucket time.Time `json:"bucket"` // when the bucket was created
	Since  time.Time `json:"since"`  // when the key was won, by this host's clock; leadership counts from later on

	tenure *tenure
}

// Token returns the term as a fencing token: text that sorts as the terms of its key do, byte by byte, to be sent along
// with whatever a leader does outside, where the receiver refuses a token that sorts before one it has seen.
func (t Term) Token() string {
	var bucket uint64
	if !t.Bucket.IsZero() {
		bucket = uint64(t.Bucket.UnixNano())
	}
	return fmt.Sprintf("%016x-%016x", bucket, t.Number)
}

// Compare returns -1, 0 or 1 as t is an earlier term than u, the same, or a later one. Terms of different keys have no
// order that means anything.
func (t Term) Compare(u Term) int {
	return cmp.Or(t.Bucket.Compare(u.Bucket), cmp.Compare(t.Number, u.Number))
}

// Valid says whether this very term still counts, by the clock, now. Ask right before each effect: it costs a clock
// reading, takes no lock, and allocates nothing. What it cannot do is promise that the answer still holds when the
// effect takes place; the [Term.Token] is for that. The zero Term is never valid.
func (t Term) Valid() bool {
	return t.tenure != nil && t.tenure.leads()
}

// Deadline returns the instant at which the lease on the key ends unless it is renewed before: a moving limit for work
// that has been told to stop, and for deadlines of its requests. Once the key was released or lost it lies in the past.
// When the wall clock was stepped or the machine was suspended since the last renewal, it is now plus what is really left, so
// that [time.Until] is right for it: call Deadline again rather than keep what it returned.
func (t Term) Deadline() time.Time {
	if t.tenure == nil {
		return time.Time{}
	}
	return t.tenure.lease.Load().ends(time.Now())
}
