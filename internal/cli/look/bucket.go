package look

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/admin"
	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/cli/terminal"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/session/claims"
	"github.com/natscampaign/election/internal/timing"
)

// BucketInfo describes a bucket. The help documents its JSON field names, so they must not change.
type BucketInfo struct {
	Bucket     string          `json:"bucket"`
	Server     string          `json:"server"`
	Created    time.Time       `json:"created"`
	TTLS       float64         `json:"ttl_s"`
	Sessions   bool            `json:"for_sessions,omitempty"`
	History    int64           `json:"history"`
	Storage    string          `json:"storage"`
	Replicas   int             `json:"replicas"`
	MarkersTTL float64         `json:"markers_ttl_s"`
	Remembers  bool            `json:"remembers_releases"` // those of elections never expire
	Republish  string          `json:"republish,omitempty"`
	Bytes      uint64          `json:"bytes"`
	MaxBytes   int64           `json:"max_bytes,omitempty"` // 0 is no limit
	Consumers  int             `json:"consumers"`
	Cluster    string          `json:"cluster,omitempty"`
	Peers      []Peer          `json:"peers"`
	Elections  []Holder        `json:"elections"`
	Paused     []string        `json:"paused"`
	Findings   []admin.Finding `json:"findings"`
}

// BucketHelp documents the JSON fields of a BucketInfo.
const BucketHelp = `"bucket", "server", "created", "ttl_s", "for_sessions" (true if the bucket is for sessions, whose TTL that is), "history", "storage", "replicas", "markers_ttl_s" (0
if the server writes no expiry markers), "remembers_releases" (true if those of elections never expire), "republish" (the subject), "bytes", "max_bytes" (left out if there is no limit), "consumers",
"cluster", "peers" (each with "name", "leader", "current", "offline", "lag", "seen_s"), "elections" (as in 'ls --json'), "paused" (the keys of paused elections) and
"findings" (each with "code", "severity", "message", "fix")`

// Peer is a server with a replica of the bucket.
type Peer struct {
	Name    string   `json:"name"`
	Leader  bool     `json:"leader"`
	Current bool     `json:"current"`
	Offline bool     `json:"offline"`
	Lag     uint64   `json:"lag"`
	SeenS   *float64 `json:"seen_s,omitempty"` // time since the stream leader last received something from the peer
}

// DescribeReplicas says how many replicas the bucket has, and how many of their servers are offline or behind.
func DescribeReplicas(info kv.Info) string {
	if info.Stream == nil {
		return "replicas unknown"
	}
	text := terminal.Plural(info.Stream.Config.Replicas, "replica")
	if info.Stream.Cluster == nil {
		return text
	}
	offline, behind := 0, 0
	for _, r := range info.Stream.Cluster.Replicas {
		switch {
		case r.Offline:
			offline++
		case !r.Current:
			behind++
		}
	}
	if offline > 0 {
		text += fmt.Sprintf(", %d offline", offline)
	}
	if behind > 0 {
		text += fmt.Sprintf(", %d behind", behind)
	}
	return text
}

// describe returns the part of a BucketInfo that comes from the stream.
func (v *View) describe() *BucketInfo {
	s := v.info.Stream
	b := &BucketInfo{
		Bucket: v.Bucket.Bucket(), Server: v.ServerURL(), Created: v.info.Created, TTLS: v.TTL().Seconds(), Sessions: v.ForSessions(),
		History: s.Config.MaxMsgsPerSubject, Storage: strings.ToLower(s.Config.Storage.String()), Replicas: s.Config.Replicas,
		MarkersTTL: s.Config.SubjectDeleteMarkerTTL.Seconds(), Remembers: v.info.Remembers, Bytes: s.State.Bytes, MaxBytes: max(s.Config.MaxBytes, 0), Consumers: s.State.Consumers, Peers: []Peer{},
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
		seen := terminal.ToSeconds(r.Active)
		b.Peers = append(b.Peers, Peer{Name: terminal.Printable(r.Name), Current: r.Current, Offline: r.Offline, Lag: r.Lag, SeenS: &seen})
	}
	slices.SortFunc(b.Peers, func(a, b Peer) int { return strings.Compare(a.Name, b.Name) })
	return b
}

// Findings returns the findings of admin.CheckAs for candidates that renew at the given interval, without those about the options of the
// connection: no candidate campaigns on this connection. The permissions are those of the role, for the key or, if it is empty, for any key. If
// the interval is nil, it is the one at which the leaders renew.
func (v *View) Findings(ctx context.Context, role admin.Role, key string, interval *time.Duration) ([]admin.Finding, error) {
	if interval == nil {
		var err error
		if interval, err = v.interval(ctx, key); err != nil {
			return nil, err
		}
	}
	all, err := admin.CheckAs(ctx, v.Bucket, role, key, cli.IntervalOption(interval))
	if err != nil {
		return nil, err
	}
	findings := []admin.Finding{}
	for _, f := range all {
		switch f.Code {
		case "reconnect-buffer", "reconnects-limited", "ping-interval":
			continue
		}
		f.Message, f.Fix, f.Short = printable(f.Message), printable(f.Fix), printable(f.Short)
		findings = append(findings, f)
	}
	return findings, nil
}

// interval returns the longest interval at which a leader renews: the leader of the key or, if it is empty, any. It is nil if nobody leads, or if
// the bucket's TTL leaves room for no interval. It fits the bucket whatever is stored there: anybody can have written that, or the bucket's TTL was
// longer when it was written.
func (v *View) interval(ctx context.Context, key string) (*time.Duration, error) {
	var holders []Holder
	if key == "" {
		var err error
		if holders, err = v.Leaders(ctx); err != nil {
			return nil, err
		}
	} else if h, err := v.Leader(ctx, key); err == nil {
		holders = []Holder{*h}
	} else if !errors.Is(err, election.ErrNoLeader) {
		return nil, err
	}
	var longest time.Duration
	for _, h := range holders {
		longest = max(longest, h.RenewalInterval(v.TTL()))
	}
	longest = min(longest, timing.LongestInterval(v.TTL()))
	if longest < timing.MinPause {
		return nil, nil
	}
	return &longest, nil
}

// printable returns a text of a finding for the command line.
func printable(text string) string {
	return terminal.PrintableUpTo(cli.WithFlagNames(text), terminal.MaxValue)
}

// BucketInfo reads everything about the bucket.
func (v *View) BucketInfo(ctx context.Context) (b *BucketInfo, err error) {
	b = v.describe()
	if b.Findings, err = v.Findings(ctx, admin.RoleObserver, "", nil); err != nil {
		return nil, err
	}
	// That a watch is refused is about the user, not the bucket.
	b.Findings = slices.DeleteFunc(b.Findings, func(f admin.Finding) bool { return f.Code == "watch-refused" })
	if err := v.Refresh(ctx); err != nil { // Findings may take seconds
		return nil, err
	}
	if b.Elections, err = v.Leaders(ctx); err != nil {
		return nil, err
	}
	v.CountStandbys(ctx, b.Elections)
	b.Paused = v.Paused()
	return b, err
}

// Unfit reports whether elections do not work in the bucket, or are not safe there.
func (b *BucketInfo) Unfit() bool {
	return slices.ContainsFunc(b.Findings, func(f admin.Finding) bool { return f.Severity == admin.SeverityCritical })
}

// Print writes everything but the findings for people.
func (b *BucketInfo) Print(w io.Writer, st terminal.Style, v *View) error {
	title := fmt.Sprintf("Bucket %s on %s", b.Bucket, b.Server)
	_, err := fmt.Fprintf(w, "%s\n\n%s", st.Paint(terminal.Bold, title), b.properties(v).Text(st))
	if err != nil || len(b.Elections) == 0 {
		return err
	}
	fmt.Fprintln(w)
	return ElectionTable(v, b.Elections).Print(w, st)
}

// properties returns the properties of the bucket.
func (b *BucketInfo) properties(v *View) *terminal.PropertyList {
	list := &terminal.PropertyList{}
	list.Add("Created", terminal.TimestampAgo(b.Created, v.Clock.Now().Sub(b.Created)))
	list.Add("TTL", kv.TTLText(v.TTL()))
	if b.Sessions {
		list.Add("For", "sessions, each of which has one lease for all its keys")
	}
	list.Add("History", fmt.Sprint(b.History))
	list.Add("Storage", b.Storage)
	if !b.Sessions {
		b.addNotices(list)
	}
	list.Add("Replicas", fmt.Sprint(b.Replicas))
	if b.Cluster != "" {
		list.Add("Cluster", b.Cluster)
		label := "Peers"
		for _, p := range b.Peers {
			list.Add(label, p.String())
			label = ""
		}
	}
	list.Add("Elections", fmt.Sprint(len(b.Elections))+ofSessions(v, b.Elections))
	if len(b.Paused) > 0 {
		list.Add("Paused", strings.Join(b.Paused, ", "))
	}
	size := terminal.Plural(int(b.Bytes), "byte")
	if b.MaxBytes > 0 {
		size += fmt.Sprintf(" of at most %d", b.MaxBytes)
	}
	list.Add("Size", size)
	list.Add("Consumers", fmt.Sprint(b.Consumers))
	if v.Clock.Differs(ClockTolerance) {
		list.Add("Clock", ClockDifference(v.Clock))
	}
	return list
}

// ofSessions says how many sessions lead keys of a bucket for sessions, in words that follow their number; empty in another bucket.
func ofSessions(v *View, led []Holder) string {
	if !v.ForSessions() {
		return ""
	}
	sessions := map[string]bool{}
	for _, h := range led {
		sessions[h.Instance] = true
	}
	return ", led by " + terminal.Plural(len(sessions), "session")
}

// addNotices adds what the server tells of changes and what stays of releases.
func (b *BucketInfo) addNotices(list *terminal.PropertyList) {
	markers := "not announced"
	if b.MarkersTTL > 0 {
		markers = fmt.Sprintf("announced by markers, for %v each", terminal.FromSeconds(b.MarkersTTL))
	}
	list.Add("Expiries", markers)
	releases := "expire after the TTL"
	if b.Remembers {
		releases = "never expire, but for those of locks"
	}
	list.Add("Releases", releases)
	republish := "not republished"
	if b.Republish != "" {
		republish = "republished on " + b.Republish
	}
	list.Add("Changes", republish)
}

// String describes the state of the peer.
func (p Peer) String() string {
	var state []string
	switch {
	case p.Leader:
		state = append(state, "leads")
	case p.Offline:
		state = append(state, "offline")
	case p.Current:
		state = append(state, "current")
	default:
		state = append(state, "not current")
	}
	if p.Lag > 0 {
		state = append(state, fmt.Sprintf("%s behind", terminal.Plural(int(p.Lag), "operation")))
	}
	if p.SeenS != nil {
		state = append(state, "seen "+terminal.Ago(terminal.FromSeconds(*p.SeenS)))
	}
	return p.Name + ": " + strings.Join(state, ", ")
}

// FindingsText returns the findings with at least the given severity, and the fix of each warning and critical finding.
func FindingsText(st terminal.Style, findings []admin.Finding, minimum admin.Severity) string {
	var text strings.Builder
	for _, f := range findings {
		if f.Severity < minimum {
			continue
		}
		colour := terminal.Faint
		switch f.Severity {
		case admin.SeverityCritical:
			colour = terminal.Red
		case admin.SeverityWarning:
			colour = terminal.Yellow
		}
		fmt.Fprintf(&text, "\n%s  %s: %s\n", st.Paint(colour, fmt.Sprintf("%-8s", f.Severity)), f.Code, f.Message)
		if f.Fix != "" && f.Severity > admin.SeverityInfo {
			fmt.Fprintf(&text, "          Fix: %s\n", f.Fix)
		}
	}
	return text.String()
}

// ElectionTable returns a table of elections.
func ElectionTable(v *View, elections []Holder) *terminal.Table {
	t := &terminal.Table{
		Title:  fmt.Sprintf("Elections in bucket %s", v.Bucket.Bucket()),
		Header: []string{"Election", "Leader", "State", "Since", "Term", "Renewed", "Time left", "Host", "Standbys"},
		Least:  []string{"Term", "Renewed", "Since", "Host"},
	}
	if v.ForSessions() {
		t.Title += fmt.Sprintf(": %d%s", len(elections), ofSessions(v, elections))
	}
	for _, h := range elections {
		if h.State == StateVacant {
			t.Add(h.Key, "-", "paused", "-", "-", "-", "-", "-", "-")
			continue
		}
		state := h.State
		if h.Paused {
			state += ", paused"
		}
		t.Add(h.Key, h.Name, state, cmp.Or(h.SinceText(), "-"), terminal.NumberOrDash(h.Term), terminal.Ago(h.RenewalAge), TimeLeftText(h.Leader, h.TimeLeft), cmp.Or(h.Host, "-"), h.standbysText())
	}
	return t
}

// isOrAre counts in words that an adjective follows.
func isOrAre(n int) string {
	if n == 1 {
		return "1 is"
	}
	return fmt.Sprintf("%d are", n)
}

// maxNamedLeaders limits the leaders that DescribeLeaders names.
const maxNamedLeaders = 5

// DescribeLeaders describes in one sentence which elections of the bucket have a leader.
func DescribeLeaders(ctx context.Context, client *cli.Client, bucket *election.Bucket) string {
	where := fmt.Sprintf("Bucket %q on %s", bucket.Bucket(), client.ServerURL())
	var leaders []election.Leader
	v, err := New(ctx, client, bucket)
	if err == nil && v.ForSessions() {
		var n claims.Numbers
		n, err = claims.Count(ctx, kv.With(bucket, nil), v.info)
		where += " is for sessions"
		if err == nil {
			where += fmt.Sprintf(", and %s open", isOrAre(n.Sessions))
		}
	}
	if err == nil {
		leaders, err = v.Observer.Leaders(ctx)
	}
	if err != nil {
		return fmt.Sprintf("%s: its leaders cannot be read (%v).", where, err)
	}
	var names []string
	for _, l := range leaders[:min(len(leaders), maxNamedLeaders)] {
		names = append(names, terminal.Quote(l.Key)+" by "+terminal.Quote(l.Name))
	}
	if more := len(leaders) - maxNamedLeaders; more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	switch len(leaders) {
	case 0:
		return where + ": no election has a leader right now."
	case 1:
		return fmt.Sprintf("%s: 1 election is led right now: %s.", where, names[0])
	}
	return fmt.Sprintf("%s: %d elections are led right now: %s.", where, len(leaders), strings.Join(names, ", "))
}
