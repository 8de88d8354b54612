package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/core"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/lease"
	"github.com/natscampaign/election/internal/natsconn"
	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/session"
	"github.com/natscampaign/election/internal/session/driver"
	"github.com/natscampaign/election/internal/settings"
	"github.com/natscampaign/election/internal/timeutil"
	"github.com/natscampaign/election/internal/timing"
	"github.com/natscampaign/election/internal/validate"
)

const (
	// MaxKeys is how many elections a session can have.
	MaxKeys = 20_000
	// MaxSessions is how many sessions a bucket can have at a time: each receives the renewals of all.
	MaxSessions = 100
)

// ErrFull is returned by [Open] if the bucket has [MaxSessions] sessions, and by [Session.Election] if the session has [MaxKeys] elections. The session of a
// process that was killed counts until another has closed it, for four TTLs at most. Several that open at the same time may exceed the limit.
var ErrFull = errors.New("session: full")

// Config says which bucket a session is opened in, and by what name.
type Config struct {
	Bucket string // letters, digits, - and _; Open makes it, if there is none
	Name   string // of this process and of all its elections; unique in the fleet, for Transfer goes by it

	// What follows is for the bucket that Open makes. Where there is one, TTL must be what it has, or 0.
	TTL      time.Duration         // of every session in the bucket: 1 s to 1 h; 0 is 15 s, or what the bucket has
	Replicas int                   // 1, 3 or 5; 0 is 3, where the cluster has so many servers, or else 1
	Storage  jetstream.StorageType // file by default; memory, with one replica only, forgets term numbers when the server restarts
}

// Session is the session of a process: one lease for all keys that it leads. Make it with [Open]. All methods may be called at any time, from any goroutine.
type Session struct {
	cfg    Config
	bucket *election.Bucket
	timing timing.Timing
	opts   *settings.Options
	log    *slog.Logger
	driver *driver.Driver
	guard  *natsconn.Guard
	ctx    context.Context // ends when the session is closed
	cancel context.CancelFunc

	metrics *metrics
	close   sync.Once

	// The driver's mutex guards what follows.
	claims    map[*session.Claim]*claim
	elections map[string]*election.Election // by key; nil while one is being made
	closing   bool
}

// Open opens a session, and makes the bucket if there is none. It returns when the session is open and knows what the bucket stores. Until [Session.Close] the
// session renews its lease by itself; if the lease is lost, it opens another by itself.
//
// ctx is for Open alone. Give it a deadline: a permission that is missing may not end Open, and the error says then why the last request failed.
//
// Of the options of an election it takes those that concern the process: election.WithLogger, WithDebug, WithRegisterer, WithMetricsNamespace,
// WithMetricsIdentity, WithReleaseTimeout, WithoutForcedReconnect, and that of a witness. The elections of the session log where the session does.
//
// The error wraps election.ErrInvalidOption, election.ErrBucketUnsuitable if the bucket is not one for sessions, [ErrFull], or that of ctx if the server could
// not be reached before ctx ended.
func Open(ctx context.Context, js jetstream.JetStream, cfg Config, opts ...election.Option) (*Session, error) {
	if validate.IsNil(js) {
		return nil, validate.Errorf("the JetStream context is nil: pass the one that jetstream.New returned")
	}
	o, err := optionsOf(cfg, opts)
	if err != nil {
		return nil, err
	}
	bucket, info, err := openBucket(ctx, js, cfg)
	if err != nil {
		return nil, err
	}
	s := &Session{
		cfg: cfg, bucket: bucket, opts: o, log: o.Log().With("bucket", cfg.Bucket, "name", cfg.Name),
		claims: map[*session.Claim]*claim{}, elections: map[string]*election.Election{},
	}
	if s.timing, err = timingOf(o, info.SessionTTL); err != nil {
		return nil, err
	}
	s.ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	s.guard = natsconn.NewGuard(js.Conn(), !o.NoForce, s.log)
	if s.driver, err = driver.New(js, cfg.Bucket, s.rules(), driver.Shells{Look: s.look, Suspect: s.suspect, Witness: o.Witness}, s.log); err != nil {
		s.discard()
		return nil, fmt.Errorf("session in %q: %w", cfg.Bucket, err)
	}
	go s.endWithConnection()
	err = s.awaitOpen(ctx)
	if err == nil {
		s.metrics, err = register(s)
	}
	if err != nil {
		_ = s.Close(ctx)
		return nil, err
	}
	return s, nil
}

// optionsOf checks the configuration and the options.
func optionsOf(cfg Config, opts []election.Option) (*settings.Options, error) {
	o, err := settings.OfProcess(opts, cfg.Name)
	return o, errors.Join(err, cfg.made().Validate())
}

// made says what bucket is to be made.
func (cfg Config) made() kv.SessionsConfig {
	return kv.SessionsConfig{Name: cfg.Bucket, TTL: cmp.Or(cfg.TTL, timing.DefaultTTL), Replicas: cfg.Replicas, Storage: cfg.Storage}
}

// openBucket opens the bucket, or makes it.
func openBucket(ctx context.Context, js jetstream.JetStream, cfg Config) (bucket *election.Bucket, info kv.Info, err error) {
	bucket, err = election.OpenBucket(ctx, js, cfg.Bucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		if err := cfg.made().Create(ctx, js); err != nil && !errors.Is(err, jetstream.ErrBucketExists) { // another process made it meanwhile
			return nil, info, err
		}
		bucket, err = election.OpenBucket(ctx, js, cfg.Bucket)
	}
	if err != nil {
		return nil, info, err
	}
	if info, err = kv.With(bucket, js).Load(ctx); err != nil {
		return nil, info, fmt.Errorf("bucket %q cannot be inspected: %w", cfg.Bucket, kv.Describe(err))
	}
	if err := info.ValidateSessions(); err != nil {
		return nil, info, err
	}
	if cfg.TTL != 0 && cfg.TTL != info.SessionTTL {
		return nil, info, info.WrongTTL(cfg.TTL)
	}
	return bucket, info, nil
}

// timingOf returns the durations of a session. It renews four times in a TTL, so that it outlasts the crash of the server that leads the bucket's stream.
func timingOf(o *settings.Options, ttl time.Duration) (timing.Timing, error) {
	d := timing.Durations{Interval: new(timing.ShortInterval(ttl)), ReleaseTimeout: o.ReleaseTimeout}
	return d.Timing(ttl)
}

// rules returns the rules of the session.
func (s *Session) rules() *session.Rules {
	host, _ := os.Hostname() // a record without a host is still a record
	return &session.Rules{Name: s.cfg.Name, Host: host, PID: os.Getpid(), Timing: s.timing, World: &core.World{
		Random: timeutil.Random, NewID: record.NewID, NewSecret: record.NewSecret, Clocks: lease.Read, Boot: lease.SinceBoot, Slewed: lease.Slewed, Started: lease.Read(),
	}}
}

// awaitOpen waits until the session knows what is stored.
func (s *Session) awaitOpen(ctx context.Context) error {
	if err := s.driver.AwaitKnown(ctx); err != nil {
		if unfit := s.driver.Unfit(); unfit != nil {
			return unfit
		}
		s.driver.Lock()
		_, failed := s.driver.Failure(time.Now())
		s.driver.Unlock()
		if failed != nil {
			err = fmt.Errorf("%w: %w", err, kv.Describe(failed))
		}
		return fmt.Errorf("session in %q cannot be opened: %w", s.cfg.Bucket, err)
	}
	if others := s.Status().Others; others >= MaxSessions {
		return fmt.Errorf("%w: %q has %d sessions: use fewer processes, or another bucket for some of their keys", ErrFull, s.cfg.Bucket, others)
	}
	return nil
}

// Election returns this process's candidate in the election of a key. The options are those of election.NewElection, without those that a session has for all
// its keys, or has no use for: durations, a backoff, priorities and preemption, bare names, a witness, WithoutForcedReconnect, OnNext. The error wraps
// election.ErrInvalidOption if one is wrong, or if the session has an election of this key already; [ErrFull]; or election.ErrStopped once the session is
// closed.
//
// The election is used as one of election.NewElection, and keeps the same promises, with these differences: the leader's renewals are the session's, and so
// OnCampaign is called for attempts to win the key only; election metrics of renewals stay at zero; Status.Notifications is "session"; the instance is the id of
// the session, which all its elections have; and metadata is written when the key is won: what SetMetadata sets of a leader is seen with its next term, and a
// record that the server does not take for its size is never stored. Its key is free for another election of this session once it was stopped and its Start or
// Run has returned.
func (s *Session) Election(key string, opts ...election.Option) (*election.Election, error) {
	if err := validate.Key(key); err != nil {
		return nil, err
	}
	c, err := s.claim(key)
	if err != nil {
		return nil, err
	}
	given := append(s.defaults(), opts...)
	own := false // metrics
	e, err := election.NewElection(s.cfg.Name, key, s.bucket, append(given, func(o *settings.Options) {
		o.Claim, own = c, o.Registerer != nil
	})...)
	if err == nil && !own {
		err = s.metrics.show(c)
	}
	if err == nil {
		err = s.add(key, e)
	}
	if err != nil {
		c.Detach()
		return nil, err
	}
	return e, nil
}

// add has a session have an election, unless it is being closed since the election was made.
func (s *Session) add(key string, e *election.Election) error {
	s.driver.Lock()
	defer s.driver.Unlock()
	if s.closing {
		return election.ErrStopped
	}
	s.elections[key] = e
	return nil
}

// identity returns what metrics call this process.
func (s *Session) identity() string {
	if s.opts.Identity != nil {
		return *s.opts.Identity
	}
	return s.cfg.Name
}

// defaults are the options of each election before those that are given for it.
func (s *Session) defaults() (opts []election.Option) {
	return []election.Option{func(o *settings.Options) { o.Logger, o.Debug = s.opts.Logger, s.opts.Debug }}
}

// claim begins to follow a key.
func (s *Session) claim(key string) (*claim, error) {
	s.driver.Lock()
	defer s.driver.Unlock()
	_, found := s.elections[key]
	switch {
	case s.closing:
		return nil, election.ErrStopped
	case found:
		return nil, validate.Errorf("the session has an election of %q: use that one, or stop it first", key)
	case len(s.elections) >= MaxKeys:
		return nil, fmt.Errorf("%w: it has %d elections: open another session in this process, or start another process", ErrFull, MaxKeys)
	}
	c := &claim{Claim: s.driver.Session().Campaign(key), s: s, key: key}
	s.claims[c.Claim], s.elections[key] = c, nil
	return c, nil
}

// look has an election look at what the session has decided about its claim.
func (s *Session) look(c *session.Claim, now time.Time) {
	if a, attached := c.Shell.(settings.Attached); attached {
		a.DecideAgain(now)
	}
}

// suspect has the connection examined, because an answer has not come in time.
func (s *Session) suspect(took time.Duration) { go s.guard.Suspect(took) }

// endWithConnection ends the elections if the connection is closed for good.
func (s *Session) endWithConnection() {
	nc := s.bucket.JetStream().Conn()
	closed := nc.StatusChanged(nats.CLOSED)
	if !nc.IsClosed() { // else it was, before that could be told
		select {
		case <-closed:
		case <-s.ctx.Done():
			nc.RemoveStatusListener(closed)
			return
		}
	}
	var attached []settings.Attached
	s.driver.Lock()
	for _, c := range s.claims {
		if a, is := c.Shell.(settings.Attached); is {
			attached = append(attached, a)
		}
	}
	s.driver.Unlock()
	for _, a := range attached {
		a.Closed()
	}
}

// Close ends the session in order: all its elections stop, and once their callbacks and work have returned, one write releases all keys. It returns then, or
// with the error of ctx when that ends; what Close began goes on. If the work of one election does not return within the release timeout, the others' keys are
// released one by one, and others lead its own key a lease later. A release that fails is no error here: the log says so, and the lease lapses.
//
// To have all keys released by one write, call Close while the elections run, rather than end their contexts before.
func (s *Session) Close(ctx context.Context) error {
	s.close.Do(func() { go s.end() })
	select {
	case <-s.ctx.Done():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// end ends the session in order.
func (s *Session) end() {
	var elections []*election.Election
	s.driver.Lock()
	s.closing = true
	for _, e := range s.elections {
		if e != nil {
			elections = append(elections, e)
		}
	}
	s.driver.Session().Close(time.Now())
	s.driver.GoOn()
	s.driver.Unlock()
	for _, e := range elections {
		e.Stop()
	}
	for _, e := range elections {
		_ = e.Shutdown(context.Background())
	}
	_ = s.driver.AwaitReleased(context.Background())
	s.driver.Close()
	s.discard()
}

// discard ends what Open began besides the driver.
func (s *Session) discard() {
	s.guard.Leave()
	s.metrics.unregister()
	s.cancel()
}

// Status is how a session stands at one instant.
type Status struct {
	ID             string        // the instance of all its elections; that of the last session if none is open
	Open           bool          // its lease lasts, and it knows what the bucket stores
	LeaseRemaining time.Duration // 0 if it has none
	TTL            time.Duration // of the bucket
	Keys           int           // elections
	Led            int           // keys that it leads
	Others         int           // other sessions that are open in the bucket
	Requests       uint64        // that it has made
	LastError      string        // why a request failed; empty once one for the same succeeds, and of a claim after two TTLs
}

// Status returns a snapshot. It sends no request and never waits.
func (s *Session) Status() Status {
	st, _ := s.status()
	return st
}

// status returns a snapshot, and how many elections are in each state.
func (s *Session) status() (Status, map[core.State]int) {
	s.driver.Lock()
	defer s.driver.Unlock()
	var left time.Duration
	of, now, states := s.driver.Session(), time.Now(), map[core.State]int{}
	for c := range s.claims {
		states[stateOf(c, now)]++
	}
	if of.Step() != session.Released {
		left = max(0, of.Left(now))
	}
	st := Status{
		ID: s.driver.ID(), Open: left > 0 && of.Knows(), LeaseRemaining: left, TTL: s.timing.TTL, Keys: len(s.elections), Led: states[core.Leader],
		Others: of.Others(), Requests: s.driver.Requests(),
	}
	if _, err := s.driver.Failure(now); err != nil {
		st.LastError = kv.Describe(err).Error()
	}
	return st, states
}
