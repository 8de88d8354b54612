// Package statuspage has a web page about one election: its leader, its candidates, and the events of the last hour. Server-sent events
// update the page at each change.
//
// The page is read-only, and has no password of its own. It shows all text from other candidates escaped and printable. It queries the candidates
// only while a reader requests the page or follows the events, and limits the number of readers that follow the events at once. It also
// serves the handler of the candidate at /leader and /healthz, for load balancers and probes.
package statuspage

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/admin"
	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/look"
	"github.com/natscampaign/election/internal/terminal"
	"github.com/natscampaign/election/internal/timeutil"
)

const (
	queryInterval      = 3 * time.Second        // the age at which the list of candidates is out of date
	observeRetryDelay  = 3 * time.Second        // the wait after the election could not be observed
	refreshInterval    = 2 * time.Second        // how often a reader receives the page without a change
	minRefreshInterval = 200 * time.Millisecond // the minimum time between two refreshes of one reader
	writeTimeout       = 10 * time.Second       // the maximum time for a write to a reader
	maxReaders         = 32                     // the maximum number of readers that follow the events
)

// Page is a status page about one election. It offers no request that changes anything.
type Page struct {
	name, key  string
	log        *slog.Logger
	ctx        context.Context // ends with the page
	cancel     context.CancelFunc
	readers    chan struct{}  // holds one element for each reader that follows the events
	background sync.WaitGroup // the goroutines that observe the election and query its candidates

	candidate    atomic.Pointer[election.Election]
	view         atomic.Pointer[look.View] // nil until the election is observed
	history      *history
	observeError atomic.Pointer[string] // why the election cannot be observed; nil if there was no error since the last success

	mu            sync.Mutex
	query         chan struct{} // closed when the current query of the candidates ends; nil without a query
	queriedAt     time.Time     // when the last completed query began
	candidates    []admin.Candidate
	candidatesErr error // why the last query failed
}

// New returns a page, which [Page.Handler] serves. Until [Page.Follow] is called and the NATS server answers, the page says that it waits for the
// server. Its candidate never starts; Follow replaces the candidate.
func New(name, key string, log *slog.Logger) (*Page, error) {
	e, err := election.NewElection(name, key, cli.PlaceholderBucket{})
	if err != nil {
		return nil, cli.AsFlagError(err)
	}
	p := &Page{name: name, key: key, log: log, readers: make(chan struct{}, maxReaders), history: newHistory()}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.candidate.Store(e)
	return p, nil
}

// Follow shows the election of a candidate from now on. If the election cannot be observed, Follow tries again until the page stops.
func (p *Page) Follow(s *cli.Client, bucket *election.Bucket, e *election.Election) {
	p.candidate.Store(e)
	p.background.Go(func() {
		for {
			err := p.observe(s, bucket)
			if p.ctx.Err() != nil {
				return
			}
			if text := terminal.Printable(err.Error()); p.observeError.Swap(&text) == nil {
				p.log.Warn("Cannot observe the election for the status page, trying again", "error", kv.Describe(err))
			}
			if timeutil.Pause(p.ctx, observeRetryDelay) != nil {
				return
			}
		}
	})
}

// observe adds the events of the election to the history. It returns an error when the page stops or the election cannot be observed.
func (p *Page) observe(s *cli.Client, bucket *election.Bucket) error {
	v, err := look.New(p.ctx, s, bucket, election.WithLogger(p.log))
	if err != nil {
		return err
	}
	events, err := v.Observer.Observe(p.ctx, p.key)
	if err != nil {
		return err
	}
	p.observeError.Store(nil)
	p.view.Store(v)
	p.history.startObserving(v.Clock)
	for e := range events {
		p.history.add(e)
	}
	return p.ctx.Err()
}

// listCandidates returns the candidates that answered the last query. If that query is too old, or older than the last transition,
// listCandidates starts another one. It waits for the new answers if wait is set, or if there was no query before. Otherwise it returns the
// old answers, and notifies the readers when the new answers arrive.
func (p *Page) listCandidates(ctx context.Context, wait bool) ([]admin.Candidate, error) {
	v := p.view.Load()
	if v == nil {
		return nil, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	outdated := time.Since(p.queriedAt) >= queryInterval || p.queriedAt.Before(p.history.transitionTime())
	if outdated && p.query == nil && p.ctx.Err() == nil {
		p.query = make(chan struct{})
		p.background.Go(func() { p.queryCandidates(v) })
	}
	if query := p.query; query != nil && (wait || p.queriedAt.IsZero()) {
		p.mu.Unlock()
		select {
		case <-query:
		case <-ctx.Done():
		}
		p.mu.Lock()
	}
	return p.candidates, p.candidatesErr
}

// queryCandidates queries the candidates once, for all readers.
func (p *Page) queryCandidates(v *look.View) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(p.ctx, queryInterval)
	defer cancel()
	candidates, err := v.Admin.Candidates(ctx, p.key)
	p.mu.Lock()
	p.queriedAt, p.candidates, p.candidatesErr = began, candidates, err
	close(p.query)
	p.query = nil
	p.mu.Unlock()
	p.history.notify()
}

// Stop stops the page, and waits until all goroutines of the page have ended. Stop the server of the page first.
func (p *Page) Stop() {
	p.mu.Lock() // so that no query starts after Wait
	p.cancel()
	p.mu.Unlock()
	p.background.Wait()
}
