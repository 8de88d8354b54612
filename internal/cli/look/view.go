// Package look reads the state of elections for operators: the bucket, its replicas and its findings; the leader of each
// election; and which candidates claim to lead. It follows the events of elections, and waits for a leader or a vacancy.
//
// The package never writes. It measures ages by the clock of the server that stamps the records. It makes untrusted text
// printable before it returns a Holder, a BucketInfo or a finding; PrintableLeader does the same for the leader of an event.
package look

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/admin"
	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/cli/terminal"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/natural"
	"github.com/natscampaign/election/internal/session"
	"github.com/natscampaign/election/observe"
)

// View is a bucket of elections. Refresh updates the state of its stream and the clock of its server.
type View struct {
	*cli.Client
	Bucket   *election.Bucket
	Observer *observe.Observer
	Admin    *admin.Admin
	Clock    ServerClock
	info     kv.Info // describes the stream
}

// Open connects and returns a View of the bucket that the flags name. An unreachable server and a missing bucket are errors
// at once. The caller must close the connection of the View.
func Open(ctx context.Context, e *cli.Env, command string) (v *View, err error) {
	client, err := e.Connect(command)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			client.Conn.Close()
		}
	}()
	bucket, err := client.OpenBucket(ctx, e.Bucket)
	if err != nil {
		return nil, err
	}
	return New(ctx, client, bucket)
}

// New returns a View of the bucket.
func New(ctx context.Context, client *cli.Client, bucket *election.Bucket, opts ...election.Option) (*View, error) {
	observer, err := observe.New(bucket, opts...)
	if err != nil {
		return nil, err
	}
	operator, err := admin.New(bucket, opts...)
	if err != nil {
		return nil, err
	}
	v := &View{Client: client, Bucket: bucket, Observer: observer, Admin: operator}
	return v, v.Refresh(ctx)
}

// Refresh reads the state of the stream behind the bucket, and the server's clock.
func (v *View) Refresh(ctx context.Context) error {
	info, err := v.LoadInfo(ctx, v.Bucket)
	if err != nil {
		return err
	}
	v.info, v.Clock = info, ServerClockOf(info)
	return nil
}

// TTL returns the TTL of the bucket, or of the sessions in it, which is the length of a lease.
func (v *View) TTL() time.Duration { return v.info.LeaseTTL() }

// ForSessions reports whether the bucket is one for sessions.
func (v *View) ForSessions() bool { return v.info.SessionTTL > 0 }

// Remembers reports whether the releases of elections never expire.
func (v *View) Remembers() bool { return v.info.Remembers }

// Leader returns the holder of the key, or election.ErrNoLeader.
func (v *View) Leader(ctx context.Context, key string) (*Holder, error) {
	ctx, cancel := context.WithTimeout(ctx, v.Timeout)
	defer cancel()
	sent := time.Now()
	l, err := v.Observer.Leader(ctx, key)
	if err != nil {
		return nil, err
	}
	h := v.NewHolder(l, sent)
	return &h, nil
}

// Paused returns the keys of the elections that an operator had paused at the last Refresh, in natural order.
func (v *View) Paused() []string {
	printable := []string{} // not nil, which JSON would encode as null
	for _, key := range slices.SortedFunc(maps.Keys(v.info.Paused), natural.Compare) {
		printable = append(printable, terminal.Printable(key))
	}
	return printable
}

// IsPaused reports whether an operator had paused the election at the last Refresh.
func (v *View) IsPaused(key string) bool {
	_, paused := v.info.Paused[key]
	return paused
}

// DescribePause says that an operator had paused the election at the last Refresh, since when, and which operator by its own account, as in
// "paused since 2026-11-22 20:08:52 by alice@ops-1". It returns an empty string for an election that is not paused.
func (v *View) DescribePause(key string) string {
	pause, paused := v.info.Paused[key]
	if !paused {
		return ""
	}
	return "paused" + OriginOf(pause)
}

// OriginOf says since when an election is paused, and by whom, as far as the metadata says it.
func OriginOf(p kv.Pause) (text string) {
	if !p.Since.IsZero() {
		text += " since " + p.Since.Local().Format(time.DateTime)
	}
	if p.By != "" {
		text += " by " + terminal.Printable(p.By)
	}
	return text
}

// ExplainPause is DescribePause with what follows from the pause, and what ends it.
func (v *View) ExplainPause(key string) string {
	pause := v.DescribePause(key)
	if pause == "" {
		return ""
	}
	return fmt.Sprintf("%s, and no candidate campaigns until %s", pause, v.NameCommand("resume "+key))
}

// NameCommand names a command on the bucket in a text, in quotes.
func (v *View) NameCommand(command string) string { return cli.NameCommand(command, v.info.Bucket) }

// NobodyLeads returns the error for an election without a leader. It says who led last, until when, and why that ended, if that is known.
func (v *View) NobodyLeads(ctx context.Context, key string) *cli.ExitError {
	message := fmt.Sprintf("nobody leads %q in bucket %q on %s", key, v.Bucket.Bucket(), v.ServerURL())
	if e, known := v.LastEnd(ctx, key); known {
		message += "; " + v.DescribeEnd(e)
	}
	if pause := v.ExplainPause(key); pause != "" {
		message += "; it is " + pause
	} else {
		message += fmt.Sprintf("; %s says why", v.NameCommand("check "+key))
	}
	return cli.Negative("%s", message)
}

// PausedVacancies returns an entry for each paused election that is not among the given ones: nobody leads it.
func (v *View) PausedVacancies(led []Holder) (vacant []Holder) {
	for _, key := range v.Paused() {
		if !slices.ContainsFunc(led, func(h Holder) bool { return h.Key == key }) {
			vacant = append(vacant, Holder{Leader: election.Leader{Key: key}, State: StateVacant, Paused: true})
		}
	}
	return vacant
}

// consumerTimeout is the time after which Leaders stops waiting for a consumer, and reads the keys one by one.
const consumerTimeout = 2 * time.Second

// Leaders returns the holder of each key in the bucket that has one, in the natural order of the keys.
func (v *View) Leaders(ctx context.Context) ([]Holder, error) {
	ctx, cancel := context.WithTimeout(ctx, v.Timeout+consumerTimeout)
	defer cancel()
	holders, err := v.leadersByConsumer(ctx)
	if err != nil {
		holders, err = v.leadersByKey(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("elections of bucket %q on %s cannot be listed: %w", v.Bucket.Bucket(), v.ServerURL(), err)
	}
	slices.SortStableFunc(holders, func(a, b Holder) int { return natural.Compare(a.Key, b.Key) })
	return holders, nil
}

// leadersByConsumer reads all leaders with one consumer. That fails without the permission to create a consumer, and while
// the server that should run the consumer is down.
func (v *View) leadersByConsumer(ctx context.Context) ([]Holder, error) {
	ctx, cancel := context.WithTimeout(ctx, min(v.Timeout, consumerTimeout))
	defer cancel()
	sent := time.Now()
	leaders, err := v.Observer.Leaders(ctx)
	holders := []Holder{} // not nil, which JSON would encode as null
	for _, l := range leaders {
		holders = v.appendHolder(holders, l, sent)
	}
	return holders, err
}

// leadersByKey reads the leaders key by key. It skips keys for which no candidate can campaign.
func (v *View) leadersByKey(ctx context.Context) ([]Holder, error) {
	keys, err := kv.With(v.Bucket, nil).StoredKeys(ctx, ">")
	if err != nil {
		return nil, err
	}
	holders := []Holder{} // not nil, which JSON would encode as null
	for _, key := range keys {
		if v.ForSessions() {
			claimed, is := session.ClaimOf(key)
			if !is {
				continue
			}
			key = claimed
		}
		sent := time.Now()
		l, err := v.Observer.Leader(ctx, key)
		switch {
		case err == nil:
			holders = v.appendHolder(holders, l, sent)
		case !errors.Is(err, election.ErrNoLeader) && !errors.Is(err, election.ErrInvalidOption):
			return nil, err
		}
	}
	return holders, nil
}

// appendHolder appends the holder for a leader, unless its key holds other data.
func (v *View) appendHolder(holders []Holder, l election.Leader, sent time.Time) []Holder {
	if IsOtherData(l) {
		return holders
	}
	return append(holders, v.NewHolder(l, sent))
}
