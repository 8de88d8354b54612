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
)

// Style formats text for a terminal. The zero Style leaves text as it is.
type Style struct{ Colour bool }

// Colours and attributes for Style.Paint. Join two with a semicolon.
const (
	Red    = "31"
	Green  = "32"
	Yellow = "33"
	Bold   = "1"
	Faint  = "2"
)

// StyleFor returns a Style with colours if w is a terminal and NO_COLOR is not set.
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
