package look

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/natscampaign/election/admin"
	"github.com/natscampaign/election/internal/terminal"
)

// BucketInfo is what info tells about a bucket. Its field names are documented in the help and stay as they are.
type BucketInfo struct {
	Bucket     string          `json:"bucket"`
	Server     string          `json:"server"`
	Created    time.Time       `json:"created"`
	TTLS       float64         `json:"ttl_s"`
	History    int64           `json:"history"`
	Storage    string          `json:"storage"`
	Replicas   int             `json:"replicas"`
	MarkersTTL float64         `json:"markers_ttl_s"`
	Republish  string          `json:"republish,omitempty"`
	Bytes      uint64          `json:"bytes"`
	Consumers  int             `json:"consumers"`
	Cluster    string          `json:"cluster,omitempty"`
	Peers      []Peer          `json:"peers"`
	Elections  []Holder        `json:"elections"`
	Paused     []string        `json:"paused"`
	Findings   []admin.Finding `json:"findings"`
}

// Peer is one server that keeps a replica.
type Peer struct {
	Name    string   `json:"name"`
	Leader  bool     `json:"leader"`
	Current bool     `json:"current"`
	Offline bool     `json:"offline"`
	Lag     uint64   `json:"lag"`
	SeenS   *float64 `json:"seen_s,omitempty"` // how long ago the leader of the stream had an answer from it
}

// describe returns what the stream tells about the bucket.
func (v *View) describe() *BucketInfo {
	s := v.stream
	b := &BucketInfo{
		Bucket: v.Bucket.Bucket(), Server: v.ServerURL(), Created: s.Created, TTLS: s.Config.MaxAge.Seconds(),
		History: s.Config.MaxMsgsPerSubject, Storage: strings.ToLower(s.Config.Storage.String()), Replicas: s.Config.Replicas,
		MarkersTTL: s.Config.SubjectDeleteMarkerTTL.Seconds(), Bytes: s.State.Bytes, Consumers: s.State.Consumers, Peers: []Peer{},
	}
	if s.Config.RePublish != nil {
		b.Republish = terminal.Printable(s.Config.RePublish.Destination)
	}
	if s.Cluster == nil {
		return b
	}
	b.Cluster = terminal.Printable(s.Cluster.Name)
	if s.Cluster.Leader != "" {
		b.Peers = append(b.Peers, Peer{Name: terminal.Printable(s.Cluster.Leader), Leader: true, Current: true})
	}
	for _, r := range s.Cluster.Replicas {
		seen := terminal.RoundMS(r.Active)
		b.Peers = append(b.Peers, Peer{Name: terminal.Printable(r.Name), Current: r.Current, Offline: r.Offline, Lag: r.Lag, SeenS: &seen})
	}
	slices.SortFunc(b.Peers, func(a, b Peer) int { return strings.Compare(a.Name, b.Name) })
	return b
}

// Findings returns the findings of the library but for those about this connection, on which no candidate campaigns.
func (v *View) Findings(ctx context.Context) ([]admin.Finding, error) {
	all, err := admin.Check(ctx, v.Bucket)
	if err != nil {
		return nil, err
	}
	findings := []admin.Finding{}
	for _, f := range all {
		if f.Code == "reconnect-buffer" || f.Code == "reconnects-limited" {
			continue
		}
		f.Message, f.Fix = terminal.PrintableUpTo(f.Message, terminal.MaxValue), terminal.PrintableUpTo(f.Fix, terminal.MaxValue)
		findings = append(findings, f)
	}
	return findings, nil
}

// Report tells all that there is to know about the bucket.
func (v *View) Report(ctx context.Context) (b *BucketInfo, err error) {
	b = v.describe()
	if b.Findings, err = v.Findings(ctx); err != nil {
		return nil, err
	}
	if err := v.Refresh(ctx); err != nil { // the findings may have taken a while
		return nil, err
	}
	if b.Elections, err = v.Leaders(ctx); err != nil {
		return nil, err
	}
	b.Paused, err = v.Paused(ctx)
	return b, err
}

// Unfit says whether elections do not work in the bucket, or are not safe.
func (b *BucketInfo) Unfit() bool {
	return slices.ContainsFunc(b.Findings, func(f admin.Finding) bool { return f.Severity == admin.SeverityCritical })
}

// Print tells about the bucket in words, but not what was found about it.
func (b *BucketInfo) Print(w io.Writer, v *View) error {
	st := terminal.StyleFor(w)
	if _, err := fmt.Fprintf(w, "%s\n\n", st.Paint(terminal.Bold, fmt.Sprintf("Bucket %s on %s", b.Bucket, b.Server))); err != nil {
		return err
	}
	lines := b.sheet(v)
	if err := lines.Print(w, st); err != nil {
		return err
	}
	if len(b.Elections) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	return Table(v, b.Elections).Print(w)
}

// sheet returns what is told of the bucket itself.
func (b *BucketInfo) sheet(v *View) *terminal.Sheet {
	lines := &terminal.Sheet{}
	lines.Add("Created", terminal.Timestamp(b.Created)+" ("+terminal.Ago(v.Clock.Now().Sub(b.Created))+")")
	lines.Add("TTL", v.TTL().String())
	lines.Add("History", fmt.Sprint(b.History))
	lines.Add("Storage", b.Storage)
	markers := "not announced"
	if b.MarkersTTL > 0 {
		markers = fmt.Sprintf("announced by markers, for %v each", terminal.Seconds(b.MarkersTTL))
	}
	lines.Add("Expiries", markers)
	republish := "not republished"
	if b.Republish != "" {
		republish = "republished on " + b.Republish
	}
	lines.Add("Changes", republish)
	lines.Add("Replicas", fmt.Sprint(b.Replicas))
	if b.Cluster != "" {
		lines.Add("Cluster", b.Cluster)
		label := "Peers"
		for _, p := range b.Peers {
			lines.Add(label, p.String())
			label = ""
		}
	}
	lines.Add("Elections", fmt.Sprint(len(b.Elections)))
	if len(b.Paused) > 0 {
		lines.Add("Paused", strings.Join(b.Paused, ", "))
	}
	lines.Add("Size", terminal.Plural(int(b.Bytes), "byte"))
	lines.Add("Consumers", fmt.Sprint(b.Consumers))
	if v.Clock.Differs(ClockBound) {
		lines.Add("Clock", ClockError(v.Clock))
	}
	return lines
}

// String tells in words how a replica is.
func (p Peer) String() string {
	var is []string
	switch {
	case p.Leader:
		is = append(is, "leads")
	case p.Offline:
		is = append(is, "offline")
	case p.Current:
		is = append(is, "current")
	default:
		is = append(is, "not current")
	}
	if p.Lag > 0 {
		is = append(is, fmt.Sprintf("%s behind", terminal.Plural(int(p.Lag), "operation")))
	}
	if p.SeenS != nil {
		is = append(is, "seen "+terminal.Ago(terminal.Seconds(*p.SeenS)))
	}
	return p.Name + ": " + strings.Join(is, ", ")
}

// PrintFindings writes the findings of at least some severity, with the fix of what is wrong.
func PrintFindings(w io.Writer, st terminal.Style, findings []admin.Finding, least admin.Severity) error {
	for _, f := range findings {
		if f.Severity < least {
			continue
		}
		colour := terminal.Faint
		switch f.Severity {
		case admin.SeverityCritical:
			colour = terminal.Red
		case admin.SeverityWarning:
			colour = terminal.Yellow
		}
		if _, err := fmt.Fprintf(w, "\n%s  %s: %s\n", st.Paint(colour, fmt.Sprintf("%-8s", f.Severity)), f.Code, f.Message); err != nil {
			return err
		}
		if f.Fix != "" && f.Severity > admin.SeverityInfo {
			if _, err := fmt.Fprintf(w, "          Fix: %s\n", f.Fix); err != nil {
				return err
			}
		}
	}
	return nil
}

// Table returns elections as a table.
func Table(v *View, elections []Holder) *terminal.Table {
	g := &terminal.Table{
		Title:  fmt.Sprintf("Elections in bucket %s", v.Bucket.Bucket()),
		Header: []string{"Election", "Leader", "State", "Since", "Term", "Renewed", "Time left", "Host"},
	}
	now := v.Clock.Now()
	for _, s := range elections {
		g.Add(s.Key, s.Name, s.State, cmp.Or(s.HeldSince(now), "-"), terminal.TermNumber(s.Term), terminal.Ago(s.Age), s.remaining(), cmp.Or(s.Host, "-"))
	}
	return g
}
