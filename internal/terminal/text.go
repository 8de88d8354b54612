package terminal

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// What comes out of a bucket or from another process was written by somebody else. Before it is shown, on a terminal, in a
// file or as JSON, it is made printable and cut to a length.
const (
	MaxText     = 255
	MaxValue    = 1024
	MaxMetadata = 64 // entries
)

// unseen are characters that count as letters or marks and yet leave no trace, by which two names could look the same.
const unseen = "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\ufe00\ufe01\ufe02\ufe03\ufe04\ufe05\ufe06\ufe07\ufe08\ufe09\ufe0a\ufe0b\ufe0c\ufe0d\ufe0e\uffa0"

// Printable returns text of somebody else's with everything that is not meant to be seen escaped, as in \x1b, and all
// beyond the longest text cut off.
func Printable(s string) string { return PrintableUpTo(s, MaxText) }

func PrintableUpTo(s string, longest int) string {
	var b strings.Builder
	n := 0
	for i, r := range s {
		if n++; n > longest {
			b.WriteString("…")
			break
		}
		switch {
		case r == unicode.ReplacementChar && !strings.HasPrefix(s[i:], string(unicode.ReplacementChar)):
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case unicode.IsPrint(r) && !strings.ContainsRune(unseen, r):
			b.WriteRune(r)
		default:
			quoted := strconv.QuoteRuneToASCII(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		}
	}
	return b.String()
}

// Timestamp returns a time as people and programs both can read it, to the millisecond, in this host's zone; "-" for none.
func Timestamp(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Local().Format("2006-01-02 15:04:05.000")
}

// Ago returns how long ago it was, or how long it will be.
func Ago(d time.Duration) string {
	if d < 0 {
		return "in " + Human(-d)
	}
	return Human(d) + " ago"
}

// widestCell is how many columns a cell takes before it goes on in the next line.
const widestCell = 50

// Table is a table for people on a terminal, and columns that are set apart by tabs anywhere else: no borders, no header.
type Table struct {
	Title  string
	Header []string
	rows   [][]string
}

func (g *Table) Add(cells ...string) { g.rows = append(g.rows, cells) }

// Print writes the grid.
func (g *Table) Print(w io.Writer) error {
	if !IsTerminal(w) {
		for _, row := range g.rows {
			if _, err := fmt.Fprintln(w, strings.Join(row, "\t")); err != nil {
				return err
			}
		}
		return nil
	}
	_, err := fmt.Fprintln(w, g.render())
	return err
}

// render returns the table that a terminal shows.
func (g *Table) render() string {
	t := table.NewWriter()
	t.SetStyle(table.StyleRounded)
	t.Style().Format.Header = text.FormatDefault
	t.Style().Title.Align = text.AlignCenter
	t.SetTitle("%s", g.Title)
	t.AppendHeader(cellsOf(g.Header))
	columns := make([]table.ColumnConfig, len(g.Header))
	for i := range columns {
		columns[i] = table.ColumnConfig{Number: i + 1, WidthMax: widestCell, WidthMaxEnforcer: text.WrapHard}
	}
	t.SetColumnConfigs(columns)
	for _, row := range g.rows {
		t.AppendRow(cellsOf(row))
	}
	return t.Render()
}

func cellsOf(row []string) table.Row {
	cells := make(table.Row, len(row))
	for i, c := range row {
		cells[i] = c
	}
	return cells
}

// Sheet is labelled values, one on each line.
type Sheet struct{ rows [][2]string }

// Add appends a line, unless there is no value.
func (s *Sheet) Add(label, value string) {
	if value != "" {
		s.rows = append(s.rows, [2]string{label, value})
	}
}

// Print writes the sheet, with the labels aligned to the right.
func (s *Sheet) Print(w io.Writer, st Style) error {
	widest := 0
	for _, row := range s.rows {
		widest = max(widest, len(row[0]))
	}
	for _, row := range s.rows {
		colon := ": "
		if row[0] == "" {
			colon = "  "
		}
		if _, err := fmt.Fprintf(w, "  %s%s%s\n", strings.Repeat(" ", widest-len(row[0])), st.Paint(Faint, row[0]+colon), row[1]); err != nil {
			return err
		}
	}
	return nil
}

// TermNumber returns the number of a term, or - for none.
func TermNumber(n uint64) string {
	if n == 0 {
		return "-"
	}
	return strconv.FormatUint(n, 10)
}

func SortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }
