package sim

import (
	"context"
	"errors"
	"time"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/replay"
	"github.com/natscampaign/election/internal/settings"
	"github.com/natscampaign/election/internal/sim/judge"
)

// slot is a host with its link, on which one candidate runs after another.
type slot struct {
	index       int
	plan        *plan
	current     *candidate // nil if none was started yet, or the last one crashed or was stopped
	started     int        // how many candidates so far
	cutUntil    time.Time
	buffered    bool // whether the client keeps its messages while the link is cut
	catchesUp   bool // whether watchers receive afterwards what they missed
	frozenUntil time.Time
}

// able reports whether the candidate of the slot can come to lead.
func (s *slot) able() bool {
	c := s.current
	return c != nil && c.running && c.wanted && !c.noStatus && !c.closed
}

// candidate is one Election of the library.
type candidate struct {
	*election.Election
	w       *world
	slot    *slot
	plan    *plan
	number  int // among the slot's candidates, from 1
	name    string
	view    *view
	ledger  *judge.Ledger
	watcher *watcher // its latest

	running  bool
	wanted   bool // whether it restarts if its run returns by itself
	crashed  bool
	noRead   bool // its reads of the key fail for good
	noStatus bool // its requests for the state of the bucket fail for good, so it cannot come to lead
	closed   bool // its connection is closed for good
	cancel   context.CancelFunc
	calls    uint64 // of callbacks and work; every third may panic
}

// errWork is the error that work returns by itself.
var errWork = errors.New("work failed")

// start starts the slot's candidate again if its context had ended, else a new one.
func (w *world) start(s *slot) {
	c := s.current
	if c == nil || c.closed {
		c = w.newCandidate(s)
	}
	if c.running {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	c.running, c.wanted, c.cancel = true, true, cancel
	c.ledger.Started()
	w.note(c.name, "starts")
	w.trace.Note(c.ledger, replay.Starts)
	w.runs.Add(1)
	go c.run(ctx)
}

func (w *world) newCandidate(s *slot) *candidate {
	s.started++
	c := &candidate{w: w, slot: s, plan: s.plan, number: s.started, name: s.plan.name}
	if s.started > 1 {
		c.name = s.plan.name + string(rune('0'+min(s.started, 9)))
	}
	c.noRead = s.plan.noRead
	c.view = &view{w: w, c: c}
	c.view.conn, c.view.disconnect = context.WithCancel(context.Background())
	c.ledger = w.judge.Add(judge.Candidate{
		Name: c.name, Margin: s.plan.marginOf(w.script.ttl), StandDown: s.plan.standDownOf(w.script.ttl), Interval: s.plan.intervalOf(w.script.ttl),
		Plain: s.plan.plain, NoRead: s.plan.noRead, Reports: c, Notified: c.notified,
	})
	var err error
	if c.Election, err = election.NewElection(c.name, electionKey, c.view, c.options()...); err != nil {
		panic("sim: " + err.Error())
	}
	s.current = c
	w.trace.Add(c.ledger)
	w.candidates = append(w.candidates, c)
	return c
}

// notified returns the last entry that the present watcher delivered, when, and the entry before.
func (c *candidate) notified() (last *judge.Entry, at time.Time, previous *judge.Entry) {
	if c.watcher == nil || c.watcher.ended {
		return nil, time.Time{}, nil
	}
	return c.watcher.last, c.watcher.lastAt, c.watcher.previous
}

// options returns the options of the plan.
func (c *candidate) options() []election.Option {
	p := c.plan
	opts := []election.Option{
		election.OnWon(func() { c.callback("OnWon", p.onWon) }),
		election.OnLost(func() { c.callback("OnLost", p.onLost) }),
		election.OnLeaderChange(func(l election.Leader) {
			c.w.mu.Lock()
			defer c.w.mu.Unlock()
			c.w.judge.LeaderReported(c.ledger, l, time.Now())
		}),
	}
	for _, o := range []struct {
		value time.Duration
		with  func(time.Duration) election.Option
	}{
		{p.standDown, election.WithStandDown}, {p.interval, election.WithCampaignInterval}, {p.margin, election.WithLeaseMargin},
		{p.splay, election.WithSplay}, {p.releaseTimeout, election.WithReleaseTimeout},
	} {
		if o.value >= 0 {
			opts = append(opts, o.with(o.value))
		}
	}
	if p.onCampaign > 0 {
		opts = append(opts, election.OnCampaign(func(election.State) { c.callback("OnCampaign", p.onCampaign) }))
	}
	if p.backoff > 0 {
		opts = append(opts, election.WithBackoff(election.ConstantBackoff(p.backoff)))
	}
	if p.plain {
		opts = append(opts, election.WithPlainValue())
	}
	if p.byArrival {
		opts = append(opts, settings.ByArrival.(election.Option))
	}
	return opts
}

// run is one call of Start or Run.
func (c *candidate) run(ctx context.Context) {
	defer c.w.runs.Done()
	var err error
	if c.plan.hasWork {
		err = c.Run(ctx, c.work)
	} else {
		err = c.Start(ctx)
	}
	w := c.w
	w.mu.Lock()
	defer w.mu.Unlock()
	c.cancel()
	c.running = false
	note := ""
	if err != nil {
		note = err.Error()
	}
	w.journal.Add(judge.Event{At: time.Now(), Name: c.name, What: "returned", Note: note})
	w.trace.Note(c.ledger, replay.Ends)
	if !c.crashed {
		w.judge.Returned(c.ledger, err, !c.wanted, time.Now())
	}
	wanted := func() bool { return c.wanted && c.slot.current == c && !w.closing }
	if wanted() { // its work has returned by itself
		time.AfterFunc(w.script.ttl/10, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			if wanted() {
				w.start(c.slot)
			}
		})
	}
}

// callback plays a callback: it takes its time, and panics now and then.
func (c *candidate) callback(name string, takes time.Duration) {
	w := c.w
	w.mu.Lock()
	w.judge.CallbackBegan(c.ledger, name, time.Now())
	w.note(c.name, name)
	c.calls++
	panics := c.plan.panics && c.calls%3 == 0
	w.mu.Unlock()
	c.view.awaitThaw()
	w.spend(takes)
	c.view.awaitThaw()
	w.mu.Lock()
	w.judge.CallbackReturned(c.ledger, name, time.Now())
	if panics {
		w.count("callback panicked")
	}
	w.mu.Unlock()
	if panics {
		panic("sim: a callback panics")
	}
}

// work goes on until its context ends and a little longer, or returns by itself.
func (c *candidate) work(ctx context.Context, t election.Term) error {
	w := c.w
	c.view.awaitThaw()
	w.mu.Lock()
	w.journal.Add(judge.Event{At: time.Now(), Name: c.name, What: "work begins in term", A: t.Number})
	w.judge.WorkBegan(c.ledger, t, ctx)
	w.observe()
	quiet := w.quiet
	w.mu.Unlock()

	var returns <-chan time.Time
	if c.plan.workReturns > 0 && !quiet {
		returns = time.After(c.plan.workReturns)
	}
	var err error
	select {
	case <-ctx.Done():
		c.view.awaitThaw()
		w.spend(c.plan.workLingers)
	case <-returns:
		err = errWork
	}
	c.view.awaitThaw()
	w.mu.Lock()
	c.calls++
	panics := c.plan.panics && c.calls%3 == 0 && err != nil
	w.note(c.name, "work returns")
	w.judge.WorkReturned(c.ledger)
	if c.ledger.MayGiveUp() {
		w.trace.Note(c.ledger, replay.Resigns)
	}
	w.mu.Unlock()
	if panics {
		panic("sim: work panics")
	}
	return err
}

// spend takes some time, but none of the quiet.
func (w *world) spend(d time.Duration) {
	w.mu.Lock()
	d = min(d, time.Until(w.troubleEnds))
	w.mu.Unlock()
	if d > 0 {
		time.Sleep(d)
	}
}
