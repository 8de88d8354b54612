package serving

import (
	"context"
	"errors"
	"strings"
)

// feed is what one reader receives of a page: first each part of it, and then the parts that changed. A part is a section, or a row of the list.
type feed struct {
	page     *statusPage
	key      string              // of the election; empty for the list of all
	sections map[string]string   // as the reader has them, by their templates
	rows     map[string]*listRow // as the reader has them
}

// newFeed returns what a reader receives that has nothing yet.
func newFeed(p *statusPage, key string) *feed {
	return &feed{page: p, key: key, sections: map[string]string{}, rows: map[string]*listRow{}}
}

// errForgotten ends the feed of an election that the page has forgotten. The reader then asks again.
var errForgotten = errors.New("the page has forgotten the election")

// next returns the next server-sent event, and a channel that is closed when the page changes. Without a change the event is a comment, which
// keeps the connection alive.
func (f *feed) next(ctx context.Context) (text string, changed <-chan struct{}, err error) {
	if f.key == "" {
		data, changed := f.page.list(ctx, f.rows, false)
		text, err = f.event(data, data.Rows, "listheader")
		return text, changed, err
	}
	data, changed := f.page.data(ctx, f.key, false)
	if data == nil {
		return "", nil, errForgotten
	}
	text, err = f.event(data, nil, "header", "facts", "chart", "candidates", "events")
	return text, changed, err
}

// event returns the event that has the rows, and those sections that changed.
func (f *feed) event(data any, rows []*listRow, sections ...string) (string, error) {
	var parts strings.Builder
	for _, name := range sections {
		var section strings.Builder
		if err := pageTemplate.ExecuteTemplate(&section, name, data); err != nil {
			return "", err
		}
		if text := section.String(); text != f.sections[name] {
			f.sections[name] = text
			parts.WriteString(text)
		}
	}
	if len(rows) > 0 {
		if err := pageTemplate.ExecuteTemplate(&parts, "changedrows", rows); err != nil {
			return "", err
		}
	}
	for _, row := range rows {
		if f.rows[row.Key] = row; row.Gone {
			delete(f.rows, row.Key)
		}
	}
	if parts.Len() == 0 {
		return ":\n\n", nil
	}
	return "data: " + strings.ReplaceAll(parts.String(), "\n", "\ndata: ") + "\n\n", nil
}
