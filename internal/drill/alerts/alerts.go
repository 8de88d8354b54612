// Package alerts provokes the alerts of package dashboards, so that an operator sees each of them arrive before it is needed. Real
// candidates on servers in this process do what the alerts are about, each in an election of its own, whose key is the name of the alert.
//
//	alerts.go    the drill: servers, candidates and metrics
//	provocations.go  what is done for each alert
//	bucket.go        buckets that do badly
package alerts

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/cli/embedded"
	"github.com/natscampaign/election/internal/settings"
	"github.com/natscampaign/election/internal/timeutil"
)

const (
	// BucketName is the name of the bucket of a drill.
	BucketName = "ALERT_DRILL"
	// ttl is short, so that leaders are elected soon, and long enough for a busy host.
	ttl = 4 * time.Second
	// pollInterval is how often the drill looks whether what it waits for has come.
	pollInterval = 50 * time.Millisecond
	// endTimeout is how long a candidate may take to end.
	endTimeout = 10 * time.Second
)

// Drill provokes alerts.
type Drill struct {
	Alerts   []string              // the alerts to provoke; all if empty
	Metrics  prometheus.Registerer // of the candidates
	Pace     time.Duration         // between two steps of a provocation, long enough for some scrapes
	Progress func(text string)     // is told what happens; may be nil
}

// Run provokes the alerts until ctx ends. It returns an error if a provocation fails.
func (d Drill) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	first, second, err := d.start(ctx)
	if err != nil {
		return err
	}
	defer first.stop()
	defer second.stop()
	var provocations sync.WaitGroup
	for _, p := range Provocations {
		if len(d.Alerts) > 0 && !slices.Contains(d.Alerts, p.Alert) {
			continue
		}
		provocations.Go(func() {
			fail := func(err error) {
				if err != nil && ctx.Err() == nil {
					cancel(fmt.Errorf("%s cannot be provoked: %w", p.Alert, err))
				}
			}
			s := &stage{site: first, other: second, Drill: d, ctx: ctx, fail: fail, key: p.Alert}
			defer s.end()
			fail(p.provoke(s))
			<-ctx.Done()
		})
	}
	provocations.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

// site is a server with a bucket.
type site struct {
	server *embedded.Server
	conn   *nats.Conn
	js     jetstream.JetStream
	bucket *election.Bucket
}

// start starts the servers of the drill. The second one has a bucket of the same name: a leader there is a second leader for who looks at metrics.
func (d Drill) start(ctx context.Context) (first, second *site, err error) {
	if first, err = newSite(ctx); err != nil {
		return nil, nil, err
	}
	if second, err = newSite(ctx); err != nil {
		first.stop()
		return nil, nil, err
	}
	return first, second, nil
}

func newSite(ctx context.Context) (*site, error) {
	server, err := embedded.Start(embedded.Config{})
	if err != nil {
		return nil, err
	}
	s := &site{server: server}
	if s.conn, err = nats.Connect(server.URL(), nats.Name("election-cli drill --alerts"), nats.MaxReconnects(-1), nats.ReconnectBufSize(-1)); err == nil {
		if s.js, err = jetstream.New(s.conn); err == nil {
			s.bucket, err = election.CreateBucket(ctx, s.js, election.BucketConfig{Name: BucketName, TTL: ttl, Storage: jetstream.MemoryStorage})
		}
	}
	if err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

func (s *site) stop() {
	if s.conn != nil {
		s.conn.Close()
	}
	s.server.Stop()
}

// stage is where one alert is provoked.
type stage struct {
	*site
	Drill
	other      *site
	ctx        context.Context
	fail       func(error) // ends the drill, unless the error is nil
	key        string
	candidates []*election.Election
}

// candidate starts a candidate in a bucket of a site. Its election has no standbys, so that it provokes no other alert.
func (s *stage) candidate(name string, bucket jetstream.KeyValue, opts ...election.Option) (*election.Election, error) {
	e, err := s.prepare(name, bucket, append([]election.Option{settings.WithoutStandbys}, opts...)...)
	if err == nil {
		s.begin(e)
	}
	return e, err
}

// prepare returns a candidate that has not started.
func (s *stage) prepare(name string, bucket jetstream.KeyValue, opts ...election.Option) (*election.Election, error) {
	opts = append([]election.Option{election.WithSplay(0), election.WithRegisterer(s.Metrics), election.WithLogger(slog.New(slog.DiscardHandler))}, opts...)
	return election.NewElection(name, s.key, bucket, opts...)
}

// begin starts a candidate, which end stops.
func (s *stage) begin(e *election.Election) {
	s.candidates = append(s.candidates, e)
	go func() { s.fail(e.Start(context.Background())) }() // it ends with the stage
}

// end stops the candidates.
func (s *stage) end() {
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	for _, e := range s.candidates {
		e.Stop()
	}
	for _, e := range s.candidates {
		_ = e.Shutdown(ctx) // its bucket ends with the drill
	}
}

// bare returns a handle of the bucket that does not know its connection.
func (s *stage) bare() jetstream.KeyValue { return s.bucket.KeyValue }

// until waits until a condition holds.
func (s *stage) until(holds func() bool) error {
	for !holds() {
		if err := timeutil.Pause(s.ctx, pollInterval); err != nil {
			return err
		}
	}
	return nil
}

// tell says what happens.
func (s *stage) tell(format string, a ...any) {
	if s.Progress != nil {
		s.Progress(s.key + ": " + fmt.Sprintf(format, a...))
	}
}
