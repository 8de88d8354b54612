package statuspage

import (
	"context"
	_ "embed" // the page's files
	"fmt"
	"html/template"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/natscampaign/election/admin"
	"github.com/natscampaign/election/internal/look"
	"github.com/natscampaign/election/internal/terminal"
)

var (
	//go:embed page/status.html
	pageHTML string
	//go:embed page/status.css
	pageCSS string
	//go:embed page/status.js
	pageJS string

	pageTemplate = template.Must(template.New("page").Parse(pageHTML))
)

// maxRows is how many events the page shows.
const maxRows = 100

// barColours is how many colours there are; a candidate more has that of another.
const barColours = 6

// sheet is what the page shows. All that others wrote in it is printable; the template escapes it.
type sheet struct {
	Key, Headline, Mood string
	Facts               []fact
	Span                string   // what the timeline is of
	Scale               []string // when each quarter of it began
	Width               int      // of it, in seconds
	Unseen, Seen        int      // for how much of it nobody looked, and for how much somebody did
	Bars                []bar
	Legend              []colour
	StoodDown, Vacant   bool // whether the timeline shows a time in which leadership did not count yet, and one in which nobody held the key
	Candidates          []stander
	Priorities          bool   // whether any of them has one
	Missing             string // what there is to say about those that are not listed
	Zone                string // of the events' times
	Events              []row
}

type fact struct{ Label, Value, Note string }

// stander is a candidate that answers, in its colour on the timeline, if it is there.
type stander struct {
	admin.Candidate
	Class string
}

// bar is a time in which somebody held the key: low while leadership did not count yet, and then of full height.
type bar struct {
	Class, Title        string
	X, Y, Width, Height int
}

type colour struct{ Class, Name string }

type row struct{ At, Exact, Kind, Text string }

// sheet returns what there is to show, and a channel that is closed when that changes. Who is patient is shown who stands
// now, and not a moment ago.
func (p *Page) sheet(ctx context.Context, patient bool) (sheet, <-chan struct{}) {
	candidates, deaf := p.candidates(ctx, patient)
	g, changed := p.chronicle.look()
	s := sheet{Key: terminal.Printable(p.key)}
	s.headline(g, p.trouble.Load())
	s.describe(g)
	own := p.candidate.Load().Status()
	source := ""
	if own.Notifications != "" {
		source = ", notified by " + own.Notifications
	}
	s.Facts = append(s.Facts, fact{"This candidate", terminal.Printable(own.Name), own.State.String() + source})
	s.draw(g)
	for _, c := range candidates {
		c.Name, c.Host = terminal.Printable(c.Name), terminal.Printable(c.Host)
		s.Priorities = s.Priorities || c.Priority != 0
		s.Candidates = append(s.Candidates, stander{c, s.class(c.Name)})
	}
	switch {
	case deaf != nil:
		s.Missing = "Candidates cannot be asked: " + terminal.Printable(deaf.Error())
	case len(candidates) == 0 && !g.began.IsZero():
		s.Missing = "No candidate answers."
	default:
		s.Missing = "Only candidates that answer are listed; those of Choria do not."
	}
	s.Zone = g.now.Local().Format("MST")
	for _, e := range slices.Backward(g.events) {
		if len(s.Events) < maxRows {
			at := e.At.Local()
			s.Events = append(s.Events, row{at.Format("15:04:05.000"), at.Format("2006-01-02T15:04:05.000Z07:00"), e.Kind.String(), look.Sentence(e)})
		}
	}
	return s, changed
}

// headline says in a few words who leads.
func (s *sheet) headline(g glance, trouble *string) {
	switch {
	case g.began.IsZero() && trouble != nil:
		s.Headline, s.Mood = "The election cannot be observed: "+*trouble, "vacant"
	case g.began.IsZero():
		s.Headline, s.Mood = "Waiting for the server", "waits"
	case g.leader == nil:
		s.Headline, s.Mood = "Nobody leads", "vacant"
	case g.now.After(g.leader.Expires):
		s.Headline, s.Mood = g.leader.Name+" has not renewed in time", "waits"
	case g.leads:
		s.Headline, s.Mood = g.leader.Name+" leads", "leads"
	default:
		s.Headline, s.Mood = g.leader.Name+" is about to lead", "waits"
	}
}

// describe lists what is known of who holds the key.
func (s *sheet) describe(g glance) {
	l := g.leader
	if l == nil {
		return
	}
	if !l.Since.IsZero() {
		s.Facts = append(s.Facts, fact{"Elected", l.Since.Local().Format("2006-01-02 15:04:05"), terminal.Ago(g.now.Sub(l.Since).Round(time.Second))})
	}
	if l.Term != 0 {
		s.Facts = append(s.Facts, fact{"Term", strconv.FormatUint(l.Term, 10), ""})
	}
	s.Facts = append(s.Facts, fact{"Lease left", terminal.Human(max(0, l.Expires.Sub(g.now)).Round(100 * time.Millisecond)), ""})
	if l.Host != "" {
		s.Facts = append(s.Facts, fact{"Host", l.Host, ""})
	}
	var metadata []string
	for _, k := range terminal.SortedKeys(l.Metadata) {
		metadata = append(metadata, k+"="+l.Metadata[k])
	}
	if len(metadata) > 0 {
		s.Facts = append(s.Facts, fact{"Metadata", terminal.Printable(strings.Join(metadata, ", ")), ""})
	}
}

// class returns the colour that a name has on the timeline, "" if it has none.
func (s *sheet) class(name string) string {
	for _, c := range s.Legend {
		if c.Name == name {
			return c.Class
		}
	}
	return ""
}

// spans are the times that the timeline may show: the shortest that has all that was seen.
var spans = []time.Duration{4 * time.Minute, 20 * time.Minute, chronicleSpan}

// scale chooses what the timeline is of, and returns how long that is.
func (s *sheet) scale(g glance) time.Duration {
	span := spans[0]
	for _, longer := range spans {
		if span = longer; g.began.IsZero() || g.now.Sub(g.began) <= span {
			break
		}
	}
	minutes := int(span.Minutes())
	s.Width, s.Span, s.Scale = int(span.Seconds()), "The last hour", []string{fmt.Sprintf("−%d min", minutes)}
	if span != chronicleSpan {
		s.Span = fmt.Sprintf("The last %d minutes", minutes)
	}
	for quarter := 3; quarter > 0; quarter-- {
		s.Scale = append(s.Scale, fmt.Sprintf("−%d", quarter*minutes/4))
	}
	return span
}

// draw makes bars of the reigns.
func (s *sheet) draw(g glance) {
	oldest := g.now.Add(-s.scale(g))
	at := func(t time.Time) int { return min(max(int(t.Sub(oldest).Round(time.Second).Seconds()), 0), s.Width) }
	if s.Unseen = s.Width; !g.began.IsZero() {
		s.Unseen = at(g.began)
	}
	s.Seen = s.Width - s.Unseen
	held := s.Unseen // until when the key was held, as it was drawn
	for _, p := range g.reigns {
		if !p.to.IsZero() && !p.to.After(oldest) {
			continue
		}
		class := s.class(p.name)
		if class == "" {
			class = fmt.Sprintf("c%d", len(s.Legend)%barColours)
			s.Legend = append(s.Legend, colour{class, p.name})
		}
		to := p.to
		if to.IsZero() {
			to = g.now
		}
		led := p.led
		if led.IsZero() {
			led = to
		}
		s.Vacant = s.Vacant || at(p.from) > held
		held = max(held, at(to))
		if from, until := at(p.from), at(led); until > from {
			s.StoodDown = true
			s.Bars = append(s.Bars, bar{class, p.name + " held the key from " + terminal.Timestamp(p.from), from, 26, until - from, 14})
		}
		if from, until := at(led), at(to); !p.led.IsZero() {
			s.Bars = append(s.Bars, bar{class, p.name + " led from " + terminal.Timestamp(p.led), from, 0, max(until-from, 1), 40})
		}
	}
	s.Vacant = s.Vacant || s.Width > held
}
