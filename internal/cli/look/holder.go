package look

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/cli/terminal"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/timing"
	"github.com/natscampaign/election/observe"
)

// States of the holder of a key. StatePlain is that of a bare name, which candidates of Choria write: a bare name does not
// say whether leadership counts. StateVacant is that of a paused election without a holder.
const (
	StateLeader      = "leader"
	StateLeaderElect = "leader-elect"
	StatePlain       = "plain"
	StateVacant      = "vacant"
)

// maxNamedStandbys limits the standbys that the description of an election names.
const maxNamedStandbys = 5

// Holder is the holder of a key, with printable text. The help documents its JSON field names and those of election.Leader,
// so they must not change.
type Holder struct {
	election.Leader
	State      string  `json:"state"`
	Token      string  `json:"token,omitempty"`
	Paused     bool    `json:"paused,omitempty"` // by an operator
	ExpiresInS float64 `json:"expires_in_s"`
	IntervalS  float64 `json:"interval_s,omitempty"` // from one renewal to the next; 0 if the holder does not say
	Standbys   *int    `json:"standbys,omitempty"`   // nil if that is not known, or the election needs none

	ReadAt     time.Time     `json:"-"` // by the server's clock; the ages are those of this time
	RenewalAge time.Duration `json:"-"` // since the last renewal
	TimeLeft   time.Duration `json:"-"` // until the key expires; negative if it should have expired
	standbys   []string      // their names
}

// HolderHelp documents the JSON fields of a Holder.
const HolderHelp = `"key" (the election), "name", "instance", "host", "pid", "priority", "term", "bucket_created", "revision",
"started" (when the candidate started), "since" (when it won), "leads_since" (since when its leadership counts), "renewed", "expires"
(RFC 3339), "metadata", "state" (leader; leader-elect: leadership does not count yet; plain: a bare name, which candidates of Choria
write and which does not say whether leadership counts; vacant: a paused election without a holder), "paused" (true if an operator has paused the election), "token" (the fencing
token), "expires_in_s" (by the server's clock), "interval_s" (from one renewal to the next) and "standbys" (the number of candidates that
answered and would take over). Unknown values are left out; "standbys" also where none is needed: for locks, slots, keys of groups and 'run --no-wait'`

// ElectionInfo is the holder of one key. The help documents its JSON field names, so they must not change.
type ElectionInfo struct {
	Key    string  `json:"key"`
	Bucket string  `json:"bucket"`
	Leader *Holder `json:"leader"`           // null if the key has no holder
	Paused bool    `json:"paused,omitempty"` // by an operator

	Ended *observe.Event `json:"ended,omitempty"` // how the last term ended, if nobody leads and that is known
}

// NewHolder returns the Holder for a leader. Its ages are by the server's clock, at the time of the local clock at which the request was
// sent that read the leader: the answer may have been slow.
func (v *View) NewHolder(l election.Leader, sent time.Time) Holder {
	at := v.Clock.AtLeast(sent)
	h := Holder{Leader: PrintableLeader(l), State: stateOf(l), ReadAt: at, RenewalAge: max(at.Sub(l.Renewed), 0)}
	h.TimeLeft = l.Expires.Sub(l.Renewed) - h.RenewalAge
	h.Paused = v.IsPaused(l.Key)
	h.ExpiresInS, h.IntervalS = terminal.ToSeconds(h.TimeLeft), terminal.ToSeconds(h.Interval)
	if l.Term != 0 {
		if l.BucketCreated.IsZero() {
			l.BucketCreated = v.info.Created
		}
		h.Token = l.Token()
	}
	return h
}

// KeyExpires reports whether the server removes the key if its leader does not renew it. In a bucket without a TTL nobody can tell when the lease ends.
func KeyExpires(l election.Leader) bool { return l.Expires.After(l.Renewed) }

// RenewalInterval returns the time from one renewal of the holder to the next, in a bucket with the given TTL. A holder that says none, as
// those of Choria, or one that no candidate can have there, is taken to have the default.
func (h *Holder) RenewalInterval(ttl time.Duration) time.Duration {
	if h.Interval < timing.MinPause || h.Interval >= ttl {
		return timing.DefaultInterval(ttl)
	}
	return h.Interval
}

func stateOf(l election.Leader) string {
	switch {
	case l.Instance == "":
		return StatePlain
	case l.Term == 0:
		return StateLeaderElect
	}
	return StateLeader
}

// Print writes everything about the holder for people.
func (h *Holder) Print(w io.Writer, st terminal.Style, v *View) error {
	title := fmt.Sprintf("Election %s in bucket %s on %s", h.Key, v.Bucket.Bucket(), v.ServerURL())
	_, err := fmt.Fprintf(w, "%s\n\n%s", st.Paint(terminal.Bold, title), h.properties(v).Text(st))
	return err
}

// properties returns everything about the holder but its key.
func (h *Holder) properties(v *View) *terminal.PropertyList {
	list := &terminal.PropertyList{}
	list.Add("Leader", h.Name)
	list.Add("State", h.State+map[string]string{
		StateLeaderElect: ": leadership does not count before the first renewal after the stand-down",
		StatePlain:       ": a bare name, which does not say whether leadership counts",
	}[h.State])
	if h.LeadsSince.IsZero() {
		list.Add("Won", h.timeText(h.Since))
	} else {
		list.Add("Leads since", h.timeText(h.LeadsSince))
		if !h.LeadsSince.Equal(h.Since) {
			list.Add("Won", h.timeText(h.Since))
		}
	}
	if h.Term != 0 {
		list.Add("Term", terminal.NumberOrDash(h.Term)+" (a revision of the bucket: later terms have larger ones)")
	}
	list.Add("Token", h.Token)
	renewed := terminal.TimestampAgo(h.Renewed, h.RenewalAge)
	if h.Interval > 0 {
		renewed += ", every " + terminal.FormatDuration(h.Interval)
	}
	list.Add("Renewed", renewed)
	switch {
	case !KeyExpires(h.Leader):
		list.Add("Expires", "never: the bucket has no TTL")
	case h.TimeLeft < 0:
		list.Add("Expires", terminal.Timestamp(h.Expires)+" ("+terminal.FormatDuration(-h.TimeLeft)+" ago, and is about to be removed)")
	default:
		list.Add("Expires", terminal.TimestampAgo(h.Expires, -h.TimeLeft))
	}
	list.Add("Standbys", h.describeStandbys())
	list.Add("Host", h.Host)
	if h.PID != 0 {
		list.Add("Process", fmt.Sprint(h.PID))
	}
	list.Add("Instance", h.Instance)
	list.Add("Revision", terminal.NumberOrDash(h.Revision))
	if h.Paused {
		text := "candidates do not campaign until " + v.NameCommand("resume "+h.Key)
		if origin := OriginOf(v.info.Paused[h.Key]); origin != "" {
			text = strings.TrimSpace(origin) + ": " + text
		}
		list.Add("Paused", text)
	}
	label := "Metadata"
	for _, k := range slices.Sorted(maps.Keys(h.Metadata)) {
		list.Add(label, k+"="+h.Metadata[k])
		label = ""
	}
	return list
}

// describeStandbys says how many candidates would take over, and which; empty if that is not known.
func (h *Holder) describeStandbys() string {
	switch {
	case h.Standbys == nil:
		return ""
	case *h.Standbys == 0:
		return "none: nobody would take over"
	case *h.Standbys > maxNamedStandbys:
		return fmt.Sprintf("%d: %s, and %d more", *h.Standbys, strings.Join(h.standbys[:maxNamedStandbys], ", "), *h.Standbys-maxNamedStandbys)
	}
	return fmt.Sprintf("%d: %s", *h.Standbys, strings.Join(h.standbys, ", "))
}

// standbysText returns the number of standbys for a table.
func (h *Holder) standbysText() string {
	if h.Standbys == nil {
		return "-"
	}
	return strconv.Itoa(*h.Standbys)
}

// SinceText returns since when the holder leads, or when a leader-elect won the key, and how long ago that was. It returns an empty string if
// that is unknown.
func (h *Holder) SinceText() string { return h.timeText(Since(h.Leader)) }

// Since returns since when a leader leads, or when a leader-elect won the key; the zero time if that is unknown.
func Since(l election.Leader) time.Time { return cmp.Or(l.LeadsSince, l.Since) }

// timeText returns a time, and how long ago that was; empty for the zero time.
func (h *Holder) timeText(at time.Time) string { return terminal.TimestampAgo(at, h.ReadAt.Sub(at)) }

// TimeLeftText returns the time that is left until the key of a leader expires in words.
func TimeLeftText(l election.Leader, left time.Duration) string {
	switch {
	case !KeyExpires(l):
		return "no TTL"
	case left < 0:
		return "over for " + terminal.FormatDuration(-left)
	}
	return terminal.FormatDuration(left)
}

// IsOtherData reports whether the key of l holds a JSON object that is not the record of an election, such as the plan or a
// member of a group. The library shows only the beginning of a long object. No bare name begins like that.
func IsOtherData(l election.Leader) bool {
	return kv.IsOtherData(l.Key, l.Instance, l.Name, l.Interval)
}

// PrintableLeader returns a copy of l in which the text that the leader wrote is printable and has limits.
func PrintableLeader(l election.Leader) election.Leader {
	l.Key, l.Name, l.Instance, l.Host = terminal.Printable(l.Key), terminal.Printable(l.Name), terminal.Printable(l.Instance), terminal.Printable(l.Host)
	if l.Metadata == nil {
		return l
	}
	metadata := map[string]string{}
	for _, k := range slices.Sorted(maps.Keys(l.Metadata)) { // sorted, so that the limit keeps the same entries each time
		if len(metadata) < terminal.MaxMetadata {
			metadata[terminal.Printable(k)] = terminal.PrintableUpTo(l.Metadata[k], terminal.MaxValue)
		}
	}
	l.Metadata = metadata
	return l
}
