package main

import (
	"fmt"
	"io"
	"maps"
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
		case unicode.IsPrint(r):
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
	for k, v := range maps.All(l.Metadata) {
		if len(metadata) < longestMetadata {
			metadata[printable(k)] = printableUpTo(v, longestValue)
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
	t := table.NewWriter()
	t.SetStyle(table.StyleRounded)
	t.Style().Format.Header = text.FormatDefault
	t.Style().Title.Align = text.AlignCenter
	t.SetTitle(g.title)
	t.AppendHeader(cellsOf(g.header))
	for _, row := range g.rows {
		t.AppendRow(cellsOf(row))
	}
	_, err := fmt.Fprintln(w, t.Render())
	return err
}

func cellsOf(row []string) table.Row {
	cells := make(table.Row, len(row))
	for i, c := range row {
		cells[i] = c
	}
	return cells
}

// confirm asks whether to go on with what destroys, unless it is forced. Where there is nobody to ask, it refuses.
func (t *tool) confirm(force bool, question string) error {
	if force {
		return nil
	}
	if !isTerminal(t.stdin) {
		return fmt.Errorf("%s There is no terminal to ask on: give --force to go on without", question)
	}
	fmt.Fprintf(t.stderr, "%s [y/N] ", question)
	var answer string
	_, _ = fmt.Fscanln(t.stdin, &answer)
	switch strings.ToLower(answer) {
	case "y", "yes":
		return nil
	}
	return &verdict{exitNegative, "nothing was done"}
}
