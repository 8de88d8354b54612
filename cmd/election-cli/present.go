package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/natscampaign/election"
)

// What comes out of a bucket or from another process was written by somebody else. Before it is shown, on a terminal, in a
// file or as JSON, it is made printable and cut to a length.
const (
	longestText     = 255
	longestValue    = 1024
	longestMetadata = 64 // entries
)

// unseen are characters that count as letters or marks and yet leave no trace, by which two names could look the same.
const unseen = "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\ufe00\ufe01\ufe02\ufe03\ufe04\ufe05\ufe06\ufe07\ufe08\ufe09\ufe0a\ufe0b\ufe0c\ufe0d\ufe0e\uffa0"

// printable returns text of somebody else's with everything that is not meant to be seen escaped, as in \x1b, and all
// beyond the longest text cut off.
func printable(s string) string { return printableUpTo(s, longestText) }

func printableUpTo(s string, longest int) string {
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

// shown returns l with all that its writer chose made printable.
func shown(l election.Leader) election.Leader {
	l.Key, l.Name, l.Instance, l.Host = printable(l.Key), printable(l.Name), printable(l.Instance), printable(l.Host)
	if l.Metadata == nil {
		return l
	}
	metadata := map[string]string{}
	for _, k := range slices.Sorted(maps.Keys(l.Metadata)) { // the same ones each time
		if len(metadata) < longestMetadata {
			metadata[printable(k)] = printableUpTo(l.Metadata[k], longestValue)
		}
	}
	l.Metadata = metadata
	return l
}

// exactly returns a time as people and programs both can read it, to the millisecond, in this host's zone; "-" for none.
func exactly(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Local().Format("2006-01-02 15:04:05.000")
}

// ago returns how long ago it was, or how long it will be.
func ago(d time.Duration) string {
	if d < 0 {
		return "in " + human(-d)
	}
	return human(d) + " ago"
}

// widestCell is how many columns a cell takes before it goes on in the next line.
const widestCell = 50

// grid is a table for people on a terminal, and columns that are set apart by tabs anywhere else: no borders, no header.
type grid struct {
	title  string
	header []string
	rows   [][]string
}

func (g *grid) add(cells ...string) { g.rows = append(g.rows, cells) }

// writeTo writes the grid.
func (g *grid) writeTo(w io.Writer) error {
	if !isTerminal(w) {
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
func (g *grid) render() string {
	t := table.NewWriter()
	t.SetStyle(table.StyleRounded)
	t.Style().Format.Header = text.FormatDefault
	t.Style().Title.Align = text.AlignCenter
	t.SetTitle("%s", g.title)
	t.AppendHeader(cellsOf(g.header))
	columns := make([]table.ColumnConfig, len(g.header))
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

// sheet is labelled values, one on each line.
type sheet struct{ rows [][2]string }

// add appends a line, unless there is no value.
func (s *sheet) add(label, value string) {
	if value != "" {
		s.rows = append(s.rows, [2]string{label, value})
	}
}

// writeTo writes the sheet, with the labels aligned to the right.
func (s *sheet) writeTo(w io.Writer, st style) error {
	widest := 0
	for _, row := range s.rows {
		widest = max(widest, len(row[0]))
	}
	for _, row := range s.rows {
		colon := ": "
		if row[0] == "" {
			colon = "  "
		}
		if _, err := fmt.Fprintf(w, "  %s%s%s\n", strings.Repeat(" ", widest-len(row[0])), st.paint(faint, row[0]+colon), row[1]); err != nil {
			return err
		}
	}
	return nil
}

// confirm asks whether to go on with what destroys, unless it is forced. Where there is nobody to ask, it refuses.
func (t *tool) confirm(ctx context.Context, force bool, question string) error {
	if force {
		return nil
	}
	if !isTerminal(t.stdin) || isNull(t.stdin) {
		return fmt.Errorf("%s There is no terminal to ask on: give --force to go on without", question)
	}
	fmt.Fprintf(t.stderr, "%s [y/N] ", question)
	answers := make(chan string, 1)
	go func() {
		var answer string
		_, _ = fmt.Fscanln(t.stdin, &answer)
		answers <- answer
	}()
	select {
	case <-ctx.Done():
		fmt.Fprintln(t.stderr)
		return &verdict{exitInterrupted, "interrupted: nothing was done"}
	case answer := <-answers:
		switch strings.ToLower(answer) {
		case "y", "yes":
			return nil
		}
		return &verdict{exitNegative, "nothing was done"}
	}
}

// isNull says whether r is the null device, which is no terminal although it looks like one.
func isNull(r any) bool {
	f, ok := r.(*os.File)
	if !ok {
		return false
	}
	is, err := f.Stat()
	if err != nil {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err == nil && os.SameFile(is, null)
}
