package election

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"time"
	"unicode/utf8"
)

const (
	// maxIDBytes bounds the ids of a record. Those of this package have at most 36 bytes.
	maxIDBytes = 128
	// maxRecordBytes bounds a record of this package. JSON makes six bytes of one at worst, and a key of metadata, which has
	// at least one byte, takes six more for its quotes. The rest is for fields of a fixed size.
	maxRecordBytes = (6+6)*maxMetadataBytes + 6*(3*maxNameBytes+maxHeirBytes) + 2<<10
)

// record is what a candidate writes under the key: one JSON object. Readers accept any bytes; see [parseRecord].
type record struct {
	Name     string            `json:"name"`
	Instance string            `json:"instance"`         // unique per Election value
	Attempt  string            `json:"attempt"`          // unique per write: how a write whose reply was lost is recognised
	Started  time.Time         `json:"started,omitzero"` // when the candidate began to stand
	Since    time.Time         `json:"since"`            // when the term was won
	Term     uint64            `json:"term,omitempty"`
	Bucket   time.Time         `json:"bucket,omitzero"` // when the stream behind the bucket was created
	Won      reason            `json:"won,omitempty"`   // over what: "vacant", "released" or "reclaimed"
	Host     string            `json:"host,omitempty"`
	PID      int               `json:"pid,omitempty"`
	Priority int               `json:"priority,omitempty"`
	Metadata map[string]string `json:"metadata,omitempty"`

	Candidates int   `json:"candidates,omitempty"` // roughly how many stand, the leader included; 0 if that is not known
	Levels     []int `json:"levels,omitempty"`     // the highest priorities of those, each once, without 0 where that is all

	Hears bool `json:"hears,omitempty"` // whether the writer hears of vacancies

	IntervalMs  int64 `json:"interval_ms,omitempty"`   // from one renewal of the writer to the next
	StandDownMs int64 `json:"stand_down_ms,omitempty"` // what was left of the writer's stand-down, whoever takes this over

	// Set by the release: when its writer let go, the name of the candidate that is to take the key, for how long all
	// others leave it to that one, and names of some more that stand.
	Released    time.Time `json:"released,omitzero"`
	Next        string    `json:"next,omitempty"`
	HeadStartMs int64     `json:"head_start_ms,omitempty"`
	Heirs       []string  `json:"heirs,omitempty"`
}

// encode returns the bytes of the record. Nothing in a record can fail to encode.
func (r record) encode() []byte {
	b, err := json.Marshal(r)
	if err != nil {
		panic("election: record does not encode: " + err.Error())
	}
	return b
}

// parseRecord reads the value of a key. Bytes that are no record of this package are the bare name of a leader, as
// Choria's candidates write it; such a record has no Instance. Anybody may have written the value: the result never takes
// more memory than the largest record that this package writes.
func parseRecord(value []byte) record {
	var r record
	if len(value) > maxRecordBytes {
		return record{Name: boundName(value)}
	}
	err := json.Unmarshal(value, &r)
	// Records are compared by their ids, so that an id is never cut.
	if err != nil || r.Name == "" || r.Instance == "" || r.Attempt == "" || len(r.Instance) > maxIDBytes || len(r.Attempt) > maxIDBytes {
		return record{Name: boundName(value)}
	}
	r.bound()
	return r
}

// bound cuts or drops what no candidate of this package writes.
func (r *record) bound() {
	for _, name := range []*string{&r.Name, &r.Host, &r.Next} {
		if len(*name) > maxNameBytes {
			*name = boundName([]byte(*name))
		}
	}
	if len(r.Won) > maxIDBytes {
		r.Won = ""
	}
	size := 0
	for k, v := range r.Metadata {
		size += len(k) + len(v)
	}
	if size > maxMetadataBytes {
		r.Metadata = nil
	}
	r.Levels = slices.Clone(r.Levels[:min(len(r.Levels), maxLevels)]) // a clone does not hold on to the rest
	if left := maxHeirBytes; len(r.Heirs) > 0 {
		var heirs []string
		for _, heir := range r.Heirs {
			if left -= len(heir); left < 0 || len(heirs) == maxHeirs {
				break
			}
			heirs = append(heirs, heir)
		}
		r.Heirs = heirs
	}
}

// boundName returns a name of at most maxNameBytes. One that is cut ends with a hash of the whole: two different long names
// remain different, and no long name becomes that of another candidate.
func boundName(name []byte) string {
	if len(name) <= maxNameBytes {
		return string(name)
	}
	hash := fnv.New64a()
	_, _ = hash.Write(name)
	mark := fmt.Sprintf("…%016x", hash.Sum64())
	end := maxNameBytes - len(mark)
	for least := end - utf8.UTFMax; end > least && !utf8.RuneStart(name[end]); {
		end--
	}
	return string(name[:end]) + mark
}

// released says whether the record's writer let go of the key, and the stand-down it was still waiting out itself,
// which its successor must take over: none after a leader's release. A stand-down that makes no sense is no release.
func (r record) released() (standDown time.Duration, ok bool) {
	if r.Released.IsZero() || r.StandDownMs < 0 || r.StandDownMs > math.MaxInt64/int64(time.Millisecond) {
		return 0, false
	}
	return time.Duration(r.StandDownMs) * time.Millisecond, true
}

// interval returns the time from one renewal of the record's writer to the next; 0 if the record does not tell, or makes no sense.
func (r record) interval() time.Duration {
	if r.IntervalMs < 0 || r.IntervalMs > maxTTL.Milliseconds() {
		return 0
	}
	return time.Duration(r.IntervalMs) * time.Millisecond
}

// milliseconds returns d as records tell it: never less than it is, nor less than 0.
func milliseconds(d time.Duration) int64 { return max(0, d+time.Millisecond-1).Milliseconds() }

// headStart returns for how long the candidate of the given name leaves a release to another that it names.
func (r record) headStart(name string) time.Duration {
	if r.Released.IsZero() || r.Next == "" || r.Next == name {
		return 0
	}
	if r.HeadStartMs <= 0 || r.HeadStartMs > maxSpread.Milliseconds() {
		return headStart
	}
	return time.Duration(r.HeadStartMs) * time.Millisecond
}

// above returns how many of the priorities that stand are higher than that given.
func (r record) above(priority int) (n int) {
	for _, level := range r.Levels {
		if level > priority {
			n++
		}
	}
	return n
}

// Leader is who holds a key, as its record tells it. A holder whose leadership does not count yet has no Term. What a
// candidate wrote that knows only bare names, as Choria's do, has nothing but Key, Name, Revision, Renewed and Expires.
type Leader struct {
	Key      string            `json:"key"`
	Name     string            `json:"name"`
	Instance string            `json:"instance,omitempty"` // unique per Election value
	Host     string            `json:"host,omitempty"`
	PID      int               `json:"pid,omitempty"`
	Priority int               `json:"priority,omitempty"`
	Term     uint64            `json:"term,omitempty"`
	Revision uint64            `json:"revision"`
	Started  time.Time         `json:"started,omitzero"` // when it began to stand, by its clock
	Since    time.Time         `json:"since,omitzero"`   // when the term was won, by the leader's clock
	Renewed  time.Time         `json:"renewed,omitzero"` // when the record was written, by the server's clock
	Expires  time.Time         `json:"expires,omitzero"` // when the key expires unless it is renewed, by the server's clock
	Metadata map[string]string `json:"metadata,omitempty"`
}

// leader describes the writer of r, stored at the given revision and time in a bucket with the given TTL.
func (r record) leader(key string, revision uint64, written time.Time, ttl time.Duration) Leader {
	written = written.UTC().Round(0)
	return Leader{
		Key: key, Name: r.Name, Instance: r.Instance, Host: r.Host, PID: r.PID, Priority: r.Priority, Term: r.Term, Revision: revision,
		Started: r.Started, Since: r.Since, Renewed: written, Expires: written.Add(ttl), Metadata: r.Metadata,
	}
}
