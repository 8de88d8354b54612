// Package terminal formats the output of commands for people: tables, lists of properties, colours, log lines, times and
// numbers. It also writes JSON.
//
// Text that comes from a bucket or from another process passes through Printable, so that the text cannot control the
// terminal. Only a terminal gets tables with borders and, unless NO_COLOR is set, colours; a file or a pipe gets columns
// separated by tabs, and plain text. A Queue never blocks its writer.
package terminal

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"runtime"

	"github.com/jedib0t/go-pretty/v6/text"
	"golang.org/x/term"
)

// Style formats text for a terminal. The zero Style leaves text as it is.
type Style struct {
	Colour bool
	Width  int // of the terminal, in columns; 0 is without a limit
}

// Colours and attributes for Style.Paint. Join two with a semicolon.
const (
	Red    = "31"
	Green  = "32"
	Yellow = "33"
	Bold   = "1"
	Faint  = "2"
)

// StyleFor returns a Style with colours if w is a terminal and NO_COLOR is not set, and with the width of the terminal.
func StyleFor(w io.Writer) (s Style) {
	if f, ok := w.(*os.File); ok && IsTerminal(w) {
		s.Colour = os.Getenv("NO_COLOR") == ""
		s.Width, _, _ = term.GetSize(int(f.Fd()))
	}
	return s
}

// Wide returns s without a limit of the width, if wide is set.
func (s Style) Wide(wide bool) Style {
	if wide {
		s.Width = 0
	}
	return s
}

// Fits reports whether so many columns fit.
func (s Style) Fits(columns int) bool { return s.Width <= 0 || columns <= s.Width }

// Line returns a line with as much of the rest as fits.
func (s Style) Line(line string, rest ...string) string {
	for _, r := range rest {
		if !s.Fits(text.StringWidthWithoutEscSequences(line + r)) {
			break
		}
		line += r
	}
	return line
}

// Wrap breaks a text where a line would not fit.
func (s Style) Wrap(lines string) string {
	if s.Width <= 0 {
		return lines
	}
	return text.WrapSoft(lines, s.Width)
}

// Paint returns text in the given colour.
func (s Style) Paint(colour, text string) string {
	if !s.Colour || text == "" {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

// IsTerminal reports whether rw, a reader or a writer, is a terminal that interprets escape sequences.
func IsTerminal(rw any) bool {
	f, ok := rw.(*os.File)
	if !ok || os.Getenv("TERM") == "dumb" {
		return false
	}
	if runtime.GOOS == "windows" && os.Getenv("WT_SESSION") == "" {
		return false // the old console prints escape sequences
	}
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull) // the null device is a character device too
	return err != nil || !os.SameFile(info, null)
}

// WriteJSON writes v as indented JSON.
func WriteJSON(w io.Writer, v any) error {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false) // subjects contain >
	if err := e.Encode(v); err != nil {
		return err
	}
	_, err := w.Write(text.Bytes())
	return err
}

// JSONLine returns v as JSON on one line. Every value of v must be one that JSON has.
func JSONLine(v any) []byte {
	line, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return append(line, '\n')
}
