package serving

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/cli/look"
	"github.com/natscampaign/election/internal/cli/terminal"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/timeutil"
)

const (
	queryInterval      = 3 * time.Second        // the age at which the answer to a query is out of date
	observeRetryDelay  = 3 * time.Second        // the wait after the elections could not be observed
	refreshInterval    = 2 * time.Second        // how often a reader receives the page without a change
	minRefreshInterval = 200 * time.Millisecond // the minimum time between two refreshes of one reader
	writeTimeout       = 10 * time.Second       // the maximum time for a write to a reader
	maxReaders         = 32                     // the maximum number of readers that follow the events
	standbyInterval    = 10 * time.Second       // the age at which the number of standbys of an election is out of date
	maxUnanswered      = 5                      // how often candidates that do not answer are asked again soon
	maxStandbyQueries  = 100                    // the maximum number of elections whose candidates are asked at a time
)

// statusPage is a page about the elections of a bucket. It offers no request that changes anything.
type statusPage struct {
	name       string // of the candidate; empty if the page has none
	log        *slog.Logger
	ctx        context.Context // ends with the page
	cancel     context.CancelFunc
	readers    chan struct{}  // holds one element for each reader that follows the events
	background sync.WaitGroup // the goroutines that observe the elections and make queries

	candidate    atomic.Pointer[election.Election] // nil if the page has none
	view         atomic.Pointer[look.View]         // nil until the elections are observed
	elections    *elections
	bucketInfo   poll                   // asks the server about the bucket
	standbys     poll                   // asks candidates how many would take over
	mayNotAsk    atomic.Bool            // the server does not permit to ask candidates how many would take over
	watching     atomic.Bool            // a watcher follows the elections, or is about to
	observeError atomic.Pointer[string] // why the elections cannot be observed; nil if there was no error since the last success

	mu        sync.Mutex         // guards what follows, and the start of goroutines
	following followed           // what the page observes
	stop      context.CancelFunc // ends the observation
}

// followed is a bucket on a connection.
type followed struct {
	client *cli.Client
	bucket *election.Bucket
	ctx    context.Context // ends with the observation
}

// newBucketPage returns a page about all elections of a bucket, those that are expected among them, or only about the one of the key unless
// that is empty. The rest is as for newStatusPage.
func newBucketPage(key string, expected []string, log *slog.Logger) *statusPage {
	p := &statusPage{log: log, readers: make(chan struct{}, maxReaders), elections: newElections(key, expected), stop: func() {}}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p
}

// Metrics returns the metrics of the elections that the page observes.
func (p *statusPage) Metrics() prometheus.Collector { return observed{p} }

// newStatusPage returns a page about the election of a candidate, which Handler serves. Until Follow is called and the NATS server answers,
// the page says that it waits for the server. Its candidate never starts; Follow replaces the candidate.
func newStatusPage(name, key string, log *slog.Logger) (*statusPage, error) {
	e, err := election.NewElection(name, key, cli.PlaceholderBucket{})
	if err != nil {
		return nil, err
	}
	p := newBucketPage(key, nil, log)
	p.name = name
	p.candidate.Store(e)
	return p, nil
}

// Follow shows the elections of the bucket from now on, until ctx ends. If they cannot be observed, Follow tries again. The candidate is nil
// on a page that has none. A candidate may follow another in the same bucket.
func (p *statusPage) Follow(ctx context.Context, client *cli.Client, bucket *election.Bucket, candidate *election.Election) {
	if candidate != nil {
		p.candidate.Store(candidate)
	}
	p.mu.Lock()
	now := followed{client, bucket, ctx}
	if p.following == now {
		p.mu.Unlock()
		return
	}
	p.stop()
	ctx, stop := context.WithCancel(ctx)
	p.following, p.stop = now, stop
	p.mu.Unlock()
	context.AfterFunc(p.ctx, stop)
	p.start(func() {
		defer p.stopObserving(now)
		p.keepObserving(ctx, client, bucket)
	})
}

// start runs a function in the background, and reports whether it does: not after Stop.
func (p *statusPage) start(f func()) bool {
	p.mu.Lock() // so that nothing starts after Wait
	defer p.mu.Unlock()
	if p.ctx.Err() != nil {
		return false
	}
	p.background.Go(f)
	return true
}

// stopObserving records that the bucket is not observed any more, unless another one is.
func (p *statusPage) stopObserving(f followed) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.following == f {
		p.following = followed{}
		p.view.Store(nil)
		p.elections.stopObserving()
	}
}

// keepObserving observes the elections until ctx ends.
func (p *statusPage) keepObserving(ctx context.Context, client *cli.Client, bucket *election.Bucket) {
	for {
		err := p.observe(ctx, client, bucket)
		if ctx.Err() != nil {
			return
		}
		if text := terminal.Printable(err.Error()); p.observeError.Swap(&text) == nil {
			p.log.Warn("Cannot observe elections for the status page, trying again", "error", kv.Describe(err))
		}
		if timeutil.Pause(ctx, observeRetryDelay) != nil {
			return
		}
	}
}

// observe adds the events of the elections to their histories. It returns an error when ctx ends or the elections cannot be observed.
func (p *statusPage) observe(ctx context.Context, client *cli.Client, bucket *election.Bucket) error {
	var keys []string
	if p.elections.only != "" {
		keys = []string{p.elections.only}
	}
	v, events, err := look.Observe(ctx, client, bucket, p.log, func(err error) { p.watching.Store(err == nil) }, keys...)
	if err != nil {
		return err
	}
	p.observeError.Store(nil)
	p.mayNotAsk.Store(false)
	p.view.Store(v)
	p.elections.startObserving(v.Clock)
	if ended, err := v.Ended(ctx, keys...); err == nil {
		p.elections.setEnded(ended)
	}
	for e := range events {
		p.elections.add(e)
	}
	return ctx.Err()
}

// askCandidates asks the candidates of an election for their state if the last answer is old, or a transition has come since. It waits for the
// answers if wait is set.
func (p *statusPage) askCandidates(ctx context.Context, key string, wait bool) {
	v := p.view.Load()
	p.elections.mu.Lock()
	e := p.elections.byKey[key]
	if v == nil || e == nil {
		p.elections.mu.Unlock()
		return
	}
	after := e.lastTransition
	p.elections.mu.Unlock()
	e.query.ask(ctx, p, after, wait, func(ctx context.Context) {
		list, err := v.Admin.Candidates(ctx, key)
		p.elections.setCandidates(e, answer{list, err})
	})
}

// askBucket asks the server for the TTL of the bucket and which elections are paused. If it does not answer, the page shows what it knew.
func (p *statusPage) askBucket(ctx context.Context, wait bool) {
	v := p.view.Load()
	if v == nil {
		return
	}
	p.bucketInfo.ask(ctx, p, time.Time{}, wait, func(ctx context.Context) {
		if info, err := kv.With(v.Bucket, nil).Load(ctx); err == nil {
			p.elections.setInfo(info)
		}
	})
}

// askStandbys asks the candidates of some elections how many would take over, those first that were asked the longest ago. It does not wait
// for the answers: rows that change are sent to the readers.
func (p *statusPage) askStandbys() {
	v := p.view.Load()
	if v == nil || p.mayNotAsk.Load() || p.notice() != "" {
		return
	}
	p.standbys.begin(p, time.Time{}, func(ctx context.Context) {
		holders := p.elections.longestUnasked(maxStandbyQueries, standbyInterval)
		p.mayNotAsk.Store(v.CountStandbys(ctx, holders))
		v.ConfirmAlone(ctx, holders)
		p.elections.setStandbys(holders)
	})
}

// observes reports whether the page learns of each change.
func (p *statusPage) observes() bool {
	return p.view.Load() != nil && p.notice() == ""
}

// notice says why the page may be out of date; empty if it is not.
func (p *statusPage) notice() string {
	v := p.view.Load()
	switch {
	case v == nil:
	case !v.Conn.IsConnected():
		return "The NATS server cannot be reached: this is the last known state"
	case !p.watching.Load():
		return "The elections cannot be observed at the moment: this is the last known state"
	}
	return ""
}

// bucketName returns the name of the bucket; empty while it is not known.
func (p *statusPage) bucketName() string {
	if v := p.view.Load(); v != nil {
		return v.Bucket.Bucket()
	}
	return ""
}

// Stop stops the page, and waits until all goroutines of the page have ended. Stop the server of the page first.
func (p *statusPage) Stop() {
	p.mu.Lock() // so that nothing starts after Wait
	p.cancel()
	p.mu.Unlock()
	p.background.Wait()
}
