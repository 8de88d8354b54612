package main

import (
	"context"
	"errors"
	"fmt"
	"io"
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
)

// Defaults that differ from those of a drill in one process.
const (
	processTTL        = 5 * time.Second
	processCandidates = 5
	processFor        = 2 * time.Minute
	processKey        = "drill"
	processBucket     = "ELECTION_DRILL"
	processStream     = "ELECTION_DRILL_WORK"
	processSubject    = "drill.work"

	settlePoll = 5 * time.Millisecond
	wellWithin = time.Minute // a cluster is well again, after servers came back
)

// processDrill is one drill on processes.
type processDrill struct {
	processFlags
	ttl      time.Duration
	count    int // of candidates
	replicas int // of the bucket
	out      io.Writer
	folder   string

	life       context.Context // in which faults are carried through; it ends with the drill
	script     *script
	cluster    *cluster
	candidates []*candidateProcess
	board      *board
	nc         *nats.Conn // to the servers directly
	js         jetstream.JetStream
	bucket     *election.Bucket
	version    string // of the servers
	began      time.Duration
	wall       time.Time // when it began, by the clock that logs go by
	ended      time.Duration

	mu       sync.Mutex
	injuries []*injury
	rewinds  int // how often the bucket has forgotten writes
	saying   sync.Mutex
}

func newProcessDrill(d *drill) *processDrill {
	p := &processDrill{processFlags: d.processes, ttl: d.ttl, count: d.candidates, replicas: d.replicas, out: d.stderr}
	p.board = &board{turn: p.turned}
	p.script = &script{random: rand.New(rand.NewPCG(p.seed, 0))}
	for _, b := range breakages {
		if b.fits(p.replicas) && (len(p.faults) == 0 || slices.Contains(p.faults, b.name)) {
			p.script.kinds = append(p.script.kinds, b)
		}
	}
	return p
}

// timing returns the durations that candidates go by, which are the library's defaults but for the stand-down.
func (d *processDrill) timing() history.Timing {
	return history.Timing{TTL: d.ttl, Interval: d.ttl * 3 / 4, Margin: max(50*time.Millisecond, d.ttl/50), StandDown: d.standDown}
}

// say tells on stderr what happens.
func (d *processDrill) say(format string, a ...any) {
	d.saying.Lock()
	defer d.saying.Unlock()
	fmt.Fprintf(d.out, "%8.2f s  %s\n", (history.Now() - d.began).Seconds(), fmt.Sprintf(format, a...))
}

// turned tells of a term that begins.
func (d *processDrill) turned(candidate int, term uint64) {
	d.say("%-16s %s, term %d", "leads", d.candidates[candidate].name, term)
}

// run brings everything up, injects faults, and returns what came of it, also where that was broken off by an error that
// it returns. All that was made is removed in any case, but for histories that are to be kept, as they are after an error.
func (d *processDrill) run(ctx context.Context) (r *processReport, drawing *timeline, err error) {
	if d.folder, err = os.MkdirTemp("", "election-drill-"); err != nil {
		return nil, nil, err
	}
	defer func() {
		switch {
		case r != nil && r.Kept != "" && err == nil:
		case err != nil && ctx.Err() == nil:
			fmt.Fprintln(d.out, "Histories and logs are in", d.folder)
		default:
			_ = os.RemoveAll(d.folder)
		}
	}()
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	stop := context.AfterFunc(ctx, end) // who is interrupted heals nothing
	defer stop()
	d.life, d.began = life, history.Now()
	fmt.Fprintf(d.out, "Drill with %d candidates and %d servers as processes, TTL %s, for %s, seed %d\n", d.count, clusterSize, human(d.ttl), human(d.length), d.seed)
	if err := d.begin(ctx); err != nil {
		d.end()
		return nil, nil, err
	}
	p := newProbe(d.nc, processBucket)
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
	if d.keep || err != nil || r.complaint() != "" {
		r.Kept = d.folder
	}
	return r, drawing, err
}

// begin brings up servers, bucket, stream and candidates.
func (d *processDrill) begin(ctx context.Context) (err error) {
	if d.cluster, err = startCluster(ctx, d.folder, processUsers(d.count)); err != nil {
		return err
	}
	d.nc, err = nats.Connect(strings.Join(d.cluster.urls(), ","), nats.Name("drill operator"), nats.UserInfo(userOperator, userOperator),
		nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.ReconnectWait(memberReconnect/2), nats.ReconnectJitter(0, 0), nats.ReconnectBufSize(-1),
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
	common := candidateConfig{Bucket: processBucket, Key: processKey, Stream: processStream, Subject: processSubject, TTL: d.ttl, StandDown: d.standDown}
	d.candidates, err = newCandidates(d.count, d.cluster, d.folder, common, d.rate, d.script.random, d.board)
	if err != nil {
		return err
	}
	d.began, d.wall = history.Now(), time.Now()
	for _, p := range d.candidates {
		if err := p.start(ctx); err != nil {
			return err
		}
	}
	return nil
}

// createStreams makes the bucket and the stream, as soon as the cluster can.
func (d *processDrill) createStreams(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, wellWithin)
	defer cancel()
	for {
		try, cancel := context.WithTimeout(ctx, 5*time.Second)
		d.bucket, err = election.CreateBucket(try, d.js, election.BucketConfig{Name: processBucket, TTL: d.ttl, Replicas: d.replicas})
		if err == nil {
			_, err = d.js.CreateOrUpdateStream(try, jetstream.StreamConfig{Name: processStream, Subjects: []string{processSubject}, Replicas: clusterSize})
		}
		cancel()
		if err == nil {
			return d.healthy(ctx)
		}
		if pause(ctx, 100*time.Millisecond) != nil {
			return fmt.Errorf("the cluster did not get ready: %w", err)
		}
	}
}

// faultsFor injects faults for as long as is asked for, and then waits until somebody leads again.
func (d *processDrill) faultsFor(ctx context.Context) error {
	if err := d.settle(ctx, nil, 0); err != nil {
		return err
	}
	playing, cancel := context.WithTimeout(ctx, d.length-(history.Now()-d.began))
	defer cancel()
	if err := d.play(playing); err != nil {
		return err
	}
	if err := d.settle(ctx, d.latest(), d.ttl/5); err != nil {
		return err
	}
	return errors.Join(ctx.Err(), d.broken())
}

// latest returns the last fault; nil if there was none.
func (d *processDrill) latest() *injury {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.injuries) == 0 {
		return nil
	}
	return d.injuries[len(d.injuries)-1]
}

// broken returns an error once a process has ended by itself: then every figure is worthless.
func (d *processDrill) broken() error {
	for _, s := range d.cluster.servers {
		if err := s.broken(); err != nil {
			return err
		}
	}
	for _, p := range d.candidates {
		if err := p.running().lost(); err != nil {
			return err
		}
	}
	return nil
}

// leave has all candidates leave, the leader last so that nobody is elected meanwhile.
func (d *processDrill) leave() {
	leader, _ := d.board.leader()
	var followers sync.WaitGroup
	for i, p := range d.candidates {
		p.wire.mend()
		if i != leader {
			followers.Go(p.leave)
		}
	}
	followers.Wait()
	if leader >= 0 {
		d.candidates[leader].leave()
	}
}

// end ends all processes and connections, whatever state they are in.
func (d *processDrill) end() {
	for _, p := range d.candidates {
		_ = p.kill()
	}
	closeWires(d.candidates)
	if d.nc != nil {
		d.nc.Close()
	}
	if d.cluster != nil {
		d.cluster.close()
	}
}
