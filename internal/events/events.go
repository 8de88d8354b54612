// Package events tells what happens to one candidate, as lines of text or of JSON. Its source is the candidate's log, which alone has
// the reasons.
package events

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/terminal"
)

// Event is one thing that happened to a candidate. Its field names are documented in the help and stay as they are.
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
	Bucket   string         `json:"bucket,omitempty"`
	TTLS     float64        `json:"ttl_s,omitempty"`
	Server   string         `json:"server,omitempty"`
	Dropped  int            `json:"dropped,omitempty"`
}

// Names of events.
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

// Messages of the library that are events; what else it logs is left to the log.
const (
	MessageStateChanged = "State changed"
	messageLeaderSeen   = "Leader seen"
	messageKeyReleased  = "Key released"
)

// Narrator turns what the library logs into events: its log is the only account that has the reasons. It is a
// slog.Handler, and passes on to the next whatever is no event.
type Narrator struct {
	Next  slog.Handler
	Story *Story
}

// Story is what a narrator remembers and where it tells it.
type Story struct {
	Out   io.Writer
	Style terminal.Style
	JSON  bool
	About Event // what all events have in common, and what the first one adds
	token func() (election.Term, bool)

	mu    sync.Mutex
	state election.State
	since time.Time // when leadership began to count; zero if it does not
}

// Enabled says whether records of that level may be of use.
func (n *Narrator) Enabled(ctx context.Context, level slog.Level) bool {
	return level == slog.LevelInfo || n.Next.Enabled(ctx, level)
}

// WithAttrs returns a narrator whose log has attrs. Events know their election already.
func (n *Narrator) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &Narrator{Next: n.Next.WithAttrs(attrs), Story: n.Story}
}

// WithGroup returns a narrator whose log has a group.
func (n *Narrator) WithGroup(name string) slog.Handler {
	return &Narrator{Next: n.Next.WithGroup(name), Story: n.Story}
}

// Handle tells a record as an event, or passes it on.
func (n *Narrator) Handle(ctx context.Context, r slog.Record) error {
	if e, ok := n.Story.read(r); ok {
		return n.Story.tell(e)
	}
	if !n.Next.Enabled(ctx, r.Level) {
		return nil
	}
	return n.Next.Handle(ctx, r)
}

// read makes an event of a record that is one.
func (s *Story) read(r slog.Record) (Event, bool) {
	e := Event{Time: r.Time.Round(0), Election: s.About.Election, Name: s.About.Name}
	r.Attrs(func(a slog.Attr) bool {
		switch v := a.Value.Resolve(); a.Key {
		case "state":
			e.State, _ = v.Any().(election.State)
		case "term":
			e.Term, _ = v.Any().(uint64)
		case "reason":
			e.Reason = v.String()
		case "leader":
			e.Leader = terminal.Printable(v.String())
		}
		return true
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	switch r.Message {
	case MessageStateChanged:
		s.moved(&e)
	case messageLeaderSeen:
		e.Event, e.State = Following, s.state
	case messageKeyReleased:
		e.Event, e.State = Released, s.state
	}
	return e, e.Event != ""
}

// moved names a change of state. The caller holds mu.
func (s *Story) moved(e *Event) {
	before := s.state
	s.state = e.State
	switch e.State {
	case election.LeaderElectState:
		e.Event = Elected
	case election.LeaderState:
		e.Event = Leading
		s.since = e.Time
		if t, ok := s.token(); ok {
			e.Token = t.Token()
		}
	case election.CandidateState:
		e.Event = Lost
		if before == election.UnknownState {
			e.Event = Started
			e.Bucket, e.TTLS, e.Server = s.About.Bucket, s.About.TTLS, s.About.Server
		}
	case election.UnknownState:
		e.Event = Stopped
	}
	if e.Event == Lost && !s.since.IsZero() {
		led := e.Time.Sub(s.since).Round(time.Millisecond).Seconds()
		e.LedS = &led
		s.since = time.Time{}
	}
}

// Gap stands for events that were dropped because nobody read them.
func (s *Story) Gap(events int) string {
	if !s.JSON {
		return terminal.Dropped(events)
	}
	return string(jsonLine(Event{Time: time.Now(), Event: Dropped, Election: s.About.Election, Name: s.About.Name, Dropped: events}))
}

// jsonLine returns an event as a line of JSON.
func jsonLine(e Event) []byte {
	e.Time = e.Time.UTC()
	line, err := json.Marshal(e)
	if err != nil { // an event has nothing that cannot be encoded
		panic(err)
	}
	return append(line, '\n')
}

// tell writes an event.
func (s *Story) tell(e Event) error {
	if s.JSON {
		_, err := s.Out.Write(jsonLine(e))
		return err
	}
	_, err := fmt.Fprintf(s.Out, "%s  %s  %s\n", s.Style.Paint(terminal.Faint, e.Time.Format(terminal.TimeOfDay)), s.label(e), sentence(e))
	return err
}

// label names the event in a column of its own.
func (s *Story) label(e Event) string {
	text := fmt.Sprintf("%-9s", e.Event)
	switch e.Event {
	case Leading:
		return s.Style.Paint(terminal.Bold+";"+terminal.Green, text)
	case Elected:
		return s.Style.Paint(terminal.Yellow, text)
	case Lost:
		return s.Style.Paint(terminal.Red, text)
	}
	return text
}

// sentence tells an event to people.
func sentence(e Event) string {
	name, key := terminal.Printable(e.Name), terminal.Printable(e.Election)
	switch e.Event {
	case Started:
		return fmt.Sprintf("%s campaigns for %s in bucket %s (TTL %s) on %s", name, key, e.Bucket, terminal.Human(terminal.Seconds(e.TTLS)), e.Server)
	case Elected:
		return fmt.Sprintf("%s won the key (%s); it leads once the stand-down is over, term %d", name, e.Reason, e.Term)
	case Leading:
		return strings.TrimSuffix(fmt.Sprintf("%s leads %s, term %d, token %s", name, key, e.Term, e.Token), ", token ")
	case Lost:
		if e.LedS == nil {
			return fmt.Sprintf("%s gave up the key before it led (%s)", name, e.Reason)
		}
		return fmt.Sprintf("%s no longer leads (%s), after %s", name, e.Reason, terminal.Human(terminal.Seconds(*e.LedS)))
	case Released:
		return fmt.Sprintf("%s released %s", name, key)
	case Following:
		if e.Term == 0 {
			return fmt.Sprintf("%s holds %s and is about to lead", e.Leader, key)
		}
		return fmt.Sprintf("%s leads %s, term %d", e.Leader, key, e.Term)
	}
	return fmt.Sprintf("%s left the election", name)
}

// Introduce adds the bucket and the server to the story's first event.
func (s *Story) Introduce(ctx context.Context, server string, bucket *election.Bucket, term func() (election.Term, bool)) {
	s.About.Bucket, s.About.Server = bucket.Bucket(), server
	if status, err := bucket.Status(ctx); err == nil {
		s.About.TTLS = status.TTL().Seconds()
	}
	s.token = term
}
