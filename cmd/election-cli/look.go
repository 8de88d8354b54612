package main

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
	"github.com/natscampaign/election/observe"
)

// view is a bucket as the commands see it that look at elections: its stream as it last was, and its server's clock.
type view struct {
	*session
	bucket   *election.Bucket
	observer *observe.Observer
	admin    *admin.Admin
	stream   jetstream.StreamInfo
	clock    serverTime
}

// look opens the bucket to be looked at. A server or bucket that is not there is an error at once. Close the session's
// connection.
func (t *tool) look(ctx context.Context, command string) (*view, error) {
	s, bucket, err := t.open(ctx, command)
	if err != nil {
		return nil, err
	}
	v, err := s.view(ctx, bucket)
	if err != nil {
		s.nc.Close()
		return nil, err
	}
	return v, nil
}

// view returns the bucket as it is now.
func (s *session) view(ctx context.Context, bucket *election.Bucket, opts ...election.Option) (*view, error) {
	observer, err := observe.New(bucket, opts...)
	if err != nil {
		return nil, err
	}
	operator, err := admin.New(bucket, opts...)
	if err != nil {
		return nil, err
	}
	v := &view{session: s, bucket: bucket, observer: observer, admin: operator}
	return v, v.refresh(ctx)
}

// refresh reads the state of the stream behind the bucket, and its server's clock.
func (v *view) refresh(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, v.timeout)
	defer cancel()
	sent := time.Now()
	status, err := v.bucket.Status(ctx)
	if err != nil {
		return fmt.Errorf("bucket %q on %s cannot be read: %w", v.bucket.Bucket(), v.server(), err)
	}
	received := time.Now()
	s, ok := status.(interface{ StreamInfo() *jetstream.StreamInfo })
	if !ok || s.StreamInfo() == nil {
		return fmt.Errorf("bucket %q on %s does not describe the stream behind it", v.bucket.Bucket(), v.server())
	}
	v.stream = *s.StreamInfo()
	v.clock = readServerTime(v.stream.TimeStamp, sent, received)
	return nil
}

// ttl returns how long a lease lasts.
func (v *view) ttl() time.Duration { return v.stream.Config.MaxAge }

// leader returns who holds the key; ErrNoLeader if nobody does.
func (v *view) leader(ctx context.Context, key string) (*holder, error) {
	ctx, cancel := context.WithTimeout(ctx, v.timeout)
	defer cancel()
	l, err := v.observer.Leader(ctx, key)
	if err != nil {
		return nil, err
	}
	seen := v.sight(l)
	return &seen, nil
}

// paused returns the keys of the elections that an operator has paused.
func (v *view) paused(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, v.timeout)
	defer cancel()
	keys, err := v.admin.Paused(ctx)
	if err != nil {
		return nil, err
	}
	shown := make([]string, len(keys)) // in JSON none are an empty list
	for i, key := range keys {
		shown[i] = printable(key)
	}
	return shown, nil
}

// toldPatience is how long a consumer has to tell what stands in a bucket before the keys are read one by one.
const toldPatience = 2 * time.Second

// leaders returns who leads in each election of the bucket that has a leader.
func (v *view) leaders(ctx context.Context) ([]holder, error) {
	ctx, cancel := context.WithTimeout(ctx, v.timeout+toldPatience)
	defer cancel()
	leaders, err := v.told(ctx)
	if err != nil {
		leaders, err = v.read(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("elections of bucket %q on %s cannot be listed: %w", v.bucket.Bucket(), v.server(), err)
	}
	seen := []holder{} // in JSON none are an empty list, and no null
	for _, l := range leaders {
		if !otherwise(l) {
			seen = append(seen, v.sight(l))
		}
	}
	return seen, nil
}

// otherwise says whether a key holds something else than an election: an object that is no record, as groups keep their
// plan and their members. Of a long object the library shows only the beginning. No bare name looks so.
func otherwise(l election.Leader) bool {
	return l.Instance == "" && strings.HasPrefix(l.Name, `{"`)
}

// told has the leaders told by a consumer, which takes one request however many they are. There may be no permission for
// that, or the server that is to keep the consumer may just have gone, which is when people want to see most.
func (v *view) told(ctx context.Context) ([]election.Leader, error) {
	ctx, cancel := context.WithTimeout(ctx, min(v.timeout, toldPatience))
	defer cancel()
	return v.observer.Leaders(ctx)
}

// read reads the leaders key by key. Keys that no candidate could campaign for are left out.
func (v *view) read(ctx context.Context) ([]election.Leader, error) {
	prefix := "$KV." + v.bucket.Bucket() + "."
	stream, err := v.js.Stream(ctx, v.stream.Config.Name)
	if err != nil {
		return nil, err
	}
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(prefix+">"))
	if err != nil {
		return nil, err
	}
	var leaders []election.Leader
	for _, subject := range slices.Sorted(maps.Keys(info.State.Subjects)) {
		l, err := v.observer.Leader(ctx, strings.TrimPrefix(subject, prefix))
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
	standingLeader      = "leader"
	standingLeaderElect = "leader-elect"
	standingPlain       = "plain"
)

// holder is the holder of a key as it is shown. Its field names, and those of election.Leader, are documented in the
// help and stay as they are.
type holder struct {
	election.Leader
	State      string  `json:"state"`
	Token      string  `json:"token,omitempty"`
	ExpiresInS float64 `json:"expires_in_s"`

	age, left time.Duration // since it renewed, and until its key expires, by the server's clock
}

const holderHelp = `"key" (the election), "name", "instance", "host", "pid", "priority", "term", "bucket_created", "revision",
"started" (when the candidate started), "since" (when it won), "renewed", "expires" (RFC 3339), "metadata", "state" (leader;
leader-elect, whose leadership does not count yet; plain, a bare name as Choria's candidates write it, which does not say
whether leadership counts), "token" (the fencing token) and "expires_in_s" (by the server's clock). What is not known is left out`

// sight returns a leader as it is shown.
func (v *view) sight(l election.Leader) holder {
	now := v.clock.now()
	s := holder{Leader: shown(l), State: standingOf(l), age: max(now.Sub(l.Renewed), 0), left: l.Expires.Sub(now)}
	s.ExpiresInS = roundMS(s.left)
	if l.Term != 0 {
		s.Token = election.Term{BucketCreated: v.stream.Created, Number: l.Term}.Token()
	}
	return s
}

func standingOf(l election.Leader) string {
	switch {
	case l.Instance == "":
		return standingPlain
	case l.Term == 0:
		return standingLeaderElect
	}
	return standingLeader
}

// since returns since when the key is held, and for how long.
func (s *holder) since(now time.Time) string {
	if s.Since.IsZero() {
		return ""
	}
	return exactly(s.Since) + " (" + ago(now.Sub(s.Since)) + ")"
}

// remaining returns in words how long the key lasts unless it is renewed.
func (s *holder) remaining() string {
	if s.left < 0 {
		return "over for " + human(-s.left)
	}
	return human(s.left)
}

// found is the answer to the question who holds one key. Its field names stay as they are.
type found struct {
	Key    string  `json:"key"`
	Bucket string  `json:"bucket"`
	Leader *holder `json:"leader"` // null if nobody does
}

// checkKey refuses what cannot be the key of an election, before anything is begun. It may be a pattern if that is of use.
func checkKey(key string, pattern bool) error {
	plain := key
	if pattern {
		plain = withoutWildcards(key)
	}
	_, err := election.NewElection("name", plain, unbound{})
	if err != nil && pattern {
		return fmt.Errorf("%q is neither a key nor a pattern of keys: use letters, digits, and - _ = / with single dots between them, * for any one part, or > for all the rest", key)
	}
	return tidy(err)
}

// withoutWildcards returns a key that is as well formed as the pattern. A wildcard that is no part of its own stays, for
// it stands for nothing but itself.
func withoutWildcards(pattern string) string {
	parts := strings.Split(pattern, ".")
	for i, part := range parts {
		if part == "*" || part == ">" && i == len(parts)-1 {
			parts[i] = "x"
		}
	}
	return strings.Join(parts, ".")
}
