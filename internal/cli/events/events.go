// Package events writes what happens to one candidate, as lines of text or of JSON objects.
//
// Handler is a slog.Handler for the candidate's logger. A Writer takes the log records that are events, and Handler passes on all
// others. The log is the source because only the log contains the reasons. Each event is one line; untrusted text in it is
// printable.
package events

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/cli/terminal"
)

// Event is an event of a candidate. The help documents its JSON field names, so they must not change.
type Event struct {
	Time     time.Time      `json:"time"`
	Event    string         `json:"event"`
	Election string         `json:"election"`
	Name     string         `json:"name"`
	State    election.State `json:"state"`
	Term     uint64         `json:"term,omitempty"`
	Token    string         `json:"token,omitempty"`
	Reason   string         `json:"reason,omitempty"`
	Leader   string         `json:"leader,omitempty"`
	LedS     *float64       `json:"led_s,omitempty"`
	LeadsInS float64        `json:"leads_in_s,omitempty"` // of the stand-down after a win; at most, if another candidate has won
	Bucket   string         `json:"bucket,omitempty"`
	TTLS     float64        `json:"ttl_s,omitempty"`
	Server   string         `json:"server,omitempty"`
	Dropped  int            `json:"dropped,omitempty"`

	because string // why a winner stands down
}

// Values of Event.Event.
const (
	Started   = "started"
	Elected   = "elected"
	Leading   = "leading"
	Lost      = "lost"
	Released  = "released"
	Following = "following"
	Stopped   = "stopped"
	Dropped   = "dropped"
)

// Messages of the log records of the library that are events.
const (
	messageStateChanged = "State changed"
	messageLeaderSeen   = "Leader seen"
	messageKeyReleased  = "Key released"
)

// Handler offers log records to Take, and passes those that Take does not take to Next.
type Handler struct {
	Next slog.Handler
	Take func(slog.Record) (taken bool, err error)
}

// Enabled reports whether the handler needs records of the level. It needs all of level info, because events have it.
func (h *Handler) Enabled(ctx context.Context, level slog.Level) bool {
	return level == slog.LevelInfo || h.Next.Enabled(ctx, level)
}

// WithAttrs returns a handler that adds attrs to what Next gets.
func (h *Handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &Handler{Next: h.Next.WithAttrs(attrs), Take: h.Take}
}

// WithGroup returns a handler that adds a group to what Next gets.
func (h *Handler) WithGroup(name string) slog.Handler {
	return &Handler{Next: h.Next.WithGroup(name), Take: h.Take}
}

// Handle offers the record to Take, or passes it to Next.
func (h *Handler) Handle(ctx context.Context, r slog.Record) error {
	if taken, err := h.Take(r); taken {
		return err
	}
	if !h.Next.Enabled(ctx, r.Level) {
		return nil
	}
	return h.Next.Handle(ctx, r)
}

// Writer writes the events of one candidate, and keeps the state that it needs for them.
type Writer struct {
	Out    io.Writer
	Style  terminal.Style
	JSON   bool
	Common Event // Election and Name are in all events; Bucket, TTLS and Server are in the event Started

	term func() (election.Term, bool) // the term of the candidate

	mu    sync.Mutex
	state election.State
	since time.Time // when leadership began to count; zero if it does not count

	explained bool // whether a line has said what the number of a term is
}

// Take writes a log record that is an event. It needs no attributes of the logger: Common has the election.
func (w *Writer) Take(r slog.Record) (taken bool, err error) {
	e, ok := w.eventOf(r)
	if !ok {
		return false, nil
	}
	return true, w.write(e)
}

// SetBucket sets the bucket and the server of the event Started, and the function that returns the term of the candidate.
// Call it before the candidate starts.
func (w *Writer) SetBucket(ctx context.Context, server string, bucket *election.Bucket, term func() (election.Term, bool)) {
	w.Common.Bucket, w.Common.Server = bucket.Bucket(), server
	if status, err := bucket.Status(ctx); err == nil {
		w.Common.TTLS = status.TTL().Seconds()
	}
	w.term = term
}

// DroppedEvents returns the line that takes the place of dropped events.
func (w *Writer) DroppedEvents(events int) string {
	if !w.JSON {
		return terminal.DroppedLines(events)
	}
	return string(terminal.JSONLine(Event{Time: time.Now().UTC(), Event: Dropped, Election: w.Common.Election, Name: w.Common.Name, Dropped: events}))
}

// StateChange returns the State, Term and Reason of a log record that reports a change of state. It returns false for other records.
func StateChange(r slog.Record) (Event, bool) {
	if r.Message != messageStateChanged {
		return Event{}, false
	}
	return parse(r), true
}

// parse returns an event with what the record itself says.
func parse(r slog.Record) Event {
	e := Event{Time: r.Time.Round(0)}
	r.Attrs(func(a slog.Attr) bool {
		switch v := a.Value.Resolve(); a.Key {
		case "state":
			e.State, _ = v.Any().(election.State)
		case "term":
			e.Term, _ = v.Any().(uint64)
		case "reason":
			e.Reason = v.String()
		case "stand-down", "leads-within":
			e.LeadsInS = terminal.ToSeconds(v.Duration())
		case "because":
			e.because = v.String()
		case "leader":
			e.Leader = terminal.Printable(v.String())
		}
		return true
	})
	return e
}

// eventOf returns the event that a log record reports. It returns false for other records.
func (w *Writer) eventOf(r slog.Record) (Event, bool) {
	e := parse(r)
	e.Election, e.Name = w.Common.Election, w.Common.Name
	w.mu.Lock()
	defer w.mu.Unlock()
	switch r.Message {
	case messageStateChanged:
		w.changeState(&e)
	case messageLeaderSeen:
		e.Event, e.State = Following, w.state
	case messageKeyReleased:
		e.Event, e.State = Released, w.state
	}
	return e, e.Event != ""
}

// changeState completes the event of a change of state. The caller holds mu.
func (w *Writer) changeState(e *Event) {
	before := w.state
	w.state = e.State
	switch e.State {
	case election.LeaderElectState:
		e.Event = Elected
	case election.LeaderState:
		e.Event = Leading
		w.since = e.Time
		if t, ok := w.term(); ok {
			e.Token = t.Token()
		}
	case election.CandidateState:
		e.Event = Lost
		if before == election.UnknownState {
			e.Event = Started
			e.Bucket, e.TTLS, e.Server = w.Common.Bucket, w.Common.TTLS, w.Common.Server
		}
	case election.UnknownState:
		e.Event = Stopped
	}
	if e.Event == Lost && !w.since.IsZero() {
		led := terminal.ToSeconds(e.Time.Sub(w.since))
		e.LedS = &led
		w.since = time.Time{}
	}
}

// write writes one event.
func (w *Writer) write(e Event) error {
	if w.JSON {
		e.Time = e.Time.UTC()
		_, err := w.Out.Write(terminal.JSONLine(e))
		return err
	}
	_, err := fmt.Fprintf(w.Out, "%s  %s  %s%s\n", w.Style.Paint(terminal.Faint, e.Time.Format(terminal.TimeOfDayLayout)), w.label(e), sentence(e), w.explanation(e))
	return err
}

// explanation returns what the number of a term is, once, where the first one is written.
func (w *Writer) explanation(e Event) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e.Term == 0 || e.LeadsInS > 0 || w.explained || e.Event != Elected && e.Event != Leading && e.Event != Following {
		return ""
	}
	w.explained = true
	return " (a revision: later are larger)"
}

// label returns the column with the kind of the event.
func (w *Writer) label(e Event) string {
	text := fmt.Sprintf("%-9s", e.Event)
	switch e.Event {
	case Leading:
		return w.Style.Paint(terminal.Bold+";"+terminal.Green, text)
	case Elected:
		return w.Style.Paint(terminal.Yellow, text)
	case Lost:
		return w.Style.Paint(terminal.Red, text)
	}
	return text
}

// sentence describes an event.
func sentence(e Event) string {
	name, key := terminal.Quote(e.Name), terminal.Quote(e.Election)
	switch e.Event {
	case Started:
		ttl := "no TTL"
		if e.TTLS > 0 {
			ttl = "TTL " + terminal.FormatDuration(terminal.FromSeconds(e.TTLS))
		}
		return fmt.Sprintf("%s campaigns for %s in bucket %q (%s) on %s", name, key, e.Bucket, ttl, e.Server)
	case Elected:
		won := fmt.Sprintf("%s won the key (%s), term %d", name, e.Reason, e.Term)
		if e.Reason == string(election.ReasonReleased) {
			won = fmt.Sprintf("%s took over the released key, term %d", name, e.Term)
		}
		if e.LeadsInS > 0 { // a release may leave a stand-down, and a lease that has lapsed leaves none
			won += fmt.Sprintf(", and leads in %s unless it loses the key before: %s", terminal.FormatDuration(terminal.FromSeconds(e.LeadsInS)), e.because)
		}
		return won
	case Leading:
		return strings.TrimSuffix(fmt.Sprintf("%s leads %s, term %d, token %s", name, key, e.Term, e.Token), ", token ")
	case Lost:
		if e.LedS == nil {
			return fmt.Sprintf("%s gave up the key before it led (%s)", name, e.Reason)
		}
		return fmt.Sprintf("%s no longer leads (%s), after %s", name, e.Reason, terminal.FormatDuration(terminal.FromSeconds(*e.LedS)))
	case Released:
		return fmt.Sprintf("%s released %s", name, key)
	case Following:
		if e.LeadsInS > 0 {
			return fmt.Sprintf("%s holds %s, and leads within %s unless it loses the key before", terminal.Quote(e.Leader), key,
				terminal.FormatDuration(terminal.FromSeconds(e.LeadsInS)))
		}
		if e.Term == 0 {
			return fmt.Sprintf("%s holds %s and is about to lead", terminal.Quote(e.Leader), key)
		}
		return fmt.Sprintf("%s leads %s, term %d", terminal.Quote(e.Leader), key, e.Term)
	}
	return fmt.Sprintf("%s left the election", name)
}
