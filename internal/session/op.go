package session

import (
	"time"

	"github.com/natscampaign/election/internal/core"
	"github.com/natscampaign/election/internal/record"
)

// Kind is a kind of request.
type Kind uint8

// The kinds of requests.
const (
	Write  Kind = iota // write a key
	Follow             // make the consumer anew: the result is everything that is stored, and it delivers what is stored from then on
)

// Op is one request. Any number of them may be under way.
type Op struct {
	ID    uint64 // by which its result is told
	Kind  Kind
	Limit time.Time // the request ends then, without an answer

	AtLeast uint64 // Follow: the result must show everything up to this sequence

	Key      string // Write
	Value    []byte
	Replaces uint64        // the revision that is to be replaced; 0: nothing may be stored under the key
	Expires  time.Duration // after this the server removes what is written; 0 for never
	While    string        // another key that must have the revision Own when this is stored; "" for none
	Own      uint64
}

// Result is what came of a request.
type Result struct {
	Outcome  core.Outcome // of a write; of others Applied if it was done
	Err      error
	Revision uint64 // of what was written
	Named    bool   // a refusal named the revision that is stored
	Last     uint64 // that revision; 0 if nothing is

	Changes  []Change  // Follow: what is stored, under every key
	Position uint64    // Follow: everything up to this sequence is in it
	Created  time.Time // Follow: when the bucket was created, which is its identity
}

// Change is what is stored under a key.
type Change struct {
	Key           string
	Revision      uint64
	Replaced      uint64    // the revision that was replaced, which the server checked
	Unconditional bool      // it did not check: this is no write of a session
	Written       time.Time // by the server's clock
	Record        record.Record
}
