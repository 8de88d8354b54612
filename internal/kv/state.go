package kv

import (
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election/internal/record"
)

// stateOf returns the state that a message of the bucket's stream makes.
func stateOf(header nats.Header, revision uint64, written time.Time, value []byte) record.State {
	s := record.State{Revision: revision, Written: written, Removal: RemovalOf(header)}
	if s.Removal == record.Kept {
		s.Record = record.Parse(value, revision)
		s.Unconditional = !conditional(header)
	}
	return s
}

// conditional reports whether the header is that of a write which demands what revision it replaces, of its own key.
func conditional(header nats.Header) bool {
	return len(header.Values(jetstream.ExpectedLastSubjSeqHeader)) == 1 && len(header.Values(jetstream.ExpectedLastSubjSeqSubjHeader)) == 0
}

// errAnswerStored is the error of a read that finds the answer of a server stored under the key.
var errAnswerStored = errors.New("what is stored under the key is an answer of a server, which somebody had it send there: no record")

// answerStored reports whether the message that was read is a stored answer of a server: then the headers by which the server describes
// what it read stand beside those that describe what it once answered, and nobody can tell which is which.
func answerStored(header nats.Header) bool { return len(header.Values(jetstream.SequenceHeader)) > 1 }

// HeaderOperation is the header that a client of the bucket gives to a deletion or a purge.
const HeaderOperation = "KV-Operation"

// RemovalOf returns what the header of a message of the bucket's stream says about a removal.
func RemovalOf(header nats.Header) record.Removal {
	switch reason := header.Get(jetstream.MarkerReasonHeader); {
	case reason == "MaxAge":
		return record.Expired
	case reason != "", header.Get(HeaderOperation) != "":
		return record.Removed
	}
	return record.Kept
}

// IsRemoval reports whether the header of a message of the bucket's stream is that of a removal.
func IsRemoval(header nats.Header) bool { return RemovalOf(header) != record.Kept }
