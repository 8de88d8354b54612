package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/cli/terminal"
	"github.com/natscampaign/election/internal/drill/history"
	"github.com/natscampaign/election/internal/drill/processes"
	"github.com/natscampaign/election/internal/drill/timeline"
	"github.com/natscampaign/election/internal/host"
	"github.com/natscampaign/election/internal/timing"
)

// Defaults of the flags.
const (
	DefaultTTL        = 5 * time.Second
	DefaultCandidates = 5
	DefaultDuration   = 2 * time.Minute

	pollInterval   = 5 * time.Millisecond
	clusterTimeout = time.Minute      // for the cluster to become healthy after servers started
	stuckTimeout   = 10 * time.Second // for a new cluster to accept a stream, until it is taken to be stuck
)

// Drill is one drill. It runs once.
type Drill struct {
	Config
	folder string

	lifetime context.Context // for ending a fault after the time is up; an interrupt by the user ends it
	script   *script
	cluster  *processes.Cluster
	fleet    []*processes.Candidate
	leaders  *processes.Leaders
	nc       *nats.Conn // to the servers, without a link in between
	js       jetstream.JetStream
	bucket   *election.Bucket
	version  string // of the servers
	began    time.Duration
	wall     time.Time // when the drill began, by the clock of the logs
	ended    time.Duration

	endWitness func() // nil if it was not started

	mu       sync.Mutex
	injected []*fault
	rewinds  int
	output   sync.Mutex // serializes lines of progress
}

// New returns a drill of a valid configuration.
func New(c Config) *Drill {
	d := &Drill{Config: c}
	d.leaders = &processes.Leaders{OnTerm: d.termReported}
	d.script = &script{random: rand.New(rand.NewPCG(d.Seed, 0))}
	for _, k := range faultKinds {
		if k.fits(d.Config) && (len(d.Faults) == 0 || slices.Contains(d.Faults, k.name)) {
			d.script.kinds = append(d.script.kinds, k)
		}
	}
	return d
}

// keys returns the keys in the histories: those of the sessions, or else the empty one.
func (d *Drill) keys() []string {
	return (&processes.CandidateConfig{Keys: d.Sessions}).KeyNames()
}

// timing returns the durations of the candidates: the library's defaults, except for the stand-down. Sessions renew in another interval,
// and one that has not timed the lease of a leader waits for a whole lease after it has learned that the leader's session is over.
func (d *Drill) timing() history.Timing {
	if d.Sessions > 0 {
		return history.Timing{TTL: d.TTL, Interval: timing.ShortInterval(d.TTL), Margin: timing.DefaultMargin(d.TTL), StandDown: d.TTL}
	}
	return history.Timing{TTL: d.TTL, Interval: timing.DefaultInterval(d.TTL), Margin: timing.DefaultMargin(d.TTL), StandDown: d.StandDown}
}

// logf writes a line of progress.
func (d *Drill) logf(format string, a ...any) {
	d.output.Lock()
	defer d.output.Unlock()
	fmt.Fprintf(d.Progress, "%8.2f s  %s\n", (host.Clock() - d.began).Seconds(), fmt.Sprintf(format, a...))
}

// termReported reports that a candidate leads.
func (d *Drill) termReported(candidate int, term uint64) {
	d.logf("%-16s %s, term %d", "leads", d.fleet[candidate].Name, term)
}

// Run starts the processes, injects faults, and returns the report and the timeline. If an error ends the drill early, Run returns the
// error with a report on the time until then; the report is nil if there is nothing to judge. Run always ends the processes. It removes
// the files, unless the configuration keeps them, the drill failed, or there is an error. After an interrupt it removes them in any case.
func (d *Drill) Run(ctx context.Context) (r *Report, drawing *timeline.Timeline, err error) {
	temp, err := host.NewTemp(host.DrillPrefix)
	if err != nil {
		return nil, nil, err
	}
	d.folder = temp.Path
	defer func() {
		switch {
		case r != nil && r.Kept != "" && err == nil:
			temp.Keep()
		case err != nil && ctx.Err() == nil:
			temp.Keep()
			fmt.Fprintln(d.Progress, "Histories and logs are in", d.folder)
		default:
			temp.Remove()
		}
	}()
	lifetime, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	stop := context.AfterFunc(ctx, end) // an interrupted drill does not wait for its faults to end
	defer stop()
	d.lifetime, d.began = lifetime, host.Clock()
	fmt.Fprintf(d.Progress, "Drill with %s and %d servers as processes, TTL %s, for %s, seed %d\n", candidates(d.Candidates, d.Sessions), processes.ClusterSize, terminal.FormatDuration(d.TTL), terminal.FormatDuration(d.Duration), d.Seed)
	if err := d.setUp(ctx); err != nil {
		d.tearDown()
		return nil, nil, err
	}
	probe := newProbe(d.nc, processes.Bucket)
	probing, stopProbing := context.WithCancel(context.Background())
	go probe.run(probing)
	err = d.runScript(ctx)
	stopProbing()
	outages := probe.awaitOutages()
	d.ended = host.Clock()
	var records []history.Record
	var recordsErr error
	if ctx.Err() == nil {
		d.shutDownCandidates()
		records, recordsErr = d.readRecords(ctx)
	}
	d.tearDown()
	if ctx.Err() != nil {
		return nil, nil, errors.Join(err, ctx.Err())
	}
	r, drawing, evaluateErr := d.evaluate(outages, records)
	err = errors.Join(err, recordsErr, evaluateErr)
	if evaluateErr != nil {
		return nil, nil, err
	}
	r.recordsMissing = recordsErr != nil
	if d.Keep || err != nil || r.FailureReason() != "" {
		r.Kept = d.folder
	}
	return r, drawing, err
}

// candidates says in words how many candidates there are, and how many keys each has if it has a session.
func candidates(n, keys int) string {
	if keys == 0 {
		return fmt.Sprintf("%d candidates", n)
	}
	return fmt.Sprintf("%d candidates, each with a session of %s,", n, terminal.Plural(keys, "key"))
}

// setUp starts the servers, creates the streams, and starts the candidates.
func (d *Drill) setUp(ctx context.Context) (err error) {
	if d.cluster, err = processes.StartCluster(ctx, d.folder, d.Candidates, d.Server); err != nil {
		return err
	}
	d.nc, err = nats.Connect(strings.Join(d.cluster.URLs(), ","), nats.Name("drill operator"), nats.UserInfo(processes.Operator, processes.Operator),
		nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.ReconnectWait(processes.ReconnectWait/2), nats.ReconnectJitter(0, 0), nats.ReconnectBufSize(-1),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err != nil {
		return err
	}
	d.version = d.nc.ConnectedServerVersion()
	if d.js, err = jetstream.New(d.nc); err != nil {
		return err
	}
	if err := d.createStreams(ctx); err != nil {
		return err
	}
	common := processes.CandidateConfig{StandDown: d.StandDown, Keys: d.Sessions}
	if common.Witness, err = d.startWitness(); err != nil {
		return err
	}
	d.fleet, err = processes.NewCandidates(d.Candidates, d.cluster, d.folder, common, d.ReplyLoss, d.script.random, d.leaders)
	if err != nil {
		return err
	}
	d.began, d.wall = host.Clock(), time.Now()
	for _, c := range d.fleet {
		if err := c.Start(ctx); err != nil {
			return err
		}
	}
	return nil
}

// runScript injects faults for the duration of the drill, and then waits until a candidate leads.
func (d *Drill) runScript(ctx context.Context) error {
	if err := d.awaitLeader(ctx, nil, 0); err != nil {
		return err
	}
	injecting, cancel := context.WithTimeout(ctx, d.Duration-(host.Clock()-d.began))
	defer cancel()
	if err := d.injectFaults(injecting); err != nil {
		return err
	}
	if err := d.awaitLeader(ctx, d.lastFault(), d.TTL/5); err != nil {
		return err
	}
	return errors.Join(ctx.Err(), d.unexpectedExit())
}

// lastFault returns the last injected fault; nil if there is none.
func (d *Drill) lastFault() *fault {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.injected) == 0 {
		return nil
	}
	return d.injected[len(d.injected)-1]
}

// unexpectedExit returns an error if a process has ended by itself. The drill then stops, because it cannot judge what follows.
func (d *Drill) unexpectedExit() error {
	for _, s := range d.cluster.Servers {
		if err := s.Process().UnexpectedExit(); err != nil {
			return err
		}
	}
	for _, c := range d.fleet {
		if err := c.Process().UnexpectedExit(); err != nil {
			return err
		}
	}
	return nil
}

// shutDownCandidates shuts down all candidates in order. The leader is the last, so that no other candidate takes over.
func (d *Drill) shutDownCandidates() {
	leader, _ := d.leaders.Latest()
	var followers sync.WaitGroup
	for i, c := range d.fleet {
		c.Link.Restore()
		if i != leader {
			followers.Go(c.Shutdown)
		}
	}
	followers.Wait()
	if leader >= 0 {
		d.fleet[leader].Shutdown()
	}
}

// tearDown kills all processes and closes all connections.
func (d *Drill) tearDown() {
	if d.endWitness != nil {
		d.endWitness() // before the candidates are killed
	}
	for _, c := range d.fleet {
		_ = c.Kill()
	}
	processes.CloseLinks(d.fleet)
	if d.nc != nil {
		d.nc.Close()
	}
	if d.cluster != nil {
		d.cluster.Close()
	}
}
