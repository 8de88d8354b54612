package bench

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election/internal/core"
	"github.com/natscampaign/election/internal/lease"
	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/session"
	"github.com/natscampaign/election/internal/session/driver"
	"github.com/natscampaign/election/internal/timeutil"
	"github.com/natscampaign/election/internal/timing"
)

// oneSession has one session lead the keys, with neither callbacks nor work. The bucket is settled: no key was ever claimed in it.
func oneSession(tb testing.TB, n, ttls int) {
	f := newFleet(tb, startServerProcess(tb), keysTTL, 1)
	nc := f.connect()
	js := f.jetStream(nc)
	_, err := js.CreateStream(context.Background(), jetstream.StreamConfig{
		Name: "KV_SESSIONS", Subjects: []string{"$KV.SESSIONS.>"}, MaxMsgsPerSubject: 1, AllowMsgTTL: true, DenyDelete: true, DenyPurge: true, Discard: jetstream.DiscardNew,
	})
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := js.Publish(context.Background(), "$KV.SESSIONS.settled", nil, jetstream.WithExpectLastSequencePerSubject(0)); err != nil {
		tb.Fatal(err)
	}
	durations, err := (&timing.Durations{}).Timing(keysTTL)
	if err != nil {
		tb.Fatal(err)
	}
	leads, all := map[*session.Claim]bool{}, make(chan struct{})
	var once sync.Once
	look := func(c *session.Claim) {
		now := time.Now()
		c.Done(now, core.Result{Quiet: true})
		_, _ = c.Next(now)
		if t := c.Term(); t != nil && t.Lease.State == core.Leader {
			leads[c] = true
		} else {
			delete(leads, c)
		}
		if len(leads) == n {
			once.Do(func() { close(all) })
		}
	}
	begun := time.Now()
	d, err := driver.New(js, "SESSIONS", &session.Rules{Name: "a", Timing: durations, World: &core.World{
		Random: timeutil.Random, NewID: record.NewID, NewSecret: record.NewSecret, Clocks: lease.Read, Boot: lease.SinceBoot, Slewed: lease.Slewed, Started: lease.Read(),
	}}, look, slog.New(slog.DiscardHandler))
	if err != nil {
		tb.Fatal(err)
	}
	defer d.Close()
	d.Do(func(s *session.Session, now time.Time) {
		for i := range n {
			c := s.Campaign(fmt.Sprint("key-", i))
			c.Begin(now, now)
			look(c)
		}
	})
	<-all
	started := time.Since(begun)
	sent, received := nc.Stats().OutMsgs, nc.Stats().InMsgs
	reportCost(tb, ttls, started, func() { time.Sleep(time.Duration(ttls) * keysTTL) },
		func() uint64 { return nc.Stats().OutMsgs - sent }, func() uint64 { return nc.Stats().InMsgs - received })
	d.Do(func(*session.Session, time.Time) {
		if len(leads) < n {
			tb.Errorf("only %d of %d keys were led", len(leads), n)
		}
	})
}
