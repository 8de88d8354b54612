package main

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
)

// clock is how times of day are shown to people.
const clock = "15:04:05.000"

// event is one thing that happened to a candidate. Its field names are documented in the help and stay as they are.
type event struct {
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
	eventStarted   = "started"
	eventElected   = "elected"
	eventLeading   = "leading"
	eventLost      = "lost"
	eventReleased  = "released"
	eventFollowing = "following"
	eventStopped   = "stopped"
	eventDropped   = "dropped"
)

// Messages of the library that are events; what else it logs is left to the log.
const (
	messageMoved    = "State changed"
	messageSeen     = "Leader seen"
	messageReleased = "Key released"
)

// narrator turns what the library logs into events: its log is the only account that has the reasons. It is a
// slog.Handler, and passes on to the next whatever is no event.
type narrator struct {
	next  slog.Handler
	story *story
}

// story is what a narrator remembers and where it tells it.
type story struct {
	out   io.Writer
	style style
	json  bool
	about event // what all events have in common, and what the first one adds
	token func() (election.Term, bool)

	mu    sync.Mutex
	state election.State
	since time.Time // when leadership began to count; zero if it does not
}

// Enabled says whether records of that level may be of use.
func (n *narrator) Enabled(ctx context.Context, level slog.Level) bool {
	return level == slog.LevelInfo || n.next.Enabled(ctx, level)
}

// WithAttrs returns a narrator whose log has attrs. Events know their election already.
func (n *narrator) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &narrator{next: n.next.WithAttrs(attrs), story: n.story}
}

// WithGroup returns a narrator whose log has a group.
func (n *narrator) WithGroup(name string) slog.Handler {
	return &narrator{next: n.next.WithGroup(name), story: n.story}
}

// Handle tells a record as an event, or passes it on.
func (n *narrator) Handle(ctx context.Context, r slog.Record) error {
	if e, ok := n.story.read(r); ok {
		return n.story.tell(e)
	}
	if !n.next.Enabled(ctx, r.Level) {
		return nil
	}
	return n.next.Handle(ctx, r)
}

// read makes an event of a record that is one.
func (s *story) read(r slog.Record) (event, bool) {
	e := event{Time: r.Time.Round(0), Election: s.about.Election, Name: s.about.Name}
	r.Attrs(func(a slog.Attr) bool {
		switch v := a.Value.Resolve(); a.Key {
		case "state":
			e.State, _ = v.Any().(election.State)
		case "term":
			e.Term, _ = v.Any().(uint64)
		case "reason":
			e.Reason = v.String()
		case "leader":
			e.Leader = printable(v.String())
		}
		return true
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	switch r.Message {
	case messageMoved:
		s.moved(&e)
	case messageSeen:
		e.Event, e.State = eventFollowing, s.state
	case messageReleased:
		e.Event, e.State = eventReleased, s.state
	}
	return e, e.Event != ""
}

// moved names a change of state. The caller holds mu.
func (s *story) moved(e *event) {
	before := s.state
	s.state = e.State
	switch e.State {
	case election.LeaderElectState:
		e.Event = eventElected
	case election.LeaderState:
		e.Event = eventLeading
		s.since = e.Time
		if t, ok := s.token(); ok {
			e.Token = t.Token()
		}
	case election.CandidateState:
		e.Event = eventLost
		if before == election.UnknownState {
			e.Event = eventStarted
			e.Bucket, e.TTLS, e.Server = s.about.Bucket, s.about.TTLS, s.about.Server
		}
	case election.UnknownState:
		e.Event = eventStopped
	}
	if e.Event == eventLost && !s.since.IsZero() {
		led := e.Time.Sub(s.since).Round(time.Millisecond).Seconds()
		e.LedS = &led
		s.since = time.Time{}
	}
}

// gap stands for events that were dropped because nobody read them.
func (s *story) gap(events int) string {
	if !s.json {
		return gapInText(events)
	}
	return string(jsonLine(event{Time: time.Now(), Event: eventDropped, Election: s.about.Election, Name: s.about.Name, Dropped: events}))
}

// jsonLine returns an event as a line of JSON.
func jsonLine(e event) []byte {
	e.Time = e.Time.UTC()
	line, err := json.Marshal(e)
	if err != nil { // an event has nothing that cannot be encoded
		panic(err)
	}
	return append(line, '\n')
}

// tell writes an event.
func (s *story) tell(e event) error {
	if s.json {
		_, err := s.out.Write(jsonLine(e))
		return err
	}
	_, err := fmt.Fprintf(s.out, "%s  %s  %s\n", s.style.paint(faint, e.Time.Format(clock)), s.label(e), sentence(e))
	return err
}

// label names the event in a column of its own.
func (s *story) label(e event) string {
	text := fmt.Sprintf("%-9s", e.Event)
	switch e.Event {
	case eventLeading:
		return s.style.paint(bold+";"+green, text)
	case eventElected:
		return s.style.paint(yellow, text)
	case eventLost:
		return s.style.paint(red, text)
	}
	return text
}

// sentence tells an event to people.
func sentence(e event) string {
	name, key := printable(e.Name), printable(e.Election)
	switch e.Event {
	case eventStarted:
		return fmt.Sprintf("%s campaigns for %s in bucket %s (TTL %s) on %s", name, key, e.Bucket, human(seconds(e.TTLS)), e.Server)
	case eventElected:
		return fmt.Sprintf("%s won the key (%s); it leads once the stand-down is over, term %d", name, e.Reason, e.Term)
	case eventLeading:
		return strings.TrimSuffix(fmt.Sprintf("%s leads %s, term %d, token %s", name, key, e.Term, e.Token), ", token ")
	case eventLost:
		if e.LedS == nil {
			return fmt.Sprintf("%s gave up the key before it led (%s)", name, e.Reason)
		}
		return fmt.Sprintf("%s no longer leads (%s), after %s", name, e.Reason, human(seconds(*e.LedS)))
	case eventReleased:
		return fmt.Sprintf("%s released %s", name, key)
	case eventFollowing:
		if e.Term == 0 {
			return fmt.Sprintf("%s holds %s and is about to lead", e.Leader, key)
		}
		return fmt.Sprintf("%s leads %s, term %d", e.Leader, key, e.Term)
	}
	return fmt.Sprintf("%s left the election", name)
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
