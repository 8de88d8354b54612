// Package settings holds what the options of an election set, and checks it: for package election, whose options set it, and for the packages
// of this module that take the same options.
package settings

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/robfig/cron/v3"

	"github.com/natscampaign/election/internal/core"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/timing"
	"github.com/natscampaign/election/internal/validate"
	"github.com/natscampaign/election/internal/witness"
)

// Options are what options set. An Option of package election is a function that sets some of it.
type Options struct {
	timing.Durations
	Callbacks
	JetStream  jetstream.JetStream // nil unless WithJetStream gives it
	Logger     *slog.Logger
	Debug      func(format string, a ...any)
	Metadata   map[string]string
	PlainValue bool    // the record is the bare name
	Backoff    Backoff // nil if campaigns come at the intervals of renewals
	Priority   int
	Preempt    bool
	NoForce    bool // see WithoutForcedReconnect
	Order      core.Order
	NoStandbys bool // whether a candidate is ready to take over says nothing about its election; see WithoutStandbys

	Registerer      prometheus.Registerer // nil for no metrics
	GivenRegisterer bool                  // WithRegisterer was given, perhaps nil
	Namespace       string                // the prefix of the names of metrics; empty if they have none
	Identity        *string               // what metrics call the candidate; nil for its name
	Choria          *string               // the prefix of Choria's names of metrics; nil for no such names

	Health          func(context.Context) error
	HealthThreshold int
	Schedule        cron.Schedule // of WithRelinquish; nil if there is none
	ScheduleErr     error         // what is wrong with it

	SplayOnce bool // only the first run is splayed

	Observing func(error) // of an observer: is told why elections cannot be observed, and nil once they are

	Witness Witness // is told of the terms; nil if there is none

	Claim Claim // the key is one of a session; nil if the election is a candidate of its own

	Target func(record.Successor) record.Successor // see core.Rules

	// Where a new candidate is to leave a function that reports whether its last request failed, of whatever kind: it may be cut off.
	LastRequestFailed *func() bool

	missing []string // options that were given nil
	short   bool     // the interval is short by default; see ShortInterval
}

// Witness is told of the terms of a candidate, as they begin and when they are over. Its methods never wait.
type Witness interface {
	Began(t witness.Term)
	Over(c record.Commitment)
}

// Backoff is the Backoff of package election.
type Backoff interface {
	Duration(n int) time.Duration
}

// Callbacks are the functions that options register.
type Callbacks struct {
	OnWon, OnLost []func()
	OnCampaign    []func(core.State)
	OnLeader      []func(*Holder)
	OnNext        []func(next bool)
}

// Holder is the holder of a key, as its record was read in a bucket with the given TTL. The zero Holder is nobody.
type Holder struct {
	record.Record
	Key      string
	Revision uint64
	Written  time.Time
	TTL      time.Duration
}

// ByArrival is an option for the candidates of a lock: a release names those that wait, in the order in which they came.
func ByArrival(o *Options) { o.Order, o.NoStandbys = core.ByArrival, true }

// ByChance is an option for the candidates of slots: a release names nobody.
func ByChance(o *Options) { o.Order, o.NoStandbys = core.ByChance, true }

// WithoutStandbys is an option for candidates whose election is well while no other candidate waits to take over, as those of a key that a group
// assigns to one member: they neither count nor miss standbys. It is an option of every lock and slot, too.
func WithoutStandbys(o *Options) { o.NoStandbys = true }

// SplayOnce is an option for a candidate that is started again and again: only its first run is splayed.
func SplayOnce(o *Options) { o.SplayOnce = true }

// ShortInterval is an option for the candidates of package connect and of the command, which take the interval that suits most elections unless
// they are given one. Candidates of Choria learn of a loss by their next renewal only, and so a winner among them stands down for as long as they
// wait for it: no interval is short where they may campaign too.
func ShortInterval(o *Options) { o.short = true }

// TimingIn returns the durations in a bucket, or an error if one does not fit it.
func (o *Options) TimingIn(i kv.Info) (timing.Timing, error) {
	d := o.Durations
	if d.Interval == nil && o.short {
		d.Interval = new(o.SuitableInterval(i, i.TTL))
	}
	return d.Timing(i.TTL)
}

// SuitableInterval returns the interval that suits most elections in a bucket, if its TTL is the given one. Bare names are written where candidates of
// Choria, or their tools, look at them.
func (o *Options) SuitableInterval(i kv.Info, ttl time.Duration) time.Duration {
	if o.PlainValue {
		return timing.DefaultInterval(ttl)
	}
	return i.SuitableInterval(ttl)
}

// Of returns what the options set, and an error that names everything that is wrong with them for a candidate of the given name and key in the
// bucket, as far as that can be found without the server.
func Of[Option ~func(*Options)](opts []Option, name, key string, bucket jetstream.KeyValue) (*Options, error) {
	o := apply(opts)
	return o, o.validate(name, key, bucket)
}

// apply returns what options set.
func apply[Option ~func(*Options)](opts []Option) *Options {
	o := &Options{HealthThreshold: defaultThreshold}
	for _, opt := range opts {
		if o.Require("an option", opt != nil) {
			opt(o)
		}
	}
	return o
}

// defaultThreshold is how many health checks must fail in a row.
const defaultThreshold = 3

// Require records that an option was given nil, unless it was given what it needs.
func (o *Options) Require(option string, given bool) bool {
	if !given {
		o.missing = append(o.missing, option)
	}
	return given
}

// Bucket returns the bucket with the connection that the options name, or that the bucket knows.
func (o *Options) Bucket(bucket jetstream.KeyValue) *kv.Bucket { return kv.With(bucket, o.JetStream) }

func (o *Options) validate(name, key string, bucket jetstream.KeyValue) error {
	problems := []error{validate.Name(name), validate.Key(key), o.Durations.Validate(), validate.Metadata(o.Metadata), o.ScheduleErr, o.validateMetrics(), o.validateClaim()}
	if n := o.HealthThreshold; n < 1 || n > 1000 {
		problems = append(problems, validate.Errorf("WithHealthThreshold(%d): give a number from 1 to 1000", n))
	}
	problems = append(problems, o.validateGiven())
	if o.PlainValue && record.Parse([]byte(name), 0).Instance != "" {
		problems = append(problems, validate.Errorf("WithPlainValue: the name %q would be read as a record: use another", name))
	}
	if validate.IsNil(bucket) {
		problems = append(problems, validate.Errorf("the bucket is nil: pass the one that OpenBucket, CreateBucket or JetStream.KeyValue returned"))
	} else if (o.Preempt || o.Schedule != nil) && o.Bucket(bucket).Conn() == nil {
		problems = append(problems, validate.Errorf("WithPreemption and WithRelinquish ask other candidates over NATS: use a bucket of OpenBucket or CreateBucket, or give WithJetStream"))
	}
	return errors.Join(problems...)
}

// validateGiven returns an error that names the options that were given nil.
func (o *Options) validateGiven() error {
	var problems []error
	for _, option := range o.missing {
		problems = append(problems, validate.Errorf("%s was given nil: leave the option out instead", option))
	}
	return errors.Join(problems...)
}

func (o *Options) validateMetrics() error {
	problems := []error{validate.Namespace(o.Namespace)}
	if o.Choria != nil && !validate.IsNamespace(*o.Choria) {
		problems = append(problems, validate.Errorf("WithChoriaMetrics: %q begins no name of a metric: use %q, or %q for asyncjobs", *o.Choria, "choria", "choria_asyncjobs"))
	}
	if o.Choria != nil && !o.GivenRegisterer {
		problems = append(problems, validate.Errorf("WithChoriaMetrics adds to the metrics of WithRegisterer: give both"))
	}
	if o.Identity != nil && validate.Name(*o.Identity) != nil {
		problems = append(problems, validate.Errorf("WithMetricsIdentity(%.50q): use printable text without spaces around it, 1 to %d bytes", *o.Identity, validate.MaxNameBytes))
	}
	return errors.Join(problems...)
}
