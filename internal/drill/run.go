// Package drill rehearses failovers on one server, with candidates in this process, and measures how long each failover takes.
//
// Each candidate has its own connection, over a link that the drill can cut. Each round rehearses a first election, a handover, a crash and
// an eviction, one after the other, under a new key. A sampler asks all candidates each millisecond whether they lead. So the drill
// measures each time without a leader, and detects two leaders at once if both lead for longer than the time between two samples.
//
// A drill creates its own bucket, and removes the bucket even if the drill fails or is interrupted. If the drill cannot remove its bucket,
// it returns a [LeftoverError].
package drill

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/cli/embedded"
)

// Config says how large the drill is, and on which server it runs.
type Config struct {
	Candidates, Rounds, Replicas int
	TTL                          time.Duration
	Conn                         cli.ConnectionFlags
	Embedded                     bool      // run on an embedded server, and ignore the server of Conn
	Progress                     io.Writer // where to show the progress
}

// Run runs all rounds in a bucket of its own, and removes the bucket. It returns no rehearsal if the drill could not be completed. It
// returns a complete rehearsal and a [LeftoverError] if only the bucket could not be removed.
func (c Config) Run(ctx context.Context) (r *Rehearsal, err error) {
	if c.Embedded {
		server, err := embedded.Start(embedded.Config{})
		if err != nil {
			return nil, err
		}
		defer server.Stop()
		c.Conn = cli.FlagsForServer(server.URL(), c.Conn.Timeout)
	}
	operator, err := c.Conn.Connect(nats.Name("election-cli drill operator"), nats.MaxReconnects(-1), nats.ReconnectBufSize(-1))
	if err != nil {
		return nil, err
	}
	defer operator.Conn.Close()
	config := election.BucketConfig{Name: "ELECTION_DRILL_" + nuid.Next(), TTL: c.TTL, Replicas: c.Replicas}
	bucket, err := election.CreateBucket(ctx, operator.JetStream, config)
	if err != nil {
		if permanent := operator.PermanentError(config.Name, err); permanent != nil {
			err = permanent
		}
		if ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded) { // the server may have created the bucket although its reply is missing
			err = errors.Join(err, removeBucket(operator.JetStream, config.Name))
		}
		return nil, err
	}
	defer func() { err = errors.Join(err, removeBucket(operator.JetStream, config.Name)) }()

	f, err := newFleet(ctx, c.Conn, config.Name, c.Candidates)
	if err != nil {
		return nil, err
	}
	defer f.close()
	r = newRehearsal(c, operator, bucket, f)
	r.Report.Embedded = c.Embedded
	if err := r.run(ctx); err != nil { // figures of an incomplete drill would mislead
		return nil, err
	}
	return r, nil
}

// removeBucket removes the bucket of the drill. It takes no context, because it must also run after an interrupt.
func removeBucket(js jetstream.JetStream, name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
	defer cancel()
	err := js.DeleteKeyValue(ctx, name)
	if err == nil || errors.Is(err, jetstream.ErrBucketNotFound) {
		return nil
	}
	return LeftoverError{fmt.Errorf("cannot remove bucket %q of the drill: %w; remove the bucket with '%s'", name, err, cli.CommandForBucket("bucket rm", name))}
}

// LeftoverError is returned when a drill could not remove its bucket. Its message says how to remove the bucket.
type LeftoverError struct{ error }

// Limits of a [Config].
const (
	MinCandidates, MaxCandidates = 2, 50 // a failover needs a second candidate
	MaxRounds                    = 1000
	cleanupTimeout               = 5 * time.Second
)
