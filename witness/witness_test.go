//go:build linux || darwin

package witness_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/test/natstest"
	"github.com/natscampaign/election/internal/test/proctest"
	"github.com/natscampaign/election/internal/test/witnesstest"
	iwitness "github.com/natscampaign/election/internal/witness"
	"github.com/natscampaign/election/witness"
)

const (
	// longTTL is the TTL where only a witness can replace a leader within the time of a test.
	longTTL = 5 * time.Minute
	// patience is how long a test waits for what is to happen at once.
	patience = 30 * time.Second
	settle   = 100 * time.Millisecond
)

func TestMain(m *testing.M) {
	witnesstest.Main()
	if os.Getenv("ELECTION_WITNESS_ROLE") != "" { // this process is to be the witness of an example
		_, _ = witness.Start(dial, witness.WithLogger(slog.Default()))
	}
	natstest.VerifyTestMain(m)
}

// fleet is a server with buckets, and a connection of this process.
type fleet struct {
	testing.TB
	url     string
	nc      *nats.Conn
	buckets []string
}

func newFleet(t testing.TB, ttl time.Duration, buckets ...string) *fleet {
	t.Helper()
	s := natstest.StartTCP(t)
	return fleetOf(t, s.URL(), ttl, 1, buckets...)
}

func fleetOf(t testing.TB, url string, ttl time.Duration, replicas int, buckets ...string) *fleet {
	t.Helper()
	g := NewWithT(t)
	nc, err := nats.Connect(url, nats.Timeout(patience), nats.MaxReconnects(-1))
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(nc.Close)
	if len(buckets) == 0 {
		buckets = []string{"elections"}
	}
	f := &fleet{t, url, nc, buckets}
	for _, name := range buckets {
		g.Eventually(func() error {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			_, err := election.CreateBucket(ctx, f.js(), election.BucketConfig{Name: name, TTL: ttl, Replicas: replicas})
			return err
		}).WithTimeout(patience).Should(Succeed())
	}
	return f
}

func (f *fleet) js() jetstream.JetStream {
	js, err := jetstream.New(f.nc)
	NewWithT(f).Expect(err).NotTo(HaveOccurred())
	return js
}

// program returns what a program of the fleet does by default.
func (f *fleet) program() witnesstest.Config {
	return witnesstest.Config{URL: f.url, Buckets: f.buckets, Keys: 1, Settle: settle}
}

// successor campaigns in an election of this process until the test ends, and returns where its wins are sent.
func (f *fleet) successor(bucket, key string) <-chan time.Time {
	f.Helper()
	g := NewWithT(f)
	b, err := election.OpenBucket(f.Context(), f.js(), bucket)
	g.Expect(err).NotTo(HaveOccurred())
	wins := make(chan time.Time, 16)
	e, err := election.NewElection("successor", key, b, election.WithSplay(0), election.OnWon(func() { wins <- time.Now() }))
	g.Expect(err).NotTo(HaveOccurred())
	f.campaign(e)
	g.Eventually(func() string {
		if l := e.Status().Leader; l != nil {
			return l.Name
		}
		return ""
	}).WithTimeout(patience).Should(Equal("program"))
	return wins
}

func (f *fleet) campaign(e *election.Election) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Start(ctx) }()
	f.Cleanup(func() {
		cancel()
		NewWithT(f).Expect(<-done).To(Succeed())
	})
}

// takesOver expects that the successor leads soon, and not before the work of a program that died at the given time had ended and settled.
func takesOver(t testing.TB, p *witnesstest.Program, wins <-chan time.Time) time.Time {
	t.Helper()
	g := NewWithT(t)
	var w time.Time
	g.Eventually(wins).WithTimeout(patience).Should(Receive(&w))
	g.Expect(w).To(BeTemporally(">=", p.LastHeartbeat(t).Add(settle)), "the work of the dead leader has ended, and settled")
	return w
}

func TestLeaderThatDiesIsReplacedThoughItsLeaseGoesOn(t *testing.T) {
	for _, way := range []witnesstest.Way{witnesstest.Kill, witnesstest.Panic, witnesstest.Exit, witnesstest.Segfault} {
		t.Run(string(way), func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, longTTL)
			p := witnesstest.Start(t, f.program())
			wins := f.successor("elections", "key-0")
			p.Die(t, way)
			takesOver(t, p, wins)
		})
	}
}

func TestLeaderOfAReplicatedBucketThatDiesIsReplaced(t *testing.T) {
	natstest.SkipIfShort(t)
	t.Parallel()
	f := fleetOf(t, natstest.StartCluster(t, 3).URL(), longTTL, 3)
	p := witnesstest.Start(t, f.program())
	wins := f.successor("elections", "key-0")
	p.Die(t, witnesstest.Kill)
	takesOver(t, p, wins)
}

func TestProcessThatAProgramLeavesBehindDelaysNoRelease(t *testing.T) {
	t.Parallel()
	f := newFleet(t, longTTL)
	c := f.program()
	c.Leave = true
	p := witnesstest.Start(t, c)
	wins := f.successor("elections", "key-0")
	p.Die(t, witnesstest.Kill)
	takesOver(t, p, wins)
	NewWithT(t).Expect(syscall.Kill(p.Left, 0)).To(Succeed(), "the process that was left behind goes on")
}

func TestProgramLeadsInTwoBucketsAndBothAreReleased(t *testing.T) {
	t.Parallel()
	f := newFleet(t, longTTL, "one", "two")
	p := witnesstest.Start(t, f.program())
	one, two := f.successor("one", "key-0"), f.successor("two", "key-0")
	p.Die(t, witnesstest.Kill)
	takesOver(t, p, one)
	takesOver(t, p, two)
}

func TestProgramThatItsSupervisorStartsAgainLeadsAgain(t *testing.T) {
	t.Parallel()
	f := newFleet(t, longTTL)
	p := witnesstest.Start(t, f.program())
	p.Die(t, witnesstest.Kill)
	<-p.Exited()
	again := witnesstest.Start(t, f.program()) // which waits until that leads
	NewWithT(t).Expect(again.PID).NotTo(Equal(p.PID))
}

func TestManyElectionsOfAProgramThatDiesAreAllReleased(t *testing.T) {
	natstest.SkipIfShort(t)
	g := NewWithT(t)
	const n = 2000
	f := newFleet(t, longTTL)
	c := f.program()
	c.Keys, c.Quiet = n, true
	p := witnesstest.Start(t, c)
	b, err := f.js().KeyValue(t.Context(), "elections")
	g.Expect(err).NotTo(HaveOccurred())
	var mu sync.Mutex
	released := map[string]bool{}
	w, err := b.WatchAll(t.Context(), jetstream.UpdatesOnly())
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = w.Stop() }()
	g.Eventually(p.Watched).WithTimeout(patience).Should(Equal(n))
	died := p.Die(t, witnesstest.Kill)
	var last time.Time
	go func() {
		for entry := range w.Updates() {
			if entry != nil && releasedBecause(entry.Value()) == string(election.ReasonDied) {
				mu.Lock()
				released[entry.Key()], last = true, time.Now()
				mu.Unlock()
			}
		}
	}()
	g.Eventually(func() int { mu.Lock(); defer mu.Unlock(); return len(released) }).WithTimeout(patience).Should(Equal(n))
	t.Logf("the last of %d was released after %v", n, last.Sub(died))
}

func TestWitnessThatIsKilledCostsTheLeaseAndIsReplaced(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	f := newFleet(t, longTTL)
	p := witnesstest.Start(t, f.program())
	wins := f.successor("elections", "key-0")
	g.Eventually(p.Watched).WithTimeout(patience).Should(Equal(1))
	g.Expect(syscall.Kill(childOf(t, p.PID), syscall.SIGKILL)).To(Succeed())
	g.Eventually(p.Watched).WithTimeout(patience).Should(Equal(2), "until the next one knows of the term, the lease would rule")
	g.Consistently(wins, "200ms").ShouldNot(Receive(), "nobody has died")
	p.Die(t, witnesstest.Kill)
	takesOver(t, p, wins)
}

// The key of a leader with a witness that does nothing goes as that of a leader without one.
func TestWitnessThatIsStoppedOrCutOffCostsTheLeaseAndNoMore(t *testing.T) {
	const ttl = 6 * time.Second
	for name, hinder := range map[string]func(t *testing.T, c *witnesstest.Config) (after func(p *witnesstest.Program)){
		"stopped": func(t *testing.T, _ *witnesstest.Config) func(*witnesstest.Program) {
			return func(p *witnesstest.Program) {
				w := childOf(t, p.PID)
				t.Cleanup(func() { _ = syscall.Kill(w, syscall.SIGCONT) }) // late: it changes nothing, and ends
				proctest.Stop(t, w)
			}
		},
		"without a connection": func(t *testing.T, c *witnesstest.Config) func(*witnesstest.Program) {
			c.Dial = "nats://127.0.0.1:1"
			return func(*witnesstest.Program) {}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			f := newFleet(t, ttl)
			c := f.program()
			c.Interval = ttl / 4 // most of the lease is left whenever the program dies
			after := hinder(t, &c)
			p := witnesstest.Start(t, c)
			wins := f.successor("elections", "key-0")
			after(p)
			p.Die(t, witnesstest.Kill)
			<-p.Exited()
			w := takesOver(t, p, wins)
			g.Expect(w).To(BeTemporally(">", p.LastHeartbeat(t).Add(ttl/8)), "the lease was waited for")
			g.Consistently(wins, "500ms").ShouldNot(Receive(), "the successor goes on leading")
		})
	}
}

func TestWitnessOfTheHostReleasesWhatItIsToldOfThoughItStartedLate(t *testing.T) {
	for _, late := range []bool{false, true} {
		t.Run(fmt.Sprintf("late=%v", late), func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, longTTL)
			path := filepath.Join(shortDir(t), "w.sock")
			c := f.program()
			c.OfHost = true
			env := func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, iwitness.HostVariable+"=unix://"+path) }
			var watched <-chan struct{}
			if !late {
				watched = f.hostWitness(path)
			}
			p := witnesstest.Start(t, c, env)
			wins := f.successor("elections", "key-0")
			if late {
				watched = f.hostWitness(path)
			}
			NewWithT(t).Eventually(watched).WithTimeout(patience).Should(Receive(), "the program looks once a second")
			p.Die(t, witnesstest.Kill)
			takesOver(t, p, wins)
		})
	}
}

// hostWitness is the witness of this host until the test ends. It sends on the channel that it returns when it watches a term.
func (f *fleet) hostWitness(path string) (watched <-chan struct{}) {
	f.Helper()
	socket, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	NewWithT(f).Expect(err).NotTo(HaveOccurred())
	log := &hostLog{watched: make(chan struct{}, 100)}
	h := iwitness.NewHost(func(context.Context) (*nats.Conn, error) { return nats.Connect(f.url, nats.Timeout(patience)) }, nil,
		slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- h.Serve(ctx, socket) }()
	f.Cleanup(func() {
		cancel()
		NewWithT(f).Expect(<-done).To(Succeed())
		if f.Failed() {
			f.Logf("the witness of the host wrote:\n%s", log.text.String())
		}
	})
	return log.watched
}

// hostLog is what a witness of the host has logged.
type hostLog struct {
	watched chan struct{} // receives for each term that is watched
	mu      sync.Mutex
	text    strings.Builder
}

func (l *hostLog) Write(b []byte) (int, error) {
	if strings.Contains(string(b), "Term is watched") {
		l.watched <- struct{}{}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// Nobody who reads the stderr of a program to its end waits for the witness.
func TestStderrOfAProgramThatDiedEndsThoughItsWitnessGoesOn(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	f := newFleet(t, longTTL)
	c := f.program()
	c.Dial = "nats://127.0.0.1:1"
	read, write, err := os.Pipe()
	g.Expect(err).NotTo(HaveOccurred())
	p := witnesstest.Start(t, c, func(cmd *exec.Cmd) { cmd.Stderr = write })
	g.Expect(write.Close()).To(Succeed())
	w := childOf(t, p.PID)
	p.Die(t, witnesstest.Kill)
	ended := make(chan []byte, 1)
	go func() {
		text, _ := io.ReadAll(read)
		ended <- text
	}()
	var text []byte
	g.Eventually(ended).WithTimeout(patience).Should(Receive(&text))
	g.Expect(string(text)).To(ContainSubstring("The key is not released yet"))
	g.Expect(proctest.IsRunning(w)).To(BeTrue())
}

func TestNilWitnessAndProgramWithoutOneLeadAsBefore(t *testing.T) {
	t.Setenv(iwitness.HostVariable, "")
	g := NewWithT(t)
	w, err := witness.OfHost()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(w).To(BeNil())
	g.Expect(w.Option()).NotTo(BeNil())
	w.Close()
}

func TestWrongSettingsOfAWitnessNameTheValueAndTheFix(t *testing.T) {
	g := NewWithT(t)
	dial := func(context.Context) (*nats.Conn, error) { return nil, errors.New("not needed") }
	for _, opts := range [][]witness.Option{{nil}, {witness.WithLogger(nil)}, {witness.WithSettleTime(-time.Second)}, {witness.WithSettleTime(2 * time.Hour)}} {
		_, err := witness.Start(dial, opts...)
		g.Expect(err).To(MatchError(election.ErrInvalidOption))
	}
	_, err := witness.Start(nil)
	g.Expect(err).To(MatchError(ContainSubstring("no function that connects")))
	t.Setenv(iwitness.HostVariable, "/run/witness.sock")
	_, err = witness.OfHost()
	g.Expect(err).To(MatchError(And(ContainSubstring(`"/run/witness.sock"`), ContainSubstring("unix:///run/election/witness.sock"))))
}

// childOf returns the child of a process, as which a program has its witness; 0 if it has none.
func childOf(t *testing.T, pid int) int {
	t.Helper()
	if children := proctest.Children(pid); len(children) > 0 {
		return children[0]
	}
	return 0
}

// releasedBecause returns the reason of a release; empty if the value is none.
func releasedBecause(value []byte) string {
	var r struct {
		Released time.Time `json:"released"`
		Reason   string    `json:"reason"`
	}
	if json.Unmarshal(value, &r) != nil || r.Released.IsZero() {
		return ""
	}
	return r.Reason
}

// shortDir returns a folder whose path is short enough for a socket.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "w")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
