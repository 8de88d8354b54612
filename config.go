package election

import (
	"log/slog"
	"math/rand/v2"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/natscampaign/election/internal/core"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/lease"
	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/settings"
	"github.com/natscampaign/election/internal/timeutil"
)

// config is what an election is made of. It never changes.
type config struct {
	name, key, instance, host string
	pid                       int
	bucket                    *kv.Bucket
	wake                      chan struct{} // receives when something happened that may change what the loop does next
	opts                      *settings.Options
	log                       *slog.Logger
}

// identity returns what metrics call this candidate.
func (c *config) identity() string {
	if c.opts.Identity != nil {
		return *c.opts.Identity
	}
	return c.name
}

// labels returns the labels of all metrics of the candidate.
func (c *config) labels() prometheus.Labels {
	return prometheus.Labels{"bucket": c.bucket.Bucket(), "election": c.key, "identity": c.identity()}
}

// world is what package core needs of the world in a program: its clocks, its random numbers and its secrets.
var world = core.World{
	Random: timeutil.Random, NewID: record.NewID, NewSecret: record.NewSecret, Clocks: lease.Read, Boot: lease.SinceBoot, Slewed: lease.Slewed, Started: lease.Read(), Seed: rand.Uint64(),
}

// rules returns the rules of the candidate under an instance.
func (c *config) rules(instance string) *core.Rules {
	o := c.opts
	return &core.Rules{
		BucketName: c.bucket.Bucket(), Name: c.name, Instance: instance, Host: c.host, PID: c.pid, Priority: o.Priority, Order: o.Order,
		Plain: o.PlainValue, Preempts: o.Preempt, HasBackoff: o.Backoff != nil, Connected: c.bucket.Conn() != nil, Direct: c.bucket.Direct(), ReadSubject: c.bucket.ToRead(c.key).Subject, Target: o.Target, World: &world,
	}
}
