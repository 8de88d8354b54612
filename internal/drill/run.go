// Package drill rehearses failovers on one server, with candidates in this process, and measures how long each takes.
//
// Each candidate has a connection of its own over a link that can be cut. In every round a first election, a handover, a crash and an
// eviction follow each other under a new key. A sampler asks all candidates each millisecond whether they lead: it measures the time
// without a leader, and finds two leaders that lead at once for longer than a sample takes.
//
// A drill makes a bucket of its own and removes it in any case; what it could not remove is a [LeftoverError].
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
	"github.com/natscampaign/election/internal/embedded"
)

// Config says what to rehearse, and where.
type Config struct {
	Candidates, Rounds, Replicas int
	TTL                          time.Duration
	Conn                         cli.ConnFlags
	Embedded                     bool      // on a server of its own, wherever the connection leads
	Progress                     io.Writer // where the progress is shown
}

// Run goes through all rounds on a server, in a bucket of its own that is removed in any case.
func (d Config) Run(ctx context.Context) (r *Rehearsal, err error) {
	if d.Embedded {
		server, err := embedded.Start(embedded.Config{})
		if err != nil {
			return nil, err
		}
		defer server.Stop()
		d.Conn = cli.FlagsTo(server.URL(), d.Conn.Timeout)
	}
	operator, err := d.Conn.Connect(nats.Name("election-cli drill operator"), nats.MaxReconnects(-1), nats.ReconnectBufSize(-1))
	if err != nil {
		return nil, err
	}
	defer operator.Conn.Close()
	config := election.BucketConfig{Name: "ELECTION_DRILL_" + nuid.Next(), TTL: d.TTL, Replicas: d.Replicas}
	bucket, err := election.CreateBucket(ctx, operator.JetStream, config)
	if err != nil {
		if hopeless := operator.Permanent(config.Name, err); hopeless != nil {
			err = hopeless
		}
		if ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded) { // it may have been made all the same
			err = errors.Join(err, removeBucket(operator.JetStream, config.Name))
		}
		return nil, err
	}
	defer func() { err = errors.Join(err, removeBucket(operator.JetStream, config.Name)) }()

	f, err := newFleet(ctx, d.Conn, config.Name, d.Candidates)
	if err != nil {
		return nil, err
	}
	defer f.close()
	r = newRehearsal(d, operator, bucket, f)
	r.Report.Embedded = d.Embedded
	if err := r.run(ctx); err != nil { // its figures are worth nothing
		return nil, err
	}
	return r, nil
}

// removeBucket removes what the drill made, also after it was interrupted.
func removeBucket(js jetstream.JetStream, name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
	defer cancel()
	err := js.DeleteKeyValue(ctx, name)
	if err == nil || errors.Is(err, jetstream.ErrBucketNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	return LeftoverError{fmt.Errorf("bucket %q could not be removed, do so with '%s': %w", name, cli.CommandOn("bucket rm", name), err)}
}

// LeftoverError is an error that says what a drill could not remove.
type LeftoverError struct{ error }

const (
	MinCandidates, MaxCandidates = 2, 50
	MaxRounds                    = 1000
	cleanupTimeout               = 5 * time.Second
)
