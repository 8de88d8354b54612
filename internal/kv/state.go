package kv

import (
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election/internal/record"
)

// stateOf returns the state that a message of the bucket's stream makes.
func stateOf(m message) record.State {
	s := record.State{Revision: m.revision, Written: m.written, Removal: m.removal()}
	if s.Removal == record.Kept {
		s.Record = record.Parse(m.value, m.revision)
		replaced, checked := demanded(m.header)
		if s.Unconditional = m.ambiguous || !checked; !s.Unconditional {
			s.Replaced = replaced
		}
	}
	return s
}

// demanded returns the revision that a write demands to replace, of its own key.
func demanded(header nats.Header) (revision uint64, checked bool) {
	values := header.Values(jetstream.ExpectedLastSubjSeqHeader)
	if len(values) != 1 || len(header.Values(jetstream.ExpectedLastSubjSeqSubjHeader)) > 0 {
		return 0, false
	}
	revision, err := strconv.ParseUint(values[0], 10, 64)
	return revision, err == nil
}

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
