package main

import (
	"context"
	_ "embed" // the page's files
	"fmt"
	"html/template"
	"slices"
	"strconv"
	"time"

	"github.com/natscampaign/election"
)

var (
	//go:embed page/status.html
	statusHTML string
	//go:embed page/status.css
	statusCSS string
	//go:embed page/status.js
	statusJS string

	statusTemplate = template.Must(template.New("page").Parse(statusHTML))
)

// statusRows is how many events the page shows.
const statusRows = 100

// barColours is how many colours there are; a candidate more has that of another.
const barColours = 6

// statusSheet is what the page shows. All that others wrote in it is printable; the template escapes it.
type statusSheet struct {
	Key, Headline, Mood string
	Facts               []fact
	Width               int // of the timeline, in seconds
	Unseen              int // for how much of it nobody looked
	Bars                []bar
	Legend              []colour
	Candidates          []election.Candidate
	Missing             string // what there is to say about those that are not listed
	Events              []row
}

type fact struct{ Label, Value string }

// bar is a time in which somebody held the key: low while leadership did not count yet, and then of full height.
type bar struct {
	Class, Title        string
	X, Y, Width, Height int
}

type colour struct{ Class, Name string }

type row struct{ At, Kind, Text string }

// sheet returns what there is to show, and a channel that is closed when that changes.
func (p *statusPage) sheet(ctx context.Context) (statusSheet, <-chan struct{}) {
	candidates, deaf := p.candidates(ctx)
	g, changed := p.chronicle.look()
	s := statusSheet{Key: printable(p.key), Width: int(chronicleSpan.Seconds())}
	s.headline(g, p.trouble.Load())
	s.describe(g)
	own := p.candidate.Load().Status()
	s.Facts = append(s.Facts, fact{"This candidate", fmt.Sprintf("%s, %s", printable(own.Name), own.State)})
	if own.WakeUp != "" {
		s.Facts = append(s.Facts, fact{"Hears by", own.WakeUp})
	}
	s.draw(g)
	for _, c := range candidates {
		c.Name, c.Host = printable(c.Name), printable(c.Host)
		s.Candidates = append(s.Candidates, c)
	}
	switch {
	case deaf != nil:
		s.Missing = "Candidates cannot be asked: " + printable(deaf.Error())
	case len(candidates) == 0 && !g.began.IsZero():
		s.Missing = "None answers."
	default:
		s.Missing = "Those are listed that answer; candidates of Choria do not."
	}
	for _, e := range slices.Backward(g.events) {
		if len(s.Events) < statusRows {
			s.Events = append(s.Events, row{exactly(e.At), e.Kind.String(), sentenceOf(e)})
		}
	}
	return s, changed
}

// headline says in a few words who leads.
func (s *statusSheet) headline(g glance, trouble *string) {
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
func (s *statusSheet) describe(g glance) {
	l := g.leader
	if l == nil {
		return
	}
	if !l.Since.IsZero() {
		s.Facts = append(s.Facts, fact{"Since", exactly(l.Since)})
	}
	if l.Term != 0 {
		s.Facts = append(s.Facts, fact{"Term", strconv.FormatUint(l.Term, 10)})
	}
	s.Facts = append(s.Facts, fact{"Lease left", human(max(0, l.Expires.Sub(g.now)).Round(100 * time.Millisecond))})
	if l.Host != "" {
		s.Facts = append(s.Facts, fact{"Host", l.Host})
	}
}

// draw makes bars of the reigns.
func (s *statusSheet) draw(g glance) {
	oldest := g.now.Add(-chronicleSpan)
	at := func(t time.Time) int { return min(max(int(t.Sub(oldest).Round(time.Second).Seconds()), 0), s.Width) }
	if s.Unseen = s.Width; !g.began.IsZero() {
		s.Unseen = at(g.began)
	}
	classes := map[string]string{}
	for _, p := range g.reigns {
		class, known := classes[p.name]
		if !known {
			class = fmt.Sprintf("c%d", len(classes)%barColours)
			classes[p.name] = class
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
		if from, until := at(p.from), at(led); until > from {
			s.Bars = append(s.Bars, bar{class, p.name + " held the key from " + exactly(p.from), from, 26, until - from, 14})
		}
		if from, until := at(led), at(to); !p.led.IsZero() {
			s.Bars = append(s.Bars, bar{class, p.name + " led from " + exactly(p.led), from, 0, max(until-from, 1), 40})
		}
	}
}
