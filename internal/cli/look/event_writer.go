package look

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/natscampaign/election/internal/cli/events"
	"github.com/natscampaign/election/internal/cli/terminal"
	"github.com/natscampaign/election/observe"
)

// EventWriter writes the events of elections, as lines of text or of JSON objects.
type EventWriter struct {
	Out   io.Writer
	Style terminal.Style
	JSON  bool
}

// Write writes one event.
func (w *EventWriter) Write(e observe.Event) error {
	e = PrintableEvent(e)
	if w.JSON {
		return json.NewEncoder(w.Out).Encode(e) // in one write, a line
	}
	kind := w.Style.Paint(colourOf(e.Kind), fmt.Sprintf("%-8s", e.Kind))
	_, err := fmt.Fprintf(w.Out, "%s  %s  %s\n", w.Style.Paint(terminal.Faint, terminal.Timestamp(e.At)), kind, DescribeEvent(e))
	return err
}

// DroppedEvents takes the place of events that are missing. The help documents its JSON field names, so they must not change.
type DroppedEvents struct {
	Kind    string    `json:"kind"` // events.Dropped
	Dropped int       `json:"dropped"`
	At      time.Time `json:"at"`
}

// DroppedEvents returns the line that takes the place of dropped events.
func (w *EventWriter) DroppedEvents(lines int) string {
	if !w.JSON {
		return terminal.DroppedLines(lines)
	}
	return string(terminal.JSONLine(DroppedEvents{events.Dropped, lines, time.Now().UTC()}))
}

// colourOf returns the colour for a kind of event.
func colourOf(k observe.EventKind) string {
	switch k {
	case observe.Leading:
		return terminal.Bold + ";" + terminal.Green
	case observe.Elected:
		return terminal.Yellow
	case observe.Renewed:
		return terminal.Faint
	}
	return terminal.Red
}
