package terminal

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

const (
	// maxCellWidth is the number of columns after which the text of a cell continues on the next line.
	maxCellWidth = 50
	// minCellWidth is the least width to which a cell is narrowed so that a table fits.
	minCellWidth = 8
)

// Table is a table with a title and a header on a terminal. Elsewhere it is lines of cells separated by tabs, without title
// and header.
type Table struct {
	Title  string
	Header []string
	Prose  string   // the header of the column with sentences: it may be as wide as the terminal, and lines end between words
	Least  []string // the headers of the columns that matter least, these last; they are left out where the terminal is too narrow
	rows   [][]string
}

// Add appends a row.
func (t *Table) Add(cells ...string) { t.rows = append(t.rows, cells) }

// Print writes the table.
func (t *Table) Print(w io.Writer, s Style) error {
	var text strings.Builder
	if IsTerminal(w) {
		fmt.Fprintln(&text, t.render(s))
	} else {
		for _, row := range t.rows {
			fmt.Fprintln(&text, strings.Join(row, "\t"))
		}
	}
	_, err := io.WriteString(w, text.String())
	return err
}

// render returns the table for a terminal.
func (t *Table) render(s Style) string {
	widths := t.widths()
	shown := t.choose(s, widths)
	narrow(s, widths, shown)
	w := table.NewWriter()
	w.SetStyle(table.StyleRounded)
	w.Style().Format.Header = text.FormatDefault
	w.Style().Title.Align = text.AlignCenter
	w.SetTitle("%s", t.Title)
	w.AppendHeader(tableRow(t.Header))
	columns := make([]table.ColumnConfig, len(t.Header))
	var left []string
	for i, name := range t.Header {
		columns[i] = table.ColumnConfig{Number: i + 1, WidthMax: widths[i], WidthMaxEnforcer: text.WrapHard, Hidden: !shown[i]}
		if name == t.Prose {
			columns[i].WidthMaxEnforcer = text.WrapSoft
		}
		if !shown[i] {
			left = append(left, name)
		}
	}
	w.SetColumnConfigs(columns)
	for _, row := range t.rows {
		w.AppendRow(tableRow(row))
	}
	if left != nil {
		w.SetCaption("%s", s.Paint(Faint, "Left out: "+strings.Join(left, ", ")+". See --wide."))
	}
	return w.Render()
}

// widths returns the width of each column.
func (t *Table) widths() []int {
	widths := make([]int, len(t.Header))
	for _, row := range append(slices.Clip(t.rows), t.Header) {
		for i, cell := range row {
			widths[i] = max(widths[i], text.LongestLineLen(cell))
			if t.Header[i] != t.Prose {
				widths[i] = min(widths[i], maxCellWidth)
			}
		}
	}
	return widths
}

// choose returns which columns are shown: all that must be, and then those that matter least as long as they fit.
func (t *Table) choose(s Style, widths []int) (shown []bool) {
	shown = make([]bool, len(widths))
	for i, name := range t.Header {
		shown[i] = !slices.Contains(t.Least, name)
	}
	for _, name := range t.Least {
		i := slices.Index(t.Header, name)
		shown[i] = true
		shown[i] = s.Fits(tableWidth(widths, shown))
	}
	return shown
}

// narrow makes the widest columns narrower until the table fits.
func narrow(s Style, widths []int, shown []bool) {
	for !s.Fits(tableWidth(widths, shown)) {
		widest := -1
		for i := range widths {
			if shown[i] && (widest < 0 || widths[i] > widths[widest]) {
				widest = i
			}
		}
		if widths[widest] <= minCellWidth {
			return
		}
		widths[widest]--
	}
}

// tableWidth returns the width of a table with these columns, which have a border and two spaces each.
func tableWidth(widths []int, shown []bool) int {
	total := 1
	for i, w := range widths {
		if shown[i] {
			total += w + 3
		}
	}
	return total
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

// Text returns the list, with right-aligned labels.
func (l *PropertyList) Text(s Style) string {
	widest := 0
	for _, row := range l.rows {
		widest = max(widest, len(row[0]))
	}
	var text strings.Builder
	for _, row := range l.rows {
		colon := ": "
		if row[0] == "" {
			colon = "  "
		}
		fmt.Fprintf(&text, "  %s%s%s\n", strings.Repeat(" ", widest-len(row[0])), s.Paint(Faint, row[0]+colon), row[1])
	}
	return text.String()
}
