package driver_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/core"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/lease"
	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/session"
	"github.com/natscampaign/election/internal/session/driver"
	"github.com/natscampaign/election/internal/test/natstest"
	"github.com/natscampaign/election/internal/timeutil"
	"github.com/natscampaign/election/internal/timing"
)

func TestMain(m *testing.M) { natstest.VerifyTestMain(m) }

const ttl = 10 * time.Second

// process is a process that campaigns for keys by one session. It has neither callbacks nor work.
type process struct {
	*driver.Driver
	claims []*session.Claim
	wakers map[*session.Claim]*time.Timer
	leads  map[*session.Claim]bool // the mutex of the driver guards it
	all    chan struct{}           // receives when it has come to lead all its keys
}

// start starts a process that campaigns for so many keys.
func start(t testing.TB, js jetstream.JetStream, name string, keys int) *process {
	t.Helper()
	durations, err := (&timing.Durations{}).Timing(ttl)
	if err != nil {
		t.Fatal(err)
	}
	rules := &session.Rules{Name: name, Timing: durations, World: &core.World{
		Random: timeutil.Random, NewID: record.NewID, NewSecret: record.NewSecret, Clocks: lease.Read, Boot: lease.SinceBoot, Slewed: lease.Slewed, Started: lease.Read(),
	}}
	p := &process{wakers: map[*session.Claim]*time.Timer{}, leads: map[*session.Claim]bool{}, all: make(chan struct{}, 1)}
	look := func(c *session.Claim, _ time.Time) { p.look(c) }
	if p.Driver, err = driver.New(js, "S", rules, driver.Shells{Look: look}, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.crash)
	p.Do(func(s *session.Session, now time.Time) {
		for i := range keys {
			c := s.Campaign(fmt.Sprint("key-", i))
			p.claims = append(p.claims, c)
			c.Begin(now, now)
			p.look(c)
		}
	})
	return p
}

// look does what a shell does of a claim that has neither callbacks nor work.
func (p *process) look(c *session.Claim) {
	now := time.Now()
	c.Done(now, core.Result{Quiet: true})
	op, _ := c.Next(now)
	if t := c.Term(); t != nil && t.Lease.State == core.Leader {
		p.leads[c] = true
	} else {
		delete(p.leads, c)
	}
	if len(p.leads) == len(p.claims) && len(p.leads) > 0 {
		select {
		case p.all <- struct{}{}:
		default:
		}
	}
	if w := p.wakers[c]; w != nil {
		w.Stop()
	}
	if !op.Until.IsZero() {
		p.wakers[c] = time.AfterFunc(max(0, time.Until(op.Until)), func() { p.Do(func(*session.Session, time.Time) { p.look(c) }) })
	}
}

// led returns how many keys the process leads.
func (p *process) led() (n int) {
	p.Do(func(_ *session.Session, now time.Time) {
		for c := range p.leads {
			if c.Term().Lease.Left(now, lease.SinceBoot) > 0 {
				n++
			}
		}
	})
	return n
}

// end ends the process in order.
func (p *process) end() {
	p.Do(func(s *session.Session, now time.Time) {
		s.Close(now)
		for _, c := range p.claims {
			c.Notice(now, core.Stop{})
			p.look(c)
		}
	})
}

// crash ends the process without any order.
func (p *process) crash() {
	p.Close()
	for _, w := range p.wakers {
		w.Stop()
	}
}

// bucket makes a bucket for sessions that is settled.
func bucket(t testing.TB, s *natstest.Server) (connect func() jetstream.JetStream) {
	t.Helper()
	connect = func() jetstream.JetStream {
		js, err := jetstream.New(s.Connect(t))
		if err != nil {
			t.Fatal(err)
		}
		return js
	}
	err := kv.SessionsConfig{Name: "S", TTL: ttl, Storage: jetstream.MemoryStorage}.Create(context.Background(), connect())
	if err != nil {
		t.Fatal(err)
	}
	first := start(t, connect(), "first", 0)
	time.Sleep(ttl + ttl/4)
	first.end()
	time.Sleep(time.Second)
	first.crash()
	return connect
}

// bubble plays a test on virtual time.
func bubble(t *testing.T, play func(t *testing.T, g *WithT, connect func() jetstream.JetStream)) {
	natstest.Bubble(t, func(t *testing.T) { play(t, NewWithT(t), bucket(t, natstest.Start(t))) })
}

func TestOneRenewalKeepsAllKeysOfAProcess(t *testing.T) {
	const keys = 500
	bubble(t, func(t *testing.T, g *WithT, connect func() jetstream.JetStream) {
		p := start(t, connect(), "a", keys)
		time.Sleep(time.Second)
		g.Expect(p.led()).To(Equal(keys))
		before := p.Requests()
		g.Expect(before).To(BeNumerically("<", 2*keys))
		for range 20 {
			time.Sleep(ttl / 2)
			g.Expect(p.led()).To(Equal(keys))
		}
		g.Expect(p.Requests()-before).To(BeNumerically("<=", 14), "one for each interval of three quarters of a TTL")
		p.end()
		time.Sleep(time.Second)
	})
}

func TestKeysOfASessionThatIsReleasedAreLedAgainAtOnce(t *testing.T) {
	const keys = 500
	bubble(t, func(t *testing.T, g *WithT, connect func() jetstream.JetStream) {
		a := start(t, connect(), "a", keys)
		time.Sleep(time.Second)
		b, c := start(t, connect(), "b", keys), start(t, connect(), "c", keys)
		time.Sleep(time.Second)
		g.Expect(b.led() + c.led()).To(BeZero())
		a.end()
		time.Sleep(200 * time.Millisecond)
		g.Expect(b.led() + c.led()).To(Equal(keys))
		g.Expect(b.led()).To(BeNumerically("~", keys/2, keys/5), "they share them")
		b.end()
		c.end()
		time.Sleep(time.Second)
	})
}

func TestKeysOfAProcessThatDiesAreLedAgainOnceItsLeaseHasLapsed(t *testing.T) {
	const keys = 500
	bubble(t, func(t *testing.T, g *WithT, connect func() jetstream.JetStream) {
		a := start(t, connect(), "a", keys)
		time.Sleep(time.Second)
		b := start(t, connect(), "b", keys)
		time.Sleep(ttl)
		g.Expect(b.led()).To(BeZero())
		a.crash()
		time.Sleep(ttl + ttl/20)
		g.Expect(b.led()).To(Equal(keys))
		b.end()
		time.Sleep(time.Second)
	})
}

func TestConsumerThatIsRemovedIsMadeAnewAndNoKeyIsLost(t *testing.T) {
	const keys = 20
	bubble(t, func(t *testing.T, g *WithT, connect func() jetstream.JetStream) {
		js := connect()
		a, b := start(t, connect(), "a", keys), (*process)(nil)
		time.Sleep(time.Second)
		stream, err := js.Stream(context.Background(), "KV_S")
		g.Expect(err).NotTo(HaveOccurred())
		for name := range stream.ConsumerNames(context.Background()).Name() {
			g.Expect(stream.DeleteConsumer(context.Background(), name)).To(Succeed())
		}
		for range 10 {
			time.Sleep(ttl / 4)
			g.Expect(a.led()).To(Equal(keys))
		}
		b = start(t, connect(), "b", keys)
		time.Sleep(time.Second)
		a.end()
		time.Sleep(200 * time.Millisecond)
		g.Expect(b.led()).To(Equal(keys))
		b.end()
		time.Sleep(time.Second)
	})
}

// All keys of a process that were never led before, in a bucket that is settled.
func BenchmarkStart(b *testing.B) {
	for _, keys := range []int{2000, 20_000} {
		b.Run(fmt.Sprint(keys, "-keys"), func(b *testing.B) {
			for range b.N {
				b.StopTimer()
				connect := bucket(b, natstest.StartTCP(b))
				js := connect()
				b.StartTimer()
				p := start(b, js, "a", keys)
				<-p.all
				b.StopTimer()
				b.ReportMetric(float64(p.Requests())/float64(keys), "requests/key")
				p.end()
				p.crash()
				b.StartTimer()
			}
		})
	}
}
