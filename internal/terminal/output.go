// Package terminal writes for people: tables, sheets, colours, log lines, durations, and text of others made harmless. Where no
// terminal is there to read it, tables become columns separated by tabs, and nothing is coloured.
package terminal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"
)

const (
	queuedLimit   = 1 << 20
	flushPatience = 2 * time.Second
)

// queue is a writer that never makes its user wait: an election must not lose its lease because somebody scrolls
// through its output. What comes while a megabyte waits to be read is dropped, and said to be.
type queue struct {
	w      io.Writer
	gap    func(lines int) string // what stands in place of lines that were dropped
	failed func(error)            // told once, when the underlying writer fails

	mu      sync.Mutex
	pending bytes.Buffer
	dropped int
	closed  bool
	wake    chan struct{}
	done    chan struct{}
}

// NewQueue returns a queue in front of w. Close it, or its goroutine remains.
func NewQueue(w io.Writer, gap func(lines int) string, failed func(error)) *queue {
	q := &queue{w: w, gap: gap, failed: failed, wake: make(chan struct{}, 1), done: make(chan struct{})}
	go q.run()
	return q
}

// Write takes p in whole, or drops it whole.
func (q *queue) Write(p []byte) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed: // the output has its end
	case q.pending.Len()+len(p) > queuedLimit:
		q.dropped++
	default:
		q.pending.Write(p)
		q.signal()
	}
	return len(p), nil
}

// Close writes what is pending, and how much was dropped, unless that takes unreasonably long. What is written to the queue
// from then on is ignored.
func (q *queue) Close() {
	q.mu.Lock()
	q.closed = true
	q.signal()
	q.mu.Unlock()
	select {
	case <-q.done:
	case <-time.After(flushPatience):
	}
}

func (q *queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *queue) run() {
	defer close(q.done)
	for range q.wake {
		for {
			p, dropped, closed := q.take()
			if dropped > 0 {
				p = append(p, q.gap(dropped)...)
			}
			if len(p) == 0 {
				if closed {
					return
				}
				break
			}
			if _, err := q.w.Write(p); err != nil {
				q.failed(err)
				return
			}
		}
	}
}

func (q *queue) take() (p []byte, dropped int, closed bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	p = bytes.Clone(q.pending.Bytes())
	q.pending.Reset()
	dropped, q.dropped = q.dropped, 0
	return p, dropped, q.closed
}

// Dropped stands in a text for lines that were dropped.
func Dropped(lines int) string {
	return fmt.Sprintf("... %s dropped here, for nobody read them\n", Plural(lines, "line"))
}

// Style is how text is set off on a terminal; where there is none, or NO_COLOR is set, it is left as it is.
type Style struct{ Colour bool }

const (
	Red    = "31"
	Green  = "32"
	Yellow = "33"
	Bold   = "1"
	Faint  = "2"
)

func StyleFor(w io.Writer) Style {
	return Style{Colour: IsTerminal(w) && os.Getenv("NO_COLOR") == ""}
}

// Paint returns text in the given colour.
func (s Style) Paint(colour, text string) string {
	if !s.Colour || text == "" {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

// IsTerminal says whether w, a reader or a writer, is a terminal that understands escape sequences.
func IsTerminal(w any) bool {
	f, ok := w.(*os.File)
	if !ok || os.Getenv("TERM") == "dumb" {
		return false
	}
	if runtime.GOOS == "windows" && os.Getenv("WT_SESSION") == "" {
		return false // the old console shows escape sequences as they are
	}
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull) // which is a character device too
	return err != nil || !os.SameFile(info, null)
}

// WriteJSON writes v as indented JSON.
func WriteJSON(w io.Writer, v any) error {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false) // subjects end in >
	if err := e.Encode(v); err != nil {
		return err
	}
	_, err := w.Write(text.Bytes())
	return err
}

// Plural returns a number of things in words.
func Plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// Human rounds a duration to what a reader cares about.
func Human(d time.Duration) string {
	switch {
	case d >= 48*time.Hour:
		hours := int(d.Round(time.Hour) / time.Hour)
		return fmt.Sprintf("%dd%dh", hours/24, hours%24)
	case d >= time.Hour:
		return d.Round(time.Minute).String()
	case d >= time.Minute:
		return d.Round(time.Second).String()
	case d >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	}
	return d.Round(time.Millisecond).String()
}

// TimeOfDay is how times of day are shown to people.
const TimeOfDay = "15:04:05.000"

func Seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func RoundMS(d time.Duration) float64 { return d.Round(time.Millisecond).Seconds() }

// Spread returns the smallest, middle and largest of some figures.
func Spread(figures []float64) (smallest, median, largest float64) {
	if len(figures) == 0 {
		return 0, 0, 0
	}
	f := slices.Sorted(slices.Values(figures))
	n := len(f)
	return f[0], (f[(n-1)/2] + f[n/2]) / 2, f[n-1]
}

// Figure returns a time in seconds, or in milliseconds where it is too short for that.
func Figure(s float64) string {
	if s < 0.0995 {
		return fmt.Sprintf("%.0f ms", 1000*s)
	}
	return fmt.Sprintf("%.2f s", s)
}
