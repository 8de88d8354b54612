package chaos

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/natscampaign/election/internal/history"
	"github.com/natscampaign/election/internal/processes"
	"github.com/natscampaign/election/internal/terminal"
	"github.com/natscampaign/election/internal/timeline"
)

// Report is the result of a drill on processes. Its field names are documented in the help and stay as they are.
type Report struct {
	TTL             float64        `json:"ttl_s"`
	StandDown       float64        `json:"stand_down_s"`
	Candidates      int            `json:"candidates"`
	Servers         int            `json:"servers"`
	Replicas        int            `json:"replicas"`
	Seed            uint64         `json:"seed"`
	Every           float64        `json:"every_s"`
	LoseReplies     float64        `json:"lose_replies"`
	DurationS       float64        `json:"duration_s"`
	ServerVersion   string         `json:"server_version"`
	Faults          []faultResult  `json:"faults"`
	OverlapMS       int64          `json:"overlap_ms"`
	Overtaken       int            `json:"overtaken"`
	Samples         int            `json:"samples"`
	LongestPauseMS  int64          `json:"longest_pause_ms"`
	Records         int            `json:"records"`
	OutOfOrder      int            `json:"records_out_of_order"`
	Fenced          int            `json:"fenced"`
	RepliesLost     int64          `json:"replies_lost"`
	RewoundMS       int64          `json:"rewind_overlap_ms"`
	RewoundBeliefs  int            `json:"rewind_overtaken"`
	SetBack         int            `json:"rewind_terms_set_back"`
	Terms           int            `json:"terms"`
	TermsOutOfOrder int            `json:"terms_out_of_order"`
	Changes         []changeResult `json:"changes"`
	Unneeded        int            `json:"unneeded_changes"`
	LongestWithout  float64        `json:"longest_without_leader_s"`
	Late            []lateResult   `json:"late"`
	Outages         []float64      `json:"outages_s"`
	Kept            string         `json:"kept"`

	details []detail  // of what was wrong
	wall    time.Time // when it began
	unread  bool      // whether the records could not be read
}

// detail is something that was wrong.
type detail struct {
	at     time.Duration // 0 if that is not known
	text   string
	around []string // what happened then
}

// faultResult is what came of one kind of fault.
type faultResult struct {
	Kind     string    `json:"kind"`
	Count    int       `json:"count"`
	Failover []float64 `json:"failover_s"`
	Bound    float64   `json:"bound_s"`

	about string
}

// changeResult is a change of leader.
type changeResult struct {
	At       float64 `json:"at_s"`
	From     string  `json:"from"`
	To       string  `json:"to"`
	Term     uint64  `json:"term"`
	Reason   string  `json:"reason"`
	Cause    string  `json:"cause"`
	Unneeded bool    `json:"unneeded"`
}

// lateResult is a time without a leader that was longer than it may be.
type lateResult struct {
	At    float64 `json:"at_s"`
	Kind  string  `json:"kind"`
	Took  float64 `json:"took_s"`
	Bound float64 `json:"bound_s"`
}

// evaluate reads the histories, checks them, and says what came of the drill, in figures and as a drawing.
func (d *Drill) evaluate(outages []history.Span, records []history.Record) (*Report, *timeline.Timeline, error) {
	run := &history.Run{Timing: d.timing(), From: d.began, To: d.ended, Records: records, Outages: outages}
	p := &Report{
		TTL: d.TTL.Seconds(), StandDown: d.StandDown.Seconds(), Candidates: d.Candidates, Servers: processes.ClusterSize, Replicas: d.Replicas, Seed: d.Seed,
		Every: d.Every.Seconds(), LoseReplies: d.Rate, DurationS: terminal.RoundMS(d.ended - d.began), ServerVersion: d.version,
		Changes: []changeResult{}, Late: []lateResult{}, Outages: []float64{}, wall: d.wall,
	}
	var all []*history.Candidate
	for _, c := range d.fleet {
		h, err := c.Read(history.Now())
		if err != nil {
			return nil, nil, err
		}
		all = append(all, h)
		run.Beliefs = append(run.Beliefs, h.Beliefs...)
		run.Overtaken = append(run.Overtaken, h.Overtaken...)
		p.Samples += h.Samples
		p.Fenced += h.Fenced
		p.RepliesLost += c.Link.Lost.Load()
	}
	d.injuries = slices.DeleteFunc(d.injuries, func(i *injury) bool { return i.undone })
	for _, i := range d.injuries {
		if i.name == "forge" {
			run.Forged = append(run.Forged, i.span)
		}
		if i.keeps && (i.candidate == nil || d.Rate == 0 && d.Every == 0) {
			continue // nothing is excused by it, unless it comes together with what a leader needs those rights for
		}
		f := i.fault()
		f.Releases = f.Releases && d.Rate == 0 // who wins and does not hear of it must stand down all the same
		run.Faults = append(run.Faults, f)
	}
	for _, o := range outages {
		p.Outages = append(p.Outages, terminal.RoundMS(o.To-o.From))
	}
	stops := slices.DeleteFunc(slices.Clone(run.Faults), func(f history.Fault) bool { return f.Kind != "stop" })
	for _, h := range all {
		p.LongestPauseMS = max(p.LongestPauseMS, h.LongestPause(stops).Milliseconds())
	}
	p.SetBack = orderByRewinds(run)
	f := run.Check()
	p.fill(run, f)
	p.kinds(d, f)
	for n := range p.details[:min(len(p.details), mostExplained)] {
		if x := &p.details[n]; x.at > 0 {
			x.around = d.around(run, x.at)
		}
	}
	return p, d.drawing(p, all, outages, f), nil
}

// fault returns what the checker has to know of an injury.
func (i *injury) fault() history.Fault {
	f := history.Fault{Kind: i.name, Ends: i.ends, Releases: i.name == "handover", Renews: i.renews, Span: i.span}
	if i.candidate != nil {
		f.Candidate = i.candidate.Name
	}
	return f
}

// fill takes over what was found.
func (p *Report) fill(run *history.Run, f *history.Findings) {
	at := func(t time.Duration) float64 { return terminal.RoundMS(t - run.From) }
	inMS := func(d time.Duration) int64 { return int64(math.Ceil(float64(d) / float64(time.Millisecond))) }
	overlap, overlaps, rewound := splitOverlaps(run, f)
	overtaken, rewoundBeliefs := splitOvertaken(run)
	p.OverlapMS, p.RewoundMS = inMS(overlap), inMS(rewound)
	p.Overtaken, p.RewoundBeliefs = len(overtaken), rewoundBeliefs
	for _, r := range run.Records {
		if !processes.IsMark(r) {
			p.Records++
		}
	}
	p.Terms, p.TermsOutOfOrder, p.OutOfOrder = len(run.Beliefs), len(f.Disorder), len(f.Misplaced)
	for _, o := range overtaken {
		p.detail(o.At, "at %.3f s %s believed in term %d although there was a record under %s", at(o.At), o.Candidate, o.Term, o.Later)
	}
	for _, o := range overlaps {
		p.detail(o.From, "at %.3f s %s (term %d) and %s (term %d) believed at once for %v", at(o.From), o.A.Candidate, o.A.Term, o.B.Candidate, o.B.Term, o.To-o.From)
	}
	for _, text := range slices.Concat(f.Disorder, f.Misplaced[:min(len(f.Misplaced), 10)]) {
		p.detail(0, "%s", text)
	}
	for _, c := range f.Changes {
		p.Changes = append(p.Changes, changeResult{
			At: at(c.At), From: c.Old.Candidate, To: c.New.Candidate, Term: c.New.Term, Reason: c.Old.Reason, Cause: c.Cause, Unneeded: c.Unneeded,
		})
		if c.Unneeded {
			p.Unneeded++
			p.detail(c.At, "at %.3f s %s lost term %d (%s) although its lease could have been renewed until %.3f s", at(c.At), c.Old.Candidate, c.Old.Term, c.Old.Reason, at(c.Old.Deadline))
		}
	}
	for _, g := range f.Gaps {
		p.LongestWithout = max(p.LongestWithout, terminal.RoundMS(g.To-g.From))
		if g.Late() {
			p.Late = append(p.Late, lateResult{At: at(g.From), Kind: g.Kind, Took: terminal.RoundMS(g.Took()), Bound: g.Bound.Seconds()})
			p.detail(g.To, "nobody led from %.3f s to %.3f s, put down to: %s; that is %s where %s are allowed", at(g.From), at(g.To), g.Kind, terminal.Human(g.Took()), terminal.Human(g.Bound))
		}
	}
}

func (p *Report) detail(at time.Duration, format string, a ...any) {
	p.details = append(p.details, detail{at: at, text: fmt.Sprintf(format, a...)})
}

// kinds sums up the failovers of each kind of fault. Those that are put down to nothing have a line of their own.
func (p *Report) kinds(d *Drill, f *history.Findings) {
	add := func(kind, about string, count int) {
		r := faultResult{Kind: kind, Count: count, Failover: []float64{}, about: about}
		for _, g := range f.Gaps {
			if g.Kind == kind {
				r.Failover = append(r.Failover, terminal.RoundMS(g.Took()))
				r.Bound = max(r.Bound, g.Bound.Seconds())
			}
		}
		if count > 0 || len(r.Failover) > 0 {
			p.Faults = append(p.Faults, r)
		}
	}
	add(history.KindStart, "first election", 1)
	for _, b := range breakages {
		count := 0
		for _, i := range d.injuries {
			if i.name == b.name {
				count++
			}
		}
		add(b.name, b.about, count)
	}
	add(history.KindOutage, "bucket could not be written", 0)
	add(history.KindNone, "no reason was found", 0)
}

// Complaint says why the drill was not passed; it is empty if it was.
func (p *Report) Complaint() string {
	var reasons []string
	if p.OverlapMS > 0 {
		reasons = append(reasons, fmt.Sprintf("two candidates believed at once for %d ms", p.OverlapMS))
	}
	if p.Overtaken > 0 {
		reasons = append(reasons, terminal.Plural(p.Overtaken, "belief")+" in a term although a later one had been led")
	}
	if p.Terms > 0 && p.Records == 0 && !p.unread {
		reasons = append(reasons, "no record was stored in "+terminal.Plural(p.Terms, "term"))
	}
	if p.OutOfOrder > 0 {
		reasons = append(reasons, terminal.Plural(p.OutOfOrder, "record")+" out of order")
	}
	if p.TermsOutOfOrder > 0 {
		reasons = append(reasons, terminal.Plural(p.TermsOutOfOrder, "term")+" out of order")
	}
	if p.Unneeded > 0 {
		reasons = append(reasons, terminal.Plural(p.Unneeded, "change")+" of leader without need")
	}
	for _, l := range p.Late {
		reasons = append(reasons, fmt.Sprintf("nobody led within %s (%s)", terminal.Human(terminal.Seconds(l.Bound)), l.Kind))
	}
	if reasons == nil {
		return ""
	}
	return "the drill was not passed: " + strings.Join(reasons, "; ")
}

// Print writes the report for people.
func (p *Report) Print(w io.Writer, s terminal.Style) error {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s\n\n", s.Paint(terminal.Bold, p.title()))
	fmt.Fprintf(&b, "%s\n", s.Paint(terminal.Faint, fmt.Sprintf("%-46s%6s%11s%9s%10s%10s   %s", "time until somebody leads", "faults", "failovers", "median", "max", "limit", "median / max as part of the TTL")))
	for _, r := range p.Faults {
		p.row(&b, r)
	}
	fmt.Fprintln(&b)
	line := func(name, format string, a ...any) { fmt.Fprintf(&b, "%-40s%s\n", name, fmt.Sprintf(format, a...)) }
	line("two believed at once for", "%s  (%d answers, the longest pause between two %d ms)", judged(s, p.OverlapMS, " ms"), p.Samples, p.LongestPauseMS)
	line("believed although a later one had led", "%s", judged(s, int64(p.Overtaken), ""))
	line("records out of order", "%s  (of %d; %d fenced)", judged(s, int64(p.OutOfOrder), ""), p.Records, p.Fenced)
	line("terms out of order", "%s  (of %d)", judged(s, int64(p.TermsOutOfOrder), ""), p.Terms)
	line("changes of leader without need", "%s  (of %d)", judged(s, int64(p.Unneeded), ""), len(p.Changes))
	line("failovers beyond their limit", "%s  (nobody led for %s at the longest)", judged(s, int64(len(p.Late)), ""), terminal.Human(terminal.Seconds(p.LongestWithout)))
	if slices.ContainsFunc(p.Faults, func(r faultResult) bool { return r.Kind == Rewind }) {
		line("before a leader can know of a rewind", "%6d ms with two leaders, %s in a term although a later one had been led",
			p.RewoundMS, terminal.Plural(p.RewoundBeliefs, "belief"))
		line("terms with a number set back by a rewind", "%6d", p.SetBack)
	}
	total, longest := 0.0, 0.0
	for _, o := range p.Outages {
		total, longest = total+o, max(longest, o)
	}
	line("bucket could not be written", "%6d times  (%s in all, %s at the longest)", len(p.Outages), terminal.Human(terminal.Seconds(total)), terminal.Human(terminal.Seconds(longest)))
	if p.LoseReplies > 0 {
		line("replies lost", "%6d", p.RepliesLost)
	}
	for _, d := range p.details {
		fmt.Fprintf(&b, "%s  %s\n", s.Paint(terminal.Red, "wrong"), d.text)
		for _, text := range d.around {
			fmt.Fprintf(&b, "       %s\n", s.Paint(terminal.Faint, text))
		}
	}
	if p.Kept != "" {
		fmt.Fprintf(&b, "Histories and logs are in %s; 0 s is %s there\n", p.Kept, p.wall.Format(terminal.TimeOfDay))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// judged returns a figure that should be 0.
func judged(s terminal.Style, figure int64, unit string) string {
	colour := terminal.Green
	if figure > 0 {
		colour = terminal.Red
	}
	return s.Paint(terminal.Bold+";"+colour, fmt.Sprintf("%6d%s", figure, unit))
}

func (p *Report) title() string {
	return fmt.Sprintf("%d candidates and %d servers as processes, TTL %s, stand-down %s, %s, seed %d, nats-server %s",
		p.Candidates, p.Servers, terminal.Human(terminal.Seconds(p.TTL)), terminal.Human(terminal.Seconds(p.StandDown)), terminal.Human(terminal.Seconds(p.DurationS)), p.Seed, p.ServerVersion)
}

// row writes one line of the table.
func (p *Report) row(b *strings.Builder, r faultResult) {
	name := fmt.Sprintf("%s (%s)", r.Kind, r.about)
	if len(r.Failover) == 0 {
		fmt.Fprintf(b, "%-46s%6d%11d%9s%10s%10s\n", name, r.Count, 0, "-", "-", "-")
		return
	}
	_, mid, hi := terminal.Spread(r.Failover)
	fmt.Fprintf(b, "%-46s%6d%11d%9s%10s%8.2f s   %.2f / %.2f\n", name, r.Count, len(r.Failover), terminal.Figure(mid), terminal.Figure(hi), r.Bound, mid/p.TTL, hi/p.TTL)
}
