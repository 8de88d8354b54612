package core

import (
	"fmt"
	"maps"
	"time"

	"github.com/natscampaign/election/internal/record"
)

// What a candidate writes, and what it leaves out if a record is too large: that never costs a term.

// newRecord returns the record to be written next, in a term that was won at the given time.
func (c *Candidate) newRecord(since time.Time) *record.Record {
	return &record.Record{
		Name: c.Name, Instance: c.Instance, Attempt: c.NewID(), Started: c.started, Since: since.Round(0), BucketCreated: c.bucket.Created,
		Host: c.Host, PID: c.PID, Priority: c.Priority, Metadata: c.metadataToStore(), IntervalMs: record.Milliseconds(c.bucket.Interval),
		LeaseMs: record.Milliseconds(c.bucket.LeaseTime()),
	}
}

// encode returns the bytes to be stored for a record that is no release.
func (c *Candidate) encode(r *record.Record) []byte {
	if c.Plain {
		return []byte(r.Name)
	}
	return r.Encode()
}

// lean is how much the records of a candidate leave out, because a record was too large. Each level leaves out more.
type lean uint8

// The levels.
const (
	whole           lean = iota
	withoutNew           // metadata that no record has had yet: the records have what was stored last
	withoutOthers        // the candidates that are to take over, too, but for the target of a transfer
	withoutMetadata      // all metadata
)

// metadata is the metadata that the user has set, and that of the last record that was stored.
type metadata struct {
	set      map[string]string
	stored   map[string]string
	reported bool // that it is not stored
}

// metadataToStore returns the metadata of the next record.
func (c *Candidate) metadataToStore() map[string]string {
	switch {
	case c.lean == withoutMetadata:
		return nil
	case c.lean >= withoutNew:
		return c.metadata.stored
	}
	return c.metadata.set
}

// leaveOut has the next records leave out more than one that was too large, and reports whether there is more to leave out.
func (c *Candidate) leaveOut(r *record.Record, err error) bool {
	m := &c.metadata
	if c.lean == withoutMetadata || c.Plain && r.Released.IsZero() {
		return false
	}
	if c.lean++; c.lean == withoutNew && maps.Equal(m.set, m.stored) {
		c.lean++
	}
	if len(m.set) > 0 && !m.reported && !maps.Equal(c.metadataToStore(), m.set) {
		m.reported = true
		size := len(r.Encode())
		c.report(Event{Kind: MetadataStored, Err: fmt.Errorf("metadata not stored, a record of %d bytes with it is too large: set less, or have the bucket and the server take larger messages: %w", size, err)})
		c.log(Warn, "Metadata not stored, the record would be too large", "bytes", size, "error", err)
	}
	return true
}

// metadataStored is called when a record was stored.
func (c *Candidate) metadataStored(r *record.Record) {
	c.metadata.stored = r.Metadata
	if c.lean == whole && c.metadata.reported {
		c.metadata.reported = false
		c.report(Event{Kind: MetadataStored})
	}
}
