package bench

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/test/natstest"
	"github.com/natscampaign/election/session"
	"github.com/natscampaign/election/witness"
)

// oneSession has one session lead the keys, by the elections that users have. The bucket is settled: no key was ever claimed in it.
func oneSession(tb testing.TB, n, ttls int) {
	f := newFleet(tb, startServerProcess(tb), keysTTL, 1)
	nc := f.connect()
	js := f.jetStream(nc)
	natstest.SettledBucket(tb, js, "SESSIONS", keysTTL)
	before := heap()
	begun := time.Now()
	s, elections := lead(tb, js, "a", n)
	started := time.Since(begun)
	memory := heap() - before
	sent, received := nc.Stats().OutMsgs, nc.Stats().InMsgs
	reportCost(tb, ttls, started, func() { time.Sleep(time.Duration(ttls) * keysTTL) },
		func() uint64 { return nc.Stats().OutMsgs - sent }, func() uint64 { return nc.Stats().InMsgs - received })
	if b, ok := tb.(*testing.B); ok {
		b.ReportMetric(float64(memory)/float64(n), "B/key")
	}
	for _, e := range elections {
		if !e.IsLeader() {
			tb.Errorf("only %d of %d keys were led", s.Status().Led, n)
			break
		}
	}
	if err := s.Close(context.Background()); err != nil {
		tb.Error(err)
	}
}

// lead has a process lead as many keys, and returns when it leads all.
func lead(tb testing.TB, js jetstream.JetStream, name string, n int, opts ...election.Option) (*session.Session, []*election.Election) {
	s, elections, led := campaign(tb, js, name, n, opts...)
	led.Wait()
	return s, elections
}

// campaign has a process campaign for as many keys. led is done when it has led each.
func campaign(tb testing.TB, js jetstream.JetStream, name string, n int, opts ...election.Option) (s *session.Session, elections []*election.Election, led *sync.WaitGroup) {
	s, err := session.Open(context.Background(), js, session.Config{Bucket: "SESSIONS", Name: name}, witnessOfSession.Option())
	if err != nil {
		tb.Fatal(err)
	}
	led = &sync.WaitGroup{}
	led.Add(n)
	for i := range n {
		e, err := s.Election(fmt.Sprintf("key-%d", i), append([]election.Option{election.OnWon(sync.OnceFunc(led.Done))}, opts...)...)
		if err != nil {
			tb.Fatal(err)
		}
		elections = append(elections, e)
		go func() { _ = e.Start(context.Background()) }()
	}
	return s, elections, led
}

// heap returns how much memory the process uses, stacks included.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}

// sessionProcess is the variable that makes this binary a process that leads the keys by a session: "witness", if it has one, or "alone".
const sessionProcess = "ELECTION_BENCH_SESSION"

var witnessOfSession *witness.Witness

// startWitness starts the witness of a process that is to have one. TestMain calls it first.
func startWitness() {
	if os.Getenv(sessionProcess) != "witness" {
		return
	}
	var err error
	witnessOfSession, err = witness.Start(func(context.Context) (*nats.Conn, error) { return nats.Connect(os.Getenv("NATS_URL")) }, witness.WithSettleTime(deathSettle))
	if err != nil {
		panic(err)
	}
}

// TestSessionProcess is a process that leads the keys until its input ends, and then closes its session.
func TestSessionProcess(t *testing.T) {
	if os.Getenv(sessionProcess) == "" {
		t.Skip("runs when a benchmark of sessions asks for it")
	}
	js, err := jetstream.New(connect(t, os.Getenv("NATS_URL")))
	if err != nil {
		t.Fatal(err)
	}
	s, _ := lead(t, js, "leader", manyKeys)
	untilOrphaned("leads")
	fmt.Println(time.Now().UnixNano())
	if err := s.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
}

const manyKeys = 2000

// BenchmarkEndOfManyLeaders measures until all of 2,000 keys are led again, from when the process that leads them is killed, with a witness or without, or
// begins to close its session. Two other processes take over, by the sessions of two connections. It fails if both ever lead a key.
func BenchmarkEndOfManyLeaders(b *testing.B) {
	for _, way := range []string{"closed", "witness", "alone"} {
		b.Run(way, func(b *testing.B) {
			var times sample
			for b.Loop() {
				times.add(endOfManyLeaders(b, way), time.Millisecond)
			}
			times.report(b, "ms")
		})
	}
}

func endOfManyLeaders(b *testing.B, way string) time.Duration {
	server := startServerProcess(b)
	f := newFleet(b, server, keysTTL, 1)
	natstest.SettledBucket(b, f.jetStream(f.connect()), "SESSIONS", keysTTL)
	leader := startChild(b, "TestSessionProcess", sessionProcess+"="+way, "NATS_URL="+server.url)
	if line := leader.line(b); line != "leads" {
		b.Fatal(line)
	}
	var led atomic.Int64
	all := make(chan time.Time, 1)
	won := election.OnWon(func() {
		if led.Add(1) == manyKeys {
			all <- time.Now()
		}
	})
	var sessions []*session.Session
	for _, name := range []string{"b", "c"} {
		s, _, _ := campaign(b, f.jetStream(f.connect()), name, manyKeys, won)
		sessions = append(sessions, s)
	}
	time.Sleep(keysTTL / 3) // until they have timed a renewal
	began := time.Now()
	if way == "closed" {
		_ = leader.in.Close()
		ns, err := strconv.ParseInt(leader.line(b), 10, 64)
		if began = time.Unix(0, ns); err != nil {
			b.Fatal(err)
		}
	} else {
		_ = leader.Process.Kill()
	}
	at := <-all
	if n := sessions[0].Status().Led + sessions[1].Status().Led; n != manyKeys {
		b.Errorf("%d of %d keys are led", n, manyKeys)
	}
	for _, s := range sessions {
		_ = s.Close(context.Background())
	}
	return at.Sub(began)
}
