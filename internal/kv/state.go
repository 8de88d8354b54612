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

// operationDelete is the value of that header in a deletion.
const operationDelete = "DEL"

// RemovalOf returns how a message of the bucket's stream removed its key. A deletion that carries a release removed nothing: the release counts.
func RemovalOf(header nats.Header, value []byte) record.Removal {
	switch reason, operation := header.Get(jetstream.MarkerReasonHeader), header.Get(HeaderOperation); {
	case reason == "MaxAge":
		return record.Expired
	case reason == "" && (operation == "" || operation == operationDelete && record.CarriesRelease(value)):
		return record.Kept
	}
	return record.Removed
}

// RemovalBy returns how what a watcher shows removed the key, see RemovalOf. A watcher does not distinguish a purge from an expiry.
func RemovalBy(entry jetstream.KeyValueEntry) record.Removal {
	switch op := entry.Operation(); {
	case op == jetstream.KeyValuePurge:
		return record.RemovedOrExpired
	case op == jetstream.KeyValueDelete && !record.CarriesRelease(entry.Value()):
		return record.Removed
	}
	return record.Kept
}

// IsRemoval reports whether the header of a message of the bucket's stream is that of a removal.
func IsRemoval(header nats.Header) bool { return RemovalOf(header, nil) != record.Kept }
