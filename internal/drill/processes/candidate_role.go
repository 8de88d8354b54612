package processes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/cli/events"
	"github.com/natscampaign/election/internal/cli/terminal"
	"github.com/natscampaign/election/internal/drill/history"
	"github.com/natscampaign/election/witness"
)

// requestTimeout is long because a drill may take the servers down for long.
const requestTimeout = time.Minute

// CandidateConfig is the configuration of a candidate's process.
type CandidateConfig struct {
	Name         string
	Servers      []string // the URLs of the candidate's link
	History, Log string   // files
	StandDown    time.Duration
	Keys         int    // of its session; 0 if it has none, and campaigns by an election
	Witness      string // the socket of the witness; empty if there is none
}

// runCandidate is the main function of a candidate's process. It writes the history to a file and to standard output, where
// the drill reads it.
func runCandidate(ctx context.Context, line []byte, ready func(), requests <-chan string) error {
	var config CandidateConfig
	if err := json.Unmarshal(line, &config); err != nil {
		return err
	}
	historyFile, err := os.OpenFile(config.History, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = historyFile.Close() }()
	logFile, err := os.OpenFile(config.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = logFile.Close() }()
	h := history.NewWriter(io.MultiWriter(historyFile, os.Stdout))
	handler := terminal.NewLogHandler(logFile, terminal.Style{}, slog.LevelDebug)
	log := slog.New(&events.Handler{Next: handler, Take: changesTo(h, "")})
	ready()
	client, err := config.connect(log)
	if err != nil {
		return err
	}
	defer client.Conn.Close()
	if config.Keys > 0 {
		return config.lead(ctx, client, h, handler, requests)
	}
	bucket, err := client.WaitForBucket(ctx, Bucket, log)
	if err != nil {
		return cli.IgnoreIfDone(ctx, err)
	}
	return config.campaign(ctx, client, bucket, h, log)
}

// connect connects over the candidate's link, and retries in the background while no server answers. It ignores the servers
// that the cluster advertises, because connections to those would bypass the link.
func (c *CandidateConfig) connect(log *slog.Logger) (*cli.Client, error) {
	nc, err := nats.Connect(strings.Join(c.Servers, ","), append(cli.LogConnection(log),
		nats.Name(c.Name), nats.UserInfo(c.Name, c.Name), nats.IgnoreDiscoveredServers(), nats.RetryOnFailedConnect(true), nats.ReconnectBufSize(-1),
		nats.MaxReconnects(-1), nats.ReconnectWait(ReconnectWait), nats.ReconnectJitter(ReconnectWait/4, ReconnectWait/4),
		nats.Timeout(time.Second), nats.PingInterval(cli.PingInterval))...)
	if err != nil {
		return nil, err
	}
	js, err := jetstream.New(nc)
	return &cli.Client{Conn: nc, JetStream: js, Timeout: requestTimeout}, err
}

// campaign takes part in the election until ctx ends, appends records while the candidate leads, and writes the history. If
// the history cannot be written, campaign returns at once: a drill cannot judge a candidate whose answers are unknown.
func (c *CandidateConfig) campaign(ctx context.Context, client *cli.Client, bucket *election.Bucket, h *history.Writer, log *slog.Logger) error {
	opts := []election.Option{election.WithLogger(log), election.WithSplay(0), election.WithStandDown(c.StandDown)}
	w, err := c.witness(log)
	if err != nil {
		return err
	}
	defer w.Close()
	opts = append(opts, w.Option())
	e, err := election.NewElection(c.Name, Key, bucket, opts...)
	if err != nil {
		return err
	}
	a, err := newAppender(client, c.Name, "", 1, h, log)
	if err != nil {
		return err
	}
	if err := h.Write(history.Event{What: history.Started}); err != nil {
		return err
	}
	return observe(h, []*sampler{{election: e, history: h}}, func() error { return e.Run(ctx, a.work) })
}

// witness returns the client of the witness; nil if there is none.
func (c *CandidateConfig) witness(log *slog.Logger) (*witness.Witness, error) {
	if c.Witness == "" {
		return nil, nil
	}
	if err := os.Setenv("ELECTION_WITNESS", "unix://"+c.Witness); err != nil {
		return nil, err
	}
	return witness.OfHost(witness.WithLogger(log))
}

// observe takes samples until run returns, and writes that the candidate left the election in order.
func observe(h *history.Writer, samplers []*sampler, run func() error) (err error) {
	sampling, stop := context.WithCancel(context.Background())
	sampled := make(chan error, 1)
	go func() { sampled <- runSamplers(sampling, samplers) }()
	ran := make(chan error, 1)
	go func() { ran <- run() }()
	select {
	case err = <-ran:
		stop()
		if failed := <-sampled; failed != nil {
			err = errors.Join(err, historyError(failed))
		}
	case failed := <-sampled:
		stop()
		return historyError(failed)
	}
	if err != nil {
		return err
	}
	return h.Write(history.Event{What: history.Stopped})
}

// changesTo returns a function that writes into the history when the candidate acquires or loses the key, as the log says: only the log has the
// reason. The log keeps these records too.
func changesTo(h *history.Writer, key string) func(slog.Record) (taken bool, err error) {
	return func(r slog.Record) (bool, error) {
		change, ok := events.StateChange(r)
		if !ok || change.Term == 0 {
			return false, nil
		}
		e := history.Event{Key: key, Term: change.Term, Reason: change.Reason}
		switch change.State {
		case election.LeaderElectState:
			e.What = history.Elected
		case election.CandidateState:
			e.What = history.Lost
		default:
			return false, nil
		}
		err := h.Write(e)
		return err != nil, err
	}
}

// historyError returns the error of a candidate whose history cannot be written.
func historyError(err error) error {
	return fmt.Errorf("write the history: %w; whether this candidate leads is no longer recorded", err)
}
