// Package chaos rehearses failures of processes, machines and networks. A drill brings up a cluster of servers and candidates, each a
// process of its own, injects faults from a seed for a while, and judges by the histories that the candidates wrote: whether two led at
// once, whether records and terms were in order, and whether each change of leader had a cause and came in time.
//
// The same seed gives the same script of faults, but not the same run: processes and networks take their time.
package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/history"
	"github.com/natscampaign/election/internal/processes"
	"github.com/natscampaign/election/internal/terminal"
	"github.com/natscampaign/election/internal/timeline"
	"github.com/natscampaign/election/internal/timeutil"
)

// Defaults that differ from those of a drill in one process.
const (
	DefaultTTL        = 5 * time.Second
	DefaultCandidates = 5
	DefaultLength     = 2 * time.Minute

	settlePoll = 5 * time.Millisecond
	wellWithin = time.Minute // a cluster is well again, after servers came back
)

// Drill is one drill on processes.
type Drill struct {
	Config
	folder string

	life    context.Context // in which faults are carried through; it ends with the drill
	script  *script
	cluster *processes.Cluster
	fleet   []*processes.Candidate
	board   *processes.Board
	nc      *nats.Conn // to the servers directly
	js      jetstream.JetStream
	bucket  *election.Bucket
	version string // of the servers
	began   time.Duration
	wall    time.Time // when it began, by the clock that logs go by
	ended   time.Duration

	mu       sync.Mutex
	injuries []*injury
	rewinds  int // how often the bucket has forgotten writes
	saying   sync.Mutex
}

func New(c Config) *Drill {
	p := &Drill{Config: c}
	p.board = &processes.Board{Turn: p.turned}
	p.script = &script{random: rand.New(rand.NewPCG(p.Seed, 0))}
	for _, b := range breakages {
		if b.fits(p.Replicas) && (len(p.Faults) == 0 || slices.Contains(p.Faults, b.name)) {
			p.script.kinds = append(p.script.kinds, b)
		}
	}
	return p
}

// timing returns the durations that candidates go by, which are the library's defaults but for the stand-down.
func (d *Drill) timing() history.Timing {
	return history.Timing{TTL: d.TTL, Interval: d.TTL * 3 / 4, Margin: max(50*time.Millisecond, d.TTL/50), StandDown: d.StandDown}
}

// say tells on stderr what happens.
func (d *Drill) say(format string, a ...any) {
	d.saying.Lock()
	defer d.saying.Unlock()
	fmt.Fprintf(d.Out, "%8.2f s  %s\n", (history.Now() - d.began).Seconds(), fmt.Sprintf(format, a...))
}

// turned tells of a term that begins.
func (d *Drill) turned(candidate int, term uint64) {
	d.say("%-16s %s, term %d", "leads", d.fleet[candidate].Name, term)
}

// Run brings everything up, injects faults, and returns what came of it, also where that was broken off by an error that
// it returns. All that was made is removed in any case, but for histories that are to be kept, as they are after an error.
func (d *Drill) Run(ctx context.Context) (r *Report, drawing *timeline.Timeline, err error) {
	if d.folder, err = os.MkdirTemp("", "election-drill-"); err != nil {
		return nil, nil, err
	}
	defer func() {
		switch {
		case r != nil && r.Kept != "" && err == nil:
		case err != nil && ctx.Err() == nil:
			fmt.Fprintln(d.Out, "Histories and logs are in", d.folder)
		default:
			_ = os.RemoveAll(d.folder)
		}
	}()
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	stop := context.AfterFunc(ctx, end) // who is interrupted heals nothing
	defer stop()
	d.life, d.began = life, history.Now()
	fmt.Fprintf(d.Out, "Drill with %d candidates and %d servers as processes, TTL %s, for %s, seed %d\n", d.Candidates, processes.ClusterSize, terminal.Human(d.TTL), terminal.Human(d.Length), d.Seed)
	if err := d.begin(ctx); err != nil {
		d.end()
		return nil, nil, err
	}
	p := newProbe(d.nc, processes.Bucket)
	probing, stopProbing := context.WithCancel(context.Background())
	go p.run(probing)
	err = d.faultsFor(ctx)
	stopProbing()
	outages := p.found()
	d.ended = history.Now()
	var records []history.Record
	var unread error
	if ctx.Err() == nil {
		d.leave()
		records, unread = d.records(ctx)
	}
	d.end()
	if ctx.Err() != nil {
		return nil, nil, errors.Join(err, ctx.Err())
	}
	r, drawing, failed := d.evaluate(outages, records)
	err = errors.Join(err, unread, failed)
	if failed != nil {
		return nil, nil, err
	}
	r.unread = unread != nil
	if d.Keep || err != nil || r.Complaint() != "" {
		r.Kept = d.folder
	}
	return r, drawing, err
}

// begin brings up servers, bucket, stream and candidates.
func (d *Drill) begin(ctx context.Context) (err error) {
	if d.cluster, err = processes.StartCluster(ctx, d.folder, processes.Users(d.Candidates)); err != nil {
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
	common := processes.CandidateConfig{Bucket: processes.Bucket, Key: processes.Key, Stream: processes.Stream, Subject: processes.Subject, TTL: d.TTL, StandDown: d.StandDown}
	d.fleet, err = processes.NewCandidates(d.Candidates, d.cluster, d.folder, common, d.Rate, d.script.random, d.board)
	if err != nil {
		return err
	}
	d.began, d.wall = history.Now(), time.Now()
	for _, p := range d.fleet {
		if err := p.Start(ctx); err != nil {
			return err
		}
	}
	return nil
}

// createStreams makes the bucket and the stream, as soon as the cluster can.
func (d *Drill) createStreams(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, wellWithin)
	defer cancel()
	for {
		try, cancel := context.WithTimeout(ctx, 5*time.Second)
		d.bucket, err = election.CreateBucket(try, d.js, election.BucketConfig{Name: processes.Bucket, TTL: d.TTL, Replicas: d.Replicas})
		if err == nil {
			_, err = d.js.CreateOrUpdateStream(try, jetstream.StreamConfig{Name: processes.Stream, Subjects: []string{processes.Subject}, Replicas: processes.ClusterSize})
		}
		cancel()
		if err == nil {
			return d.healthy(ctx)
		}
		if timeutil.Pause(ctx, 100*time.Millisecond) != nil {
			return fmt.Errorf("the cluster did not get ready: %w", err)
		}
	}
}

// faultsFor injects faults for as long as is asked for, and then waits until somebody leads again.
func (d *Drill) faultsFor(ctx context.Context) error {
	if err := d.settle(ctx, nil, 0); err != nil {
		return err
	}
	playing, cancel := context.WithTimeout(ctx, d.Length-(history.Now()-d.began))
	defer cancel()
	if err := d.play(playing); err != nil {
		return err
	}
	if err := d.settle(ctx, d.latest(), d.TTL/5); err != nil {
		return err
	}
	return errors.Join(ctx.Err(), d.broken())
}

// latest returns the last fault; nil if there was none.
func (d *Drill) latest() *injury {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.injuries) == 0 {
		return nil
	}
	return d.injuries[len(d.injuries)-1]
}

// broken returns an error once a process has ended by itself: then every figure is worthless.
func (d *Drill) broken() error {
	for _, s := range d.cluster.Servers {
		if err := s.Broken(); err != nil {
			return err
		}
	}
	for _, p := range d.fleet {
		if err := p.Running().Lost(); err != nil {
			return err
		}
	}
	return nil
}

// leave has all candidates leave, the leader last so that nobody is elected meanwhile.
func (d *Drill) leave() {
	leader, _ := d.board.Leader()
	var followers sync.WaitGroup
	for i, p := range d.fleet {
		p.Link.Mend()
		if i != leader {
			followers.Go(p.Leave)
		}
	}
	followers.Wait()
	if leader >= 0 {
		d.fleet[leader].Leave()
	}
}

// end ends all processes and connections, whatever state they are in.
func (d *Drill) end() {
	for _, p := range d.fleet {
		_ = p.Kill()
	}
	processes.CloseLinks(d.fleet)
	if d.nc != nil {
		d.nc.Close()
	}
	if d.cluster != nil {
		d.cluster.Close()
	}
}
