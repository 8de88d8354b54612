// Package look reads what operators want to know of a bucket: who leads in which election, since when and until when, the bucket and its
// replicas, what is wrong with it, and who claims to lead. It reads only.
//
// Times are told by the clock of the server that stamps the records. What others wrote is made printable before it leaves the package.
package look

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/admin"
	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/terminal"
	"github.com/natscampaign/election/observe"
)

// View is a bucket as the commands see it that look at elections: its stream as it last was, and its server's clock.
type View struct {
	*cli.Session
	Bucket   *election.Bucket
	Observer *observe.Observer
	Admin    *admin.Admin
	stream   jetstream.StreamInfo
	Clock    ServerTime
}

// Open opens the bucket to be looked at. A server or bucket that is not there is an error at once. Close the session's
// connection.
func Open(ctx context.Context, t *cli.Env, command string) (*View, error) {
	s, bucket, err := t.Open(ctx, command)
	if err != nil {
		return nil, err
	}
	v, err := Of(ctx, s, bucket)
	if err != nil {
		s.Conn.Close()
		return nil, err
	}
	return v, nil
}

// Of returns the bucket as it is now.
func Of(ctx context.Context, s *cli.Session, bucket *election.Bucket, opts ...election.Option) (*View, error) {
	observer, err := observe.New(bucket, opts...)
	if err != nil {
		return nil, err
	}
	operator, err := admin.New(bucket, opts...)
	if err != nil {
		return nil, err
	}
	v := &View{Session: s, Bucket: bucket, Observer: observer, Admin: operator}
	return v, v.Refresh(ctx)
}

// Refresh reads the state of the stream behind the bucket, and its server's clock.
func (v *View) Refresh(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, v.Timeout)
	defer cancel()
	sent := time.Now()
	status, err := v.Bucket.Status(ctx)
	if err != nil {
		return fmt.Errorf("bucket %q on %s cannot be read: %w", v.Bucket.Bucket(), v.ServerURL(), err)
	}
	received := time.Now()
	s, ok := status.(interface{ StreamInfo() *jetstream.StreamInfo })
	if !ok || s.StreamInfo() == nil {
		return fmt.Errorf("bucket %q on %s does not describe the stream behind it", v.Bucket.Bucket(), v.ServerURL())
	}
	v.stream = *s.StreamInfo()
	v.Clock = ReadServerTime(v.stream.TimeStamp, sent, received)
	return nil
}

// TTL returns how long a lease lasts.
func (v *View) TTL() time.Duration { return v.stream.Config.MaxAge }

// Leader returns who holds the key; ErrNoLeader if nobody does.
func (v *View) Leader(ctx context.Context, key string) (*Holder, error) {
	ctx, cancel := context.WithTimeout(ctx, v.Timeout)
	defer cancel()
	l, err := v.Observer.Leader(ctx, key)
	if err != nil {
		return nil, err
	}
	seen := v.Sight(l)
	return &seen, nil
}

// Paused returns the keys of the elections that an operator has paused.
func (v *View) Paused(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, v.Timeout)
	defer cancel()
	keys, err := v.Admin.Paused(ctx)
	if err != nil {
		return nil, err
	}
	shown := make([]string, len(keys)) // in JSON none are an empty list
	for i, key := range keys {
		shown[i] = terminal.Printable(key)
	}
	return shown, nil
}

// toldPatience is how long a consumer has to tell what stands in a bucket before the keys are read one by one.
const toldPatience = 2 * time.Second

// Leaders returns who leads in each election of the bucket that has a leader.
func (v *View) Leaders(ctx context.Context) ([]Holder, error) {
	ctx, cancel := context.WithTimeout(ctx, v.Timeout+toldPatience)
	defer cancel()
	leaders, err := v.told(ctx)
	if err != nil {
		leaders, err = v.read(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("elections of bucket %q on %s cannot be listed: %w", v.Bucket.Bucket(), v.ServerURL(), err)
	}
	seen := []Holder{} // in JSON none are an empty list, and no null
	for _, l := range leaders {
		if !IsOther(l) {
			seen = append(seen, v.Sight(l))
		}
	}
	return seen, nil
}

// IsOther says whether a key holds something else than an election: an object that is no record, as groups keep their
// plan and their members. Of a long object the library shows only the beginning. No bare name looks so.
func IsOther(l election.Leader) bool {
	return l.Instance == "" && strings.HasPrefix(l.Name, `{"`)
}

// told has the leaders told by a consumer, which takes one request however many they are. There may be no permission for
// that, or the server that is to keep the consumer may just have gone, which is when people want to see most.
func (v *View) told(ctx context.Context) ([]election.Leader, error) {
	ctx, cancel := context.WithTimeout(ctx, min(v.Timeout, toldPatience))
	defer cancel()
	return v.Observer.Leaders(ctx)
}

// read reads the leaders key by key. Keys that no candidate could campaign for are left out.
func (v *View) read(ctx context.Context) ([]election.Leader, error) {
	prefix := "$KV." + v.Bucket.Bucket() + "."
	stream, err := v.JetStream.Stream(ctx, v.stream.Config.Name)
	if err != nil {
		return nil, err
	}
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(prefix+">"))
	if err != nil {
		return nil, err
	}
	var leaders []election.Leader
	for _, subject := range slices.Sorted(maps.Keys(info.State.Subjects)) {
		l, err := v.Observer.Leader(ctx, strings.TrimPrefix(subject, prefix))
		switch {
		case err == nil:
			leaders = append(leaders, l)
		case !errors.Is(err, election.ErrNoLeader) && !errors.Is(err, election.ErrInvalidOption):
			return nil, err
		}
	}
	return leaders, nil
}

// Standings of the holder of a key. One that wrote no more than its bare name, as Choria's candidates do, is called
// plain: nothing tells whether its leadership counts.
const (
	StateLeader      = "leader"
	StateLeaderElect = "leader-elect"
	StatePlain       = "plain"
)

// Holder is the holder of a key as it is shown. Its field names, and those of election.Leader, are documented in the
// help and stay as they are.
type Holder struct {
	election.Leader
	State      string  `json:"state"`
	Token      string  `json:"token,omitempty"`
	ExpiresInS float64 `json:"expires_in_s"`

	Age  time.Duration `json:"-"` // since the last renewal, by the server's clock
	Left time.Duration `json:"-"` // until the key expires, by the server's clock
}

const HolderHelp = `"key" (the election), "name", "instance", "host", "pid", "priority", "term", "bucket_created", "revision",
"started" (when the candidate started), "since" (when it won), "renewed", "expires" (RFC 3339), "metadata", "state" (leader;
leader-elect, whose leadership does not count yet; plain, a bare name as Choria's candidates write it, which does not say
whether leadership counts), "token" (the fencing token) and "expires_in_s" (by the server's clock). What is not known is left out`

// Sight returns a leader as it is shown.
func (v *View) Sight(l election.Leader) Holder {
	now := v.Clock.Now()
	s := Holder{Leader: Shown(l), State: stateOf(l), Age: max(now.Sub(l.Renewed), 0), Left: l.Expires.Sub(now)}
	s.ExpiresInS = terminal.RoundMS(s.Left)
	if l.Term != 0 {
		s.Token = election.Term{BucketCreated: v.stream.Created, Number: l.Term}.Token()
	}
	return s
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

// HeldSince returns since when the key is held, and for how long.
func (s *Holder) HeldSince(now time.Time) string {
	if s.Since.IsZero() {
		return ""
	}
	return terminal.Timestamp(s.Since) + " (" + terminal.Ago(now.Sub(s.Since)) + ")"
}

// remaining returns in words how long the key lasts unless it is renewed.
func (s *Holder) remaining() string {
	if s.Left < 0 {
		return "over for " + terminal.Human(-s.Left)
	}
	return terminal.Human(s.Left)
}

// Election is the answer to the question who holds one key. Its field names stay as they are.
type Election struct {
	Key    string  `json:"key"`
	Bucket string  `json:"bucket"`
	Leader *Holder `json:"leader"` // null if nobody does
}

// Shown returns l with all that its writer chose made printable.
func Shown(l election.Leader) election.Leader {
	l.Key, l.Name, l.Instance, l.Host = terminal.Printable(l.Key), terminal.Printable(l.Name), terminal.Printable(l.Instance), terminal.Printable(l.Host)
	if l.Metadata == nil {
		return l
	}
	metadata := map[string]string{}
	for _, k := range slices.Sorted(maps.Keys(l.Metadata)) { // the same ones each time
		if len(metadata) < terminal.MaxMetadata {
			metadata[terminal.Printable(k)] = terminal.PrintableUpTo(l.Metadata[k], terminal.MaxValue)
		}
	}
	l.Metadata = metadata
	return l
}
