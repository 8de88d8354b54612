package terminal

import (
	"fmt"
	"io"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// maxCellWidth is the number of columns after which the text of a cell continues on the next line.
const maxCellWidth = 50

// Table is a table with a title and a header on a terminal. Elsewhere it is lines of cells separated by tabs, without title
// and header.
type Table struct {
	Title  string
	Header []string
	rows   [][]string
}

// Add appends a row.
func (t *Table) Add(cells ...string) { t.rows = append(t.rows, cells) }

// Print writes the table.
func (t *Table) Print(w io.Writer) error {
	if !IsTerminal(w) {
		for _, row := range t.rows {
			if _, err := fmt.Fprintln(w, strings.Join(row, "\t")); err != nil {
				return err
			}
		}
		return nil
	}
	_, err := fmt.Fprintln(w, t.render())
	return err
}

// render returns the table for a terminal.
func (t *Table) render() string {
	w := table.NewWriter()
	w.SetStyle(table.StyleRounded)
	w.Style().Format.Header = text.FormatDefault
	w.Style().Title.Align = text.AlignCenter
	w.SetTitle("%s", t.Title)
	w.AppendHeader(tableRow(t.Header))
	columns := make([]table.ColumnConfig, len(t.Header))
	for i := range columns {
		columns[i] = table.ColumnConfig{Number: i + 1, WidthMax: maxCellWidth, WidthMaxEnforcer: text.WrapHard}
	}
	w.SetColumnConfigs(columns)
	for _, row := range t.rows {
		w.AppendRow(tableRow(row))
	}
	return w.Render()
}

func tableRow(cells []string) table.Row {
	row := make(table.Row, len(cells))
	for i, c := range cells {
		row[i] = c
	}
	return row
}

// PropertyList is a list of labelled values, one on each line.
type PropertyList struct{ rows [][2]string }

// Add appends a line, unless value is empty. A line with an empty label continues the list of values above it.
func (l *PropertyList) Add(label, value string) {
	if value != "" {
		l.rows = append(l.rows, [2]string{label, value})
	}
}

// Print writes the list, with right-aligned labels.
func (l *PropertyList) Print(w io.Writer, s Style) error {
	widest := 0
	for _, row := range l.rows {
		widest = max(widest, len(row[0]))
	}
	for _, row := range l.rows {
		colon := ": "
		if row[0] == "" {
			colon = "  "
		}
		if _, err := fmt.Fprintf(w, "  %s%s%s\n", strings.Repeat(" ", widest-len(row[0])), s.Paint(Faint, row[0]+colon), row[1]); err != nil {
			return err
		}
	}
	return nil
}
