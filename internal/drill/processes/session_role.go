package processes

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/cli/events"
	"github.com/natscampaign/election/internal/drill/history"
	"github.com/natscampaign/election/internal/timeutil"
	"github.com/natscampaign/election/session"
)

// KeyNames returns the keys in the history of a candidate: those of its session, or else the empty one.
func (c *CandidateConfig) KeyNames() []string {
	if c.Keys == 0 {
		return []string{""}
	}
	var names []string
	for n := range c.Keys {
		names = append(names, fmt.Sprintf("%s-%02d", Key, n+1))
	}
	return names
}

// lead opens a session and campaigns for all its keys until ctx ends. It is to a session what campaign is to an election.
func (c *CandidateConfig) lead(ctx context.Context, client *cli.Client, h *history.Writer, handler slog.Handler, requests <-chan string) error {
	log := slog.New(handler)
	var opts []election.Option
	w, err := c.witness(log)
	if err != nil {
		return err
	}
	defer w.Close()
	opts = append(opts, w.Option())
	s, err := c.open(ctx, client, append(opts, election.WithLogger(log)), log)
	if err != nil {
		return cli.IgnoreIfDone(ctx, err)
	}
	requested := func() uint64 { return s.Status().Requests }
	var samplers []*sampler
	var works []func(context.Context, election.Term) error
	elections := map[string]*election.Election{}
	for n, key := range c.KeyNames() {
		e, err := s.Election(key, election.WithLogger(slog.New(&events.Handler{Next: handler, Take: changesTo(h, key)})))
		if err != nil {
			return err
		}
		a, err := newAppender(client, c.Name, key, c.Keys, h, log)
		if err != nil {
			return err
		}
		elections[key], works = e, append(works, a.recordedWork)
		samplers = append(samplers, &sampler{election: e, history: h, key: key, requests: requested, further: n > 0})
	}
	if err := h.Write(history.Event{What: history.Started}); err != nil {
		return err
	}
	go transfer(elections, requests, log)
	return observe(h, samplers, func() error {
		ended := make(chan error, len(works))
		for n, x := range samplers {
			go func() { ended <- x.election.Run(context.Background(), works[n]) }() // Close ends it, and so releases all keys by one write
		}
		select {
		case <-ctx.Done():
		case err := <-ended:
			return fmt.Errorf("an election of the session ended by itself: %w", err)
		}
		return s.Close(context.Background())
	})
}

// open opens a session as soon as the servers let it. Servers that restart may refuse a request at once.
func (c *CandidateConfig) open(ctx context.Context, client *cli.Client, opts []election.Option, log *slog.Logger) (*session.Session, error) {
	for {
		s, err := session.Open(ctx, client.JetStream, session.Config{Bucket: Bucket, Name: c.Name}, opts...)
		if err == nil || ctx.Err() != nil {
			return s, err
		}
		log.Info("Session not opened", "error", err)
		_ = timeutil.Pause(ctx, ReconnectWait)
	}
}

// recordedWork does as work, and writes into the history when it works.
func (a *Appender) recordedWork(ctx context.Context, t election.Term) error {
	if err := a.History.Write(history.Event{What: history.Works, Key: a.key, Term: t.Number}); err != nil {
		return err
	}
	err := a.work(ctx, t)
	_ = a.History.Write(history.Event{What: history.Rests, Key: a.key, Term: t.Number})
	return err
}

// TransferTimeout is the timeout of a transfer in the leader's process, which is refused if the target is not ready.
const TransferTimeout = 5 * time.Second

// transfer transfers keys as the drill requests: each request is a key and the name of the target.
func transfer(elections map[string]*election.Election, requests <-chan string, log *slog.Logger) {
	for r := range requests {
		key, to, _ := strings.Cut(r, " ")
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), TransferTimeout)
			defer cancel()
			if err := elections[key].Transfer(ctx, to); err != nil {
				log.Info("Key not transferred", "key", key, "to", to, "error", err)
			}
		}()
	}
}
