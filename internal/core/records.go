package core

import (
	"fmt"
	"maps"
	"time"

	"github.com/natscampaign/election/internal/record"
)

// What a candidate writes, and how it does without metadata if a record is too large: metadata that is too large never costs a term.

// newRecord returns the record to be written next, in a term that was won at the given time.
func (c *Candidate) newRecord(since time.Time) *record.Record {
	return &record.Record{
		Name: c.Name, Instance: c.Instance, Attempt: c.NewID(), Started: c.started, Since: since.Round(0), BucketCreated: c.bucket.Created,
		Host: c.Host, PID: c.PID, Priority: c.Priority, Metadata: c.metadata.toStore(), IntervalMs: record.Milliseconds(c.bucket.Interval),
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

// metadata is the metadata that the user has set, and that of the last record that was stored.
type metadata struct {
	set      map[string]string
	fits     map[string]string // the metadata of the last record that was stored
	refused  bool              // a record with what is set is too large
	reported bool              // that it is not stored
}

// toStore returns the metadata of the next record: what is set or, if that is too large, what was stored last.
func (m *metadata) toStore() map[string]string {
	if m.refused {
		return m.fits
	}
	return m.set
}

// leaveOutNew leaves out of the next record the metadata that no record has had yet, and reports whether there is any.
func (m *metadata) leaveOutNew() bool {
	if m.refused || maps.Equal(m.set, m.fits) {
		return false
	}
	m.refused = true
	return true
}

// shrinkMetadata is called when a record is too large that has nothing else to leave out. The next record has the metadata that was stored last or,
// if that is too large now, none. It returns false if the record had no metadata.
func (c *Candidate) shrinkMetadata(r *record.Record, err error) bool {
	m := &c.metadata
	if c.Plain || len(r.Metadata) == 0 {
		return false
	}
	if m.refused || maps.Equal(r.Metadata, m.fits) {
		m.fits = nil
	}
	if !m.refused {
		m.refused = true
		size := len(r.Encode())
		m.reported = true
		c.report(Event{Kind: MetadataStored, Err: fmt.Errorf("metadata not stored, a record of %d bytes with it is too large: set less, or have the bucket and the server take larger messages: %w", size, err)})
		c.log(Warn, "Metadata not stored, the record would be too large", "bytes", size, "error", err)
	}
	return true
}

// metadataStored is called when a record was stored.
func (c *Candidate) metadataStored(r *record.Record) {
	c.metadata.fits = r.Metadata
	if !c.metadata.refused && c.metadata.reported {
		c.metadata.reported = false
		c.report(Event{Kind: MetadataStored})
	}
}
