package notify

import (
	"bytes"
	"hash/maphash"

	"github.com/natscampaign/election/internal/record"
)

// written is a value that was written. It is parsed when the first listener needs that, and mostly none does: what is received most
// are renewals, which differ from one another by the id of the attempt alone.
type written struct {
	value    []byte
	revision uint64
	parsed   bool
	record   record.Record
}

func (w *written) parse() record.Record {
	if !w.parsed {
		w.record, w.parsed = record.Parse(w.value, w.revision), true
	}
	return w.record
}

var attemptField = []byte(`"attempt":"`)

// hashSeed has hashes of this process differ from those that somebody else could reckon with.
var hashSeed = maphash.MakeSeed()

// formOf returns a hash of a record without the id of its attempt: two renewals that follow each other differ by that alone. It is 0 for
// a value that has no such id.
func formOf(value []byte) uint64 {
	i := bytes.Index(value, attemptField) + len(attemptField)
	if i < len(attemptField) {
		return 0
	}
	end := bytes.IndexByte(value[i:], '"')
	if end < 0 {
		return 0
	}
	var h maphash.Hash
	h.SetSeed(hashSeed)
	_, _ = h.Write(value[:i])
	_, _ = h.Write(value[i+end:])
	return max(1, h.Sum64())
}
