package fence_test

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/drill/faultproxy"
	"github.com/natscampaign/election/internal/test/natstest"
)

var (
	episodes = flag.Int("episodes", 10, "how often a leader is replaced while it writes")
	atOnce   = flag.Int("at-once", 10, "elections that one process leads, and loses at once")
)

func tokenOf(data []byte) string {
	var record struct{ Token string }
	if err := json.Unmarshal(data, &record); err != nil {
		return err.Error()
	}
	return record.Token
}

// ground is a cluster with a replicated stream, and candidates that take turns at leading.
type ground struct {
	*testing.T
	*WithT
	cluster *natstest.Cluster
	js      jetstream.JetStream
	keys    []string

	rivals []*election.Election // in the order in which they led

	mu      sync.Mutex
	wrote   [2]map[string]string // the token of the newest term in which each fleet wrote, by key
	fenced  map[string]bool      // tokens of terms whose handles were closed
	refused int
	changed chan struct{}
}

func newGround(t *testing.T, ttl time.Duration, change ...func(*jetstream.StreamConfig)) *ground {
	t.Helper()
	g := &ground{T: t, WithT: NewWithT(t), cluster: natstest.StartCluster(t, 3), keys: keysOf(min(*atOnce, *episodes)), fenced: map[string]bool{}, changed: make(chan struct{}, 1)}
	g.wrote = [2]map[string]string{{}, {}}
	nc := g.cluster.Connect(t)
	g.cluster.Bucket(t, nc, ttl, natstest.WithMarkers)
	var err error
	g.js, err = jetstream.New(nc, jetstream.WithDefaultTimeout(unhurried))
	g.Expect(err).NotTo(HaveOccurred())
	cfg := jetstream.StreamConfig{Name: streamName, Subjects: []string{"orders.>"}, Replicas: 3}
	for _, f := range change {
		f(&cfg)
	}
	_, err = g.js.CreateStream(ctx, cfg)
	g.Expect(err).NotTo(HaveOccurred())
	return g
}

// reports returns what to call with the events of a fleet.
func (g *ground) reports(fleet int) func(event, key, token string) {
	return func(event, key, token string) {
		g.mu.Lock()
		defer g.mu.Unlock()
		switch event {
		case eventWrote:
			g.wrote[fleet][key] = token
		case eventFenced:
			g.fenced[token+key] = true
		case eventRefused:
			g.refused++
		}
		select {
		case g.changed <- struct{}{}:
		default:
		}
	}
}

// until waits until a condition holds for every key.
func (g *ground) until(what string, is func(key string) bool) {
	g.Helper()
	for limit := time.After(5 * time.Minute); ; {
		g.mu.Lock()
		left := []string{}
		for _, key := range g.keys {
			if !is(key) {
				left = append(left, key)
			}
		}
		g.mu.Unlock()
		if len(left) == 0 {
			return
		}
		select {
		case <-g.changed:
		case <-limit:
			g.Fatalf("%s: not for %q", what, left)
		}
	}
}

// leads waits until a fleet has written in every election, each time in a term newer than any of the other's.
func (g *ground) leads(fleet int) {
	g.Helper()
	g.until(fmt.Sprintf("fleet %d leads and writes", fleet), func(key string) bool {
		return g.wrote[fleet][key] > g.wrote[1-fleet][key]
	})
}

// led returns how many elections a fleet leads.
func (g *ground) led(fleet int) (n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, key := range g.keys {
		if g.wrote[fleet][key] > g.wrote[1-fleet][key] {
			n++
		}
	}
	return n
}

// refusals returns how many late writes were refused.
func (g *ground) refusals() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.refused
}

// play has two fleets replace each other, in all elections at once, for a number of episodes, and then judges the stream. fail makes the
// network or the process of a fleet fail, and returns a function that ends the failure.
func (g *ground) play(fail func(fleet int) (mend func())) {
	began := time.Now()
	g.until("somebody leads", func(key string) bool { return g.wrote[0][key] != "" || g.wrote[1][key] != "" })
	played := 0
	for turn := 0; played < *episodes; turn = 1 - turn {
		led := g.led(turn)
		mend := fail(turn)
		g.leads(1 - turn)
		g.mu.Lock()
		former := maps.Clone(g.wrote[turn]) // before it is mended, and may win again
		g.mu.Unlock()
		mend()
		g.until("the former leader is fenced", func(key string) bool {
			return former[key] == "" || g.fenced[former[key]+key]
		})
		played += led
	}
	g.Eventually(g.refusals).WithTimeout(5*time.Minute).Should(BeNumerically(">=", played), "every late writer goes on until it is refused")
	g.Logf("%d episodes in %v, %d late writes refused", played, time.Since(began).Round(time.Second), g.refusals())
	v, err := judge(ctx, g.js)
	g.Expect(err).NotTo(HaveOccurred())
	g.Logf("%d writes in %d epochs, %d of them stale", v.writes, v.epochs, len(v.stale))
	g.Expect(v.stale).To(BeEmpty())
	g.Expect(v.epochs).To(BeNumerically(">=", *episodes))
}

func TestNoWriteOfALeaderWhoseLinkFailsIsStoredInANewerEpoch(t *testing.T) {
	inRealTime(t)
	g := newGround(t, fleetTTL)
	links := [2]*faultproxy.Link{}
	for i := range links {
		server := g.cluster.Servers()[i]
		links[i] = server.Link(t)
		f, err := startFleet(fmt.Sprintf("fleet%d", i), natstest.Connect(t, links[i]), g.keys, g.reports(i))
		g.Expect(err).NotTo(HaveOccurred())
		t.Cleanup(f.end)
	}
	faults := []func(l *faultproxy.Link){(*faultproxy.Link).Stall, (*faultproxy.Link).Stall, (*faultproxy.Link).Cut}
	g.play(func(fleet int) func() {
		faults[rand.N(len(faults))](links[fleet])
		return links[fleet].Heal
	})
}

func TestNoWriteOfALeaderThatWasStoppedIsStoredInANewerEpoch(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there is no SIGSTOP on Windows")
	}
	inRealTime(t)
	g := newGround(t, fleetTTL)
	processes := [2]*os.Process{}
	for i := range processes {
		processes[i] = g.process(i)
	}
	g.play(func(fleet int) func() {
		g.Expect(processes[fleet].Signal(stopSignal)).To(Succeed())
		return func() { g.Expect(processes[fleet].Signal(continueSignal)).To(Succeed()) }
	})
}

// inRealTime runs a test of clusters, or of leases that run out, in real time: beside others of its kind, and not with -short.
func inRealTime(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("clusters and leases take real time: not with -short")
	}
	t.Parallel()
}

// leaderEnv has the test binary, started again, be a process of leaders: the addresses of the servers.
const leaderEnv = "FENCE_TEST_SERVERS"

// process starts a fleet in a process of its own, which ends with the test.
func (g *ground) process(i int) *os.Process {
	g.Helper()
	cmd := exec.Command(os.Args[0], fmt.Sprintf("-at-once=%d", len(g.keys)), fmt.Sprintf("-fleet=%d", i))
	cmd.Env = append(os.Environ(), leaderEnv+"="+g.cluster.URL())
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	g.Expect(err).NotTo(HaveOccurred())
	out, err := cmd.StdoutPipe()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(cmd.Start()).To(Succeed())
	read := make(chan struct{})
	go func() {
		defer close(read)
		report := g.reports(i)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var event, key, token string
			if _, err := fmt.Sscan(lines.Text(), &event, &key, &token); err == nil {
				report(event, key, token)
			}
		}
	}()
	g.Cleanup(func() {
		_ = cmd.Process.Signal(continueSignal)
		_ = in.Close()
		<-read
		_ = cmd.Wait()
	})
	return cmd.Process
}

var fleetNumber = flag.Int("fleet", 0, "which process of leaders this is")

// runAsLeader is a process of leaders, until its input ends; false if this is a test run.
func runAsLeader() bool {
	servers := os.Getenv(leaderEnv)
	if servers == "" {
		return false
	}
	flag.Parse()
	var printing sync.Mutex
	err := func() error {
		nc, err := nats.Connect(servers, nats.Timeout(unhurried), nats.ReconnectBufSize(-1), nats.MaxReconnects(-1))
		if err != nil {
			return err
		}
		defer nc.Close()
		f, err := startFleet(fmt.Sprintf("fleet%d", *fleetNumber), nc, keysOf(*atOnce), func(event, key, token string) {
			printing.Lock()
			defer printing.Unlock()
			fmt.Println(event, key, token)
		})
		if err != nil {
			return err
		}
		defer f.end()
		_, err = io.Copy(io.Discard, os.Stdin)
		return err
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return true
}
