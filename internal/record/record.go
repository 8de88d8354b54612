// Package record reads and writes what is stored under the key of an election: one JSON object, or the bare name of a leader.
//
// Anybody may have written the value. Whatever it is, [Parse] returns a record that takes no more memory than the largest one of
// this package, and readers ignore fields that they do not know.
package record

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"math"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/natscampaign/election/internal/timeutil"
	"github.com/natscampaign/election/internal/validate"
)

// Version is the version of the format that this package writes. Format 0 had no version; what its records prove is read all the same.
const Version = 1

const (
	// MaxIDBytes bounds the ids of a record. Those of this package have at most 36 bytes.
	MaxIDBytes = 128
	// MaxSuccessors and MaxSuccessorBytes bound the successors that a release names.
	MaxSuccessors, MaxSuccessorBytes = 8, validate.MaxNameBytes
	// MaxQueue bounds the queue that the release of a lock lists, and queueIDBytes is the length of an id in it.
	MaxQueue, queueIDBytes = 256, 8
	// MaxPredecessors bounds the secrets of terms before that a record reveals.
	MaxPredecessors = 16
	// MaxPriorities bounds the priorities that a record lists.
	MaxPriorities = 8
	// MaxBytes bounds a record. JSON makes six bytes of one at worst, and a key of metadata, which has at least one byte, takes six more
	// for its quotes. The rest is for fields of a fixed size.
	MaxBytes = (6+6)*validate.MaxMetadataBytes + 6*(2*validate.MaxNameBytes+MaxSuccessorBytes) + (MaxQueue+MaxSuccessors)*(queueIDBytes+3) + MaxPredecessors*(2*secretBytes) + 2<<10
	// MaxHeadStart bounds how long the first successor has the release to itself.
	MaxHeadStart = time.Second
	// maxDuration bounds the interval and the lease of a record, as the TTL of a bucket is bounded.
	maxDuration = time.Hour
)

// Record is what a candidate writes under the key.
type Record struct {
	Version       int               `json:"version,omitempty"`
	Name          string            `json:"name"`
	Instance      string            `json:"instance"`         // unique per candidate
	Attempt       string            `json:"attempt"`          // unique per write: identifies a write whose reply was lost
	Started       time.Time         `json:"started,omitzero"` // when the candidate started
	Since         time.Time         `json:"since"`            // when the term was won
	Term          uint64            `json:"term,omitempty"`   // 0 until leadership counts; see Leads
	Led           time.Time         `json:"led,omitzero"`     // since when leadership counts; zero before that, and in a record that Leads
	Leads         bool              `json:"leads,omitempty"`  // leadership counts from this very write: its revision is the number of the term
	BucketCreated time.Time         `json:"bucket,omitzero"`  // when the stream behind the bucket was created
	Won           string            `json:"won,omitempty"`    // over what: "vacant", "released", "reclaimed" or "lapsed"
	Host          string            `json:"host,omitempty"`
	PID           int               `json:"pid,omitempty"`
	Priority      int               `json:"priority,omitempty"`
	Metadata      map[string]string `json:"metadata,omitempty"`

	// When the stream was created, as its server says now, if the server has changed that during the term; see Bucket.
	BucketReported time.Time `json:"bucket_reported,omitzero"`

	Notified    bool  `json:"notified,omitempty"`      // in an attempt: the candidate is notified of vacancies
	Withdrawn   bool  `json:"withdrawn,omitempty"`     // in an attempt that is always refused: the candidate no longer waits for the lock
	Priorities  []int `json:"priorities,omitempty"`    // the highest priorities of the candidates, each once; nil if all have priority 0
	IntervalMs  int64 `json:"interval_ms,omitempty"`   // from one renewal of the writer to the next
	StandDownMs int64 `json:"stand_down_ms,omitempty"` // what was left of the writer's stand-down; its successor waits for it
	LeaseMs     int64 `json:"lease_ms,omitempty"`      // the length of the lease that the write earns, from when it was sent

	// What proves a release: each record of a term states the commitment to a secret that its release reveals. Predecessors are the secrets of
	// the terms before, the last first, if each of them ended by a release: so this term began after those had ended.
	Commitment   Commitment `json:"commitment,omitzero"`
	Predecessors Secrets    `json:"predecessor_secrets,omitempty"`

	// Of a session whose lease has lapsed: the session that closed it, so that nobody can renew it any more. See package internal/session.
	ClosedBy string `json:"closed_by,omitempty"`
	// Set by a renewal: the instance of the candidate that answers first if the record expires.
	Successor string `json:"successor,omitempty"`
	// Set by a renewal: how many candidates the leader knows that are notified of vacancies, at most MaxSuccessors.
	Standbys int `json:"standbys,omitempty"`

	// Set by a release.
	Released     time.Time `json:"released,omitzero"`       // when it was written
	Secret       Secret    `json:"secret,omitzero"`         // the proof: it opens the commitment
	Reason       string    `json:"reason,omitempty"`        // why the writer's term ended
	Successors   []string  `json:"successors,omitempty"`    // the names of the candidates that take over first, in this order
	SuccessorIDs []string  `json:"successor_ids,omitempty"` // their ids, see QueueID; where one is empty or missing, only the name is known
	HeadStartMs  int64     `json:"head_start_ms,omitempty"` // for how long the first of them has the release to itself
	Queue        []string  `json:"queue,omitempty"`         // of a lock: the ids of the candidates that wait, who come after them; see QueueID
}

// Encode returns the bytes of the record.
func (r Record) Encode() []byte {
	r.Version = Version
	b, err := json.Marshal(r)
	if err != nil { // nothing in a record can fail to encode
		panic("election: record does not encode: " + err.Error())
	}
	return b
}

// Beginning returns the bytes with which every record of a candidate begins, and no record of another.
func Beginning(name, instance string) []byte {
	b, _, _ := bytes.Cut(Record{Name: name, Instance: instance}.Encode(), []byte(`,"attempt":`)) // quotes within text are escaped
	return b
}

// Parse reads the value of a key that was stored at the given revision, 0 if that is not known. Bytes that are no record of this package
// are the bare name of a leader, as Choria's candidates write it; that record has no Instance.
func Parse(value []byte, revision uint64) Record {
	var r Record
	if len(value) > MaxBytes {
		return Record{Name: boundName(value)}
	}
	err := json.Unmarshal(value, &r)
	// Records are compared by their ids, so an id is never cut.
	if err != nil || r.Name == "" || r.Instance == "" || r.Attempt == "" || len(r.Instance) > MaxIDBytes || len(r.Attempt) > MaxIDBytes {
		return Record{Name: boundName(value)}
	}
	r.bound()
	if r.Leads && r.Term == 0 && r.Released.IsZero() {
		r.Term = revision
	}
	return r
}

// bound cuts or drops what no candidate of this package writes.
func (r *Record) bound() {
	for _, name := range []*string{&r.Name, &r.Host} {
		if len(*name) > validate.MaxNameBytes {
			*name = boundName([]byte(*name))
		}
	}
	for _, id := range []*string{&r.Won, &r.Reason, &r.Successor, &r.ClosedBy} {
		if len(*id) > MaxIDBytes {
			*id = ""
		}
	}
	r.Standbys = min(max(r.Standbys, 0), MaxSuccessors)
	size := 0
	for k, v := range r.Metadata {
		size += len(k) + len(v)
	}
	if size > validate.MaxMetadataBytes {
		r.Metadata = nil
	}
	r.Priorities = slices.Clone(r.Priorities[:min(len(r.Priorities), MaxPriorities)]) // a clone releases the rest
	if slices.ContainsFunc(r.SuccessorIDs, func(id string) bool { return id != "" && len(id) != queueIDBytes }) {
		r.SuccessorIDs = nil
	}
	r.Successors = r.Successors[:min(len(r.Successors), MaxSuccessors)]
	r.SetSuccessors(r.Named())
	r.Queue = slices.Clone(r.Queue[:min(len(r.Queue), MaxQueue)])
	if slices.ContainsFunc(r.Queue, func(id string) bool { return len(id) != queueIDBytes }) {
		r.Queue = nil
	}
}

// Successor is a candidate that a release names. The name is what people read. The ID, by which the candidate knows itself, distinguishes
// candidates of one name; see QueueID. It is empty where only the name is known, and then every candidate of that name is meant.
type Successor struct{ Name, ID string }

// SetSuccessors has the release name these candidates, as many as fit.
func (r *Record) SetSuccessors(successors []Successor) {
	r.Successors, r.SuccessorIDs = nil, nil
	known := false
	for _, s := range BoundSuccessors(successors) {
		r.Successors, r.SuccessorIDs, known = append(r.Successors, s.Name), append(r.SuccessorIDs, s.ID), known || s.ID != ""
	}
	if !known {
		r.SuccessorIDs = nil
	}
}

// Named returns the candidates that the release names.
func (r Record) Named() (successors []Successor) {
	for i, name := range r.Successors {
		successors = append(successors, Successor{name, r.successorID(i)})
	}
	return successors
}

func (r *Record) successorID(i int) string {
	if i < len(r.SuccessorIDs) {
		return r.SuccessorIDs[i]
	}
	return ""
}

// BoundSuccessors returns the first candidates that fit into a release.
func BoundSuccessors(successors []Successor) []Successor {
	left := MaxSuccessorBytes
	for i, s := range successors {
		if left -= len(s.Name); left < 0 || i == MaxSuccessors {
			return successors[:i]
		}
	}
	return successors
}

// boundName returns a name of at most MaxNameBytes. A name that is cut ends with a hash of the whole: two different long names remain
// different, and no long name becomes that of another candidate.
func boundName(name []byte) string {
	if len(name) <= validate.MaxNameBytes {
		return string(name)
	}
	hash := fnv.New64a()
	_, _ = hash.Write(name)
	mark := fmt.Sprintf("…%016x", hash.Sum64())
	end := validate.MaxNameBytes - len(mark)
	for least := end - utf8.UTFMax; end > least && !utf8.RuneStart(name[end]); {
		end--
	}
	return string(name[:end]) + mark
}

// QueueID returns the id of the candidate of an instance in a queue: the first 8 characters of the base64url of its FNV-1a hash of 64 bits.
// It is short because all that wait receive the whole queue each time. Two candidates with the same id would share a place.
func QueueID(instance string) string {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(instance))
	return base64.RawURLEncoding.EncodeToString(hash.Sum(nil))[:queueIDBytes]
}

// Place returns the place of a candidate among those that a release names, 0 for the first. If the release does not name the candidate, named is
// false, and the place is after all of them.
func (r Record) Place(name, instance string) (place int, named bool) {
	own := QueueID(instance)
	for i, successor := range r.Successors {
		if id := r.successorID(i); id == own || id == "" && successor == name {
			return i, true
		}
	}
	if i := slices.Index(r.Queue, own); i >= 0 {
		return len(r.Successors) + i, true
	}
	return len(r.Successors) + len(r.Queue), false
}

// QueueAfter returns those of the queue whose turn comes after the given place.
func (r Record) QueueAfter(place int) []string {
	return r.Queue[min(max(place+1-len(r.Successors), 0), len(r.Queue)):]
}

// LeaderElect reports whether the leadership of the record's holder does not count yet. A bare name does not say.
func (r *Record) LeaderElect() bool { return r.Instance != "" && r.Term == 0 }

// IsRelease reports whether the record says that it releases the key; only its secret proves that. It returns what was left of the writer's
// stand-down, which the successor must wait for: 0 after a leader's release. A record with a stand-down that is negative or overflows is no release.
func (r Record) IsRelease() (standDown time.Duration, ok bool) {
	if r.Released.IsZero() || r.StandDownMs < 0 || r.StandDownMs > math.MaxInt64/int64(time.Millisecond) {
		return 0, false
	}
	return time.Duration(r.StandDownMs) * time.Millisecond, true
}

// CarriesRelease reports whether the value of a deletion is the release by which the holder gave up its key, see releasing.writeOp in package core.
// A deletion by other means, as by an operator, carries none.
func CarriesRelease(value []byte) bool {
	if len(value) == 0 {
		return false
	}
	_, released := Parse(value, 0).IsRelease()
	return released
}

// Interval returns the time from one renewal of the writer to the next; 0 if the record does not name a plausible one.
func (r Record) Interval() time.Duration { return plausible(r.IntervalMs, maxDuration) }

// Lease returns how long the lease is that the write earned, from when it was sent; 0 if the record does not name a plausible time.
func (r Record) Lease() time.Duration { return plausible(r.LeaseMs, maxDuration) }

// HeadStart returns for how long the first successor has the release to itself; 0 if the record does not name a plausible time.
func (r Record) HeadStart() time.Duration { return plausible(r.HeadStartMs, MaxHeadStart) }

// plausible returns a duration that a record names; 0 if it is negative or longer than any that is written.
func plausible(ms int64, longest time.Duration) time.Duration {
	if ms < 0 || ms > longest.Milliseconds() {
		return 0
	}
	return time.Duration(ms) * time.Millisecond
}

// Bucket returns when the stream behind the bucket was created, as the server said last to the writer. Some servers change that time. BucketCreated
// stays the same for a whole term, because the term's token begins with it.
func (r Record) Bucket() time.Time { return timeutil.Later(r.BucketCreated, r.BucketReported) }

// Follows reports whether the record proves that the term which committed to c had ended by a release before the record's own term began.
func (r Record) Follows(c Commitment) bool { return slices.ContainsFunc(r.Predecessors, c.OpenedBy) }

// SameTerm reports whether both records were written in one term, as far as records show.
func (r Record) SameTerm(before Record) bool {
	return r.Instance == before.Instance && r.Name == before.Name && r.Commitment == before.Commitment &&
		(r.Commitment != (Commitment{}) || r.Since.Equal(before.Since))
}

// Renews reports whether the record may be a renewal of the term in which the one before was written.
func (r Record) Renews(before Record) bool {
	return r.SameTerm(before) && r.Since.Equal(before.Since) && r.Term == before.Term &&
		r.Priority == before.Priority && maps.Equal(r.Metadata, before.Metadata)
}

// Milliseconds returns d as records write it: rounded up, and never less than 0.
func Milliseconds(d time.Duration) int64 { return max(0, d+time.Millisecond-1).Milliseconds() }
