package core

import (
	"fmt"
	"maps"
	"time"

	"github.com/natscampaign/election/internal/record"
)

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

// metadata is what the user has set, and what of it the bucket takes.
type metadata struct {
	set     map[string]string
	fits    map[string]string // what was written last
	refused bool              // what is set: a record with it is too large
}

// toStore returns the metadata of the next record: what is set, or what was written last if that is too large.
func (m *metadata) toStore() map[string]string {
	if m.refused {
		return m.fits
	}
	return m.set
}

// leaveOutNew has the next record do without metadata that no record had yet, and reports whether there was any.
func (m *metadata) leaveOutNew() bool {
	if m.refused || maps.Equal(m.set, m.fits) {
		return false
	}
	m.refused = true
	return true
}

// shrinkMetadata is called when a record is too large that has nothing else to leave out. The next has the metadata that fitted last, or
// none. It returns false if the record had none.
func (c *Candidate) shrinkMetadata(now time.Time, r *record.Record, err error) bool {
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
		c.requestFailed(now, MetadataRequest, fmt.Errorf("metadata not stored, a record of %d bytes with it is too large: set less, or have the bucket and the server take larger messages: %w", size, err), TooLarge)
		c.log(Warn, "Metadata not stored, the record would be too large", "bytes", size, "error", err)
	}
	return true
}

// metadataStored is called when a record was written.
func (c *Candidate) metadataStored(r *record.Record) {
	c.metadata.fits = r.Metadata
	if !c.metadata.refused {
		c.requestSucceeded(MetadataRequest)
	}
}
