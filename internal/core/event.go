package core

import (
	"time"

	"github.com/natscampaign/election/internal/record"
)

// Event is something that a candidate reports. Its driver logs it, counts it, calls back, and does what it asks for.
type Event struct {
	Kind           EventKind
	State          State         // Campaigned, StateChanged
	Reason         Reason        // StateChanged
	Term           *Term         // StateChanged, LeadershipCounts, RenewalFailed, KeyNotReleased, TermOver; only methods of the Candidate change it
	On             bool          // RecordAttempts, NextChanged
	Took           time.Duration // Renewed
	Left           time.Duration // RenewalFailed: of the lease
	Err            error         // RenewalFailed; MetadataStored: why it was not
	Ending         Ending        // KeyNotReleased
	Level          Level         // Logged, RenewalFailed
	Message        string
	Attrs          []any
	Name, Instance string // Preempt: of the leader

	Record   *record.Record // LeaderSeen; nil if nobody holds the key
	Revision uint64
	Written  time.Time
	TTL      time.Duration
}

// EventKind is the kind of an event.
type EventKind uint8

// The kinds of events.
const (
	Logged           EventKind = iota
	Campaigned                 // a campaign or a renewal begins
	StateChanged               // the candidate has won, leads, or does not lead any more
	LeadershipCounts           // leadership counts from now on
	KeyNotReleased             // the key was not released, and why
	TermOver                   // the key was released or given up
	LeaderSeen                 // the holder of the key was read, or that there is none
	Renewed                    // a renewal was acknowledged
	RenewalFailed              // a try to renew failed
	RecordAttempts             // receive the attempts of other candidates, or no longer
	Remake                     // start the source of notifications anew: it is that of another bucket
	SourceStalled              // the source of notifications seems to be stalled
	Suspect                    // an answer or a notification has not come in time
	Preempt                    // ask a leader of lower priority to hand over
	MetadataStored             // the metadata was stored after all, or was not
	NextChanged                // the candidate is the one that takes over, or is not any more
)

// Level is how important a line of the log is.
type Level uint8

// The levels.
const (
	Debug Level = iota
	Info
	Warn
)

func (c *Candidate) report(e Event) { c.events = append(c.events, e) }

func (c *Candidate) log(level Level, message string, attrs ...any) {
	c.report(Event{Kind: Logged, Level: level, Message: message, Attrs: attrs})
}

// stateChanged reports a change of state. t is the term that began or ended.
func (c *Candidate) stateChanged(to State, why Reason, t *Term) {
	c.report(Event{Kind: StateChanged, State: to, Reason: why, Term: t})
}

// reportHolder reports who holds the key.
func (c *Candidate) reportHolder(r *record.Record, revision uint64, written time.Time) {
	c.report(Event{Kind: LeaderSeen, Record: r, Revision: revision, Written: written, TTL: c.bucket.TTL})
}

// reportVacant reports that nobody holds the key.
func (c *Candidate) reportVacant() { c.report(Event{Kind: LeaderSeen}) }
