package sim

import (
	"context"
	"errors"
	"time"

	"github.com/natscampaign/election"
)

// slot is a place in the fleet: a host with its link, on which one candidate runs after another.
type slot struct {
	index        int
	plan         *plan
	now          *candidate // nil if none was started yet, or the last crashed or was stopped
	started      int        // how many so far
	cutUntil     time.Time
	buffered     bool // whether the client keeps what is sent while the link is cut
	catchesUp    bool // whether watchers get what they missed
	stalledUntil time.Time
}

// candidate is one Election of the library, and what was seen of it.
type candidate struct {
	*election.Election
	w       *world
	slot    *slot
	plan    *plan
	number  int // of the slot's candidates, from 1
	name    string
	view    *view
	ledger  *ledger
	watcher *watcher // the last it made

	running bool
	wanted  bool // whether it is to run again should it return by itself
	crashed bool
	unread  bool // whether its reads of the key fail for good
	lost    bool // whether its requests for the state of the bucket do, so that it cannot come to lead
	closed  bool // whether its connection is closed
	cancel  context.CancelFunc
	calls   uint64 // of callbacks and work, for what happens now and then
}

// errWork is what work returns.
var errWork = errors.New("work failed")

// start lets the slot's candidate stand: the one that is there if its context had ended, else a new one.
func (w *world) start(s *slot) {
	c := s.now
	if c == nil || c.closed {
		s.started++
		c = &candidate{w: w, slot: s, plan: s.plan, number: s.started, name: s.plan.name}
		if s.started > 1 {
			c.name = s.plan.name + string(rune('0'+min(s.started, 9)))
		}
		c.unread = s.plan.unread
		c.view = &view{w: w, c: c}
		c.view.conn, c.view.disconnect = context.WithCancel(context.Background())
		c.ledger = w.judge.enlist(c.name, s.plan, w.script.ttl)
		var err error
		if c.Election, err = election.NewElection(c.name, electionKey, c.view, c.options()...); err != nil {
			panic("sim: " + err.Error())
		}
		c.ledger.status, c.ledger.heard = c.Election, c.heard
		s.now = c
		w.candidates = append(w.candidates, c)
	}
	if c.running {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	c.running, c.wanted, c.cancel = true, true, cancel
	w.judge.started(c.ledger)
	w.note(c.name, "starts")
	w.runs.Add(1)
	go c.run(ctx)
}

// able says whether the candidate of the slot is one that can come to lead.
func (s *slot) able() bool {
	c := s.now
	return c != nil && c.running && c.wanted && !c.lost && !c.closed
}

// heard returns the last that the watcher in use told, when, and what it told before.
func (c *candidate) heard() (told *entry, at time.Time, before *entry) {
	if c.watcher == nil || c.watcher.ended {
		return nil, time.Time{}, nil
	}
	return c.watcher.heard, c.watcher.heardAt, c.watcher.before
}

// options are those of the plan.
func (c *candidate) options() []election.Option {
	p := c.plan
	opts := []election.Option{
		election.OnWon(func() { c.callback("OnWon", p.won) }),
		election.OnLost(func() { c.callback("OnLost", p.lost) }),
		election.OnLeaderChange(func(l election.Leader) {
			w := c.w
			w.mu.Lock()
			defer w.mu.Unlock()
			w.judge.announced(c.ledger, l, time.Now())
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
	if p.campaign > 0 {
		opts = append(opts, election.OnCampaign(func(election.State) { c.callback("OnCampaign", p.campaign) }))
	}
	if p.backoff > 0 {
		opts = append(opts, election.WithBackoff(election.ConstantBackoff(p.backoff)))
	}
	if p.plain {
		opts = append(opts, election.WithPlainValue())
	}
	if p.fair {
		opts = append(opts, election.WithFairness())
	}
	return opts
}

// run is one call of Start or Run.
func (c *candidate) run(ctx context.Context) {
	defer c.w.runs.Done()
	var err error
	if c.plan.works {
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
	w.journal.add(event{at: time.Now(), who: c.name, what: "returned", note: note})
	if !c.crashed {
		w.judge.returned(c.ledger, err, !c.wanted, time.Now())
	}
	if c.wanted && c.slot.now == c && !w.closing { // its work has returned
		time.AfterFunc(w.script.ttl/10, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			if c.wanted && c.slot.now == c && !w.closing {
				w.start(c.slot)
			}
		})
	}
}

// callback is what each callback does: it is noted, takes its time, and panics now and then.
func (c *candidate) callback(which string, takes time.Duration) {
	w := c.w
	w.mu.Lock()
	w.judge.called(c.ledger, which, time.Now())
	w.journal.add(event{at: time.Now(), who: c.name, what: which})
	c.calls++
	panics := c.plan.panics && c.calls%3 == 0
	w.mu.Unlock()
	c.view.thaw()
	w.linger(takes)
	c.view.thaw()
	w.mu.Lock()
	w.judge.answered(c.ledger, which, time.Now())
	if panics {
		w.count("callback panicked")
	}
	w.mu.Unlock()
	if panics {
		panic("sim: a callback panics")
	}
}

// work goes on until it is told to stop, and a little longer; or it returns by itself.
func (c *candidate) work(ctx context.Context, t election.Term) error {
	w := c.w
	c.view.thaw()
	w.mu.Lock()
	w.journal.add(event{at: time.Now(), who: c.name, what: "work begins in term", a: t.Number})
	w.judge.worksOn(c.ledger, t, ctx)
	w.observe()
	quiet := w.quiet
	w.mu.Unlock()

	var quits <-chan time.Time
	if c.plan.quits > 0 && !quiet {
		quits = time.After(c.plan.quits)
	}
	var err error
	select {
	case <-ctx.Done():
		c.view.thaw()
		w.linger(c.plan.linger)
	case <-quits:
		err = errWork
	}
	c.view.thaw()
	w.mu.Lock()
	c.calls++
	panics := c.plan.panics && c.calls%3 == 0 && err != nil
	w.journal.add(event{at: time.Now(), who: c.name, what: "work returns"})
	w.judge.idle(c.ledger)
	w.mu.Unlock()
	if panics {
		panic("sim: work panics")
	}
	return err
}

// linger takes its time, but none of the quiet.
func (w *world) linger(d time.Duration) {
	w.mu.Lock()
	d = min(d, time.Until(w.troubleEnds))
	w.mu.Unlock()
	if d > 0 {
		time.Sleep(d)
	}
}

// stop ends a candidate for good, in the background.
func (w *world) stop(c *candidate) {
	c.wanted, c.slot.now = false, nil
	w.judge.leaves(c.ledger)
	w.runs.Add(1)
	go func() {
		defer w.runs.Done()
		c.Stop()
	}()
}

// disconnect closes the connection of a candidate for good.
func (w *world) disconnect(c *candidate) {
	c.closed = true
	c.view.disconnect()
	for _, x := range w.server.ears {
		if x.v == c.view {
			x.end()
		}
	}
	w.judge.disconnected(c.ledger, time.Now())
}

// crash makes an end of a candidate: nothing of it is sent any more, nor counts.
func (w *world) crash(c *candidate) {
	c.crashed, c.ledger.crashed = true, true
	w.stop(c)
}
