package connect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/natscontext"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/admin"
	"github.com/natscampaign/election/internal/dial"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/natsconn"
	"github.com/natscampaign/election/internal/timeutil"
	"github.com/natscampaign/election/internal/timing"
	"github.com/natscampaign/election/internal/validate"
)

const (
	reconnectWait = 500 * time.Millisecond // the longest wait between two attempts to reconnect
	retryDelay    = 250 * time.Millisecond // between two attempts to open the bucket
)

// Connection is what election.NewElection needs: a connection to NATS and a bucket on it. [Connect] makes it. Any number of elections may
// share it.
type Connection struct {
	Name, Key string // of the Config; the name is filled in
	NATS      *nats.Conn
	JetStream jetstream.JetStream
	Bucket    *election.Bucket

	options []election.Option
}

// Options returns the options that the [Config] sets, and then more.
func (c *Connection) Options(more ...election.Option) []election.Option {
	return append(slices.Clip(c.options), more...)
}

// Close closes the connection. Stop the elections on it first: a leader whose connection is closed cannot release its key.
func (c *Connection) Close() { c.NATS.Close() }

// Connect makes a connection that is fit for elections: it reconnects for ever, also after a server refused its credentials for a while,
// and drops what is written while it is down. Extra options override those of cfg, but not these properties. The connection sends a ping
// every sixth of cfg.TTL, at least every 10 s and at most every second, and is made again after two pings without an answer. The files of
// Creds and of certificates are read again for each attempt to connect, so that a rotation needs no restart; NKey may change only to
// another file of the same user. Connect waits until ctx ends for a server and a bucket that cannot be reached yet.
//
// If the bucket does not exist, Connect makes it as election.CreateBucket does, unless cfg says that it must exist. It has three replicas where
// the server has a cluster with room for them, unless cfg says how many. An existing bucket is
// left as it is: Connect logs a warning for each of TTL, Replicas, MaxBytes and ChoriaCompatible that cfg sets and that the bucket differs
// from; election.CreateBucket, or election-cli, changes them. Connect then checks the bucket by admin.Check, or by admin.CheckKey if cfg has a key, which may take some seconds. A
// critical finding is an election.ErrBucketUnsuitable, unless the finding is that servers are down: Connect waits for these. Warnings are
// logged, for example that the server knows no expiry markers.
//
// Other errors: election.ErrInvalidOption for a cfg that cannot be used, which names every problem, before anything is sent; the server's
// error for credentials that it refuses twice before it ever took them; and ctx's, with what Connect waited for, each cause once.
func Connect(ctx context.Context, cfg Config, extra ...nats.Option) (*Connection, error) {
	given := cfg
	cfg = cfg.filled()
	if err := errors.Join(cfg.validate(), cfg.validatePairs("TLSCert", "TLSKey", "Password", "User")); err != nil {
		return nil, err
	}
	c := &connector{Config: cfg, given: given, log: slog.New(slog.DiscardHandler), warned: map[string]bool{}}
	if cfg.Logger != nil {
		c.log = cfg.Logger.With("bucket", cfg.Bucket)
	}
	if err := c.dial(extra); err != nil {
		return nil, err
	}
	bucket, err := c.waitForBucket(ctx)
	if err != nil {
		c.nc.Close()
		return nil, err
	}
	return &Connection{Name: cfg.Name, Key: cfg.Key, NATS: c.nc, JetStream: c.js, Bucket: bucket, options: cfg.Options()}, nil
}

// settingNames are the names of the settings in a Config.
var settingNames = natsconn.Settings{Server: "Config.URL (NATS_URL) or the context", TLSFirst: "Config.TLSFirst (NATS_TLS_FIRST)"}

// connector is one call of Connect.
type connector struct {
	Config
	given Config // without defaults
	log   *slog.Logger
	nc    *nats.Conn
	js    jetstream.JetStream

	warned   map[string]bool       // the codes of findings, and the settings of the bucket, that were logged
	refusal  atomic.Pointer[error] // of the last attempt to connect
	refusals dial.Refusals         // of the credentials
	refused  atomic.Bool           // the credentials were refused since the connection was made last
}

// dial starts to connect in the background. It returns an error only for what no server can put right.
func (c *connector) dial(extra []nats.Option) error {
	opts, err := c.natsOptions()
	if err != nil {
		return err
	}
	opts = append(append(opts, extra...), nats.RetryOnFailedConnect(true), allowReconnect, nats.MaxReconnects(-1), nats.ReconnectBufSize(-1), c.refusals.Option())
	var inContext natscontext.Settings
	if c.Context == "" {
		c.nc, err = nats.Connect("", opts...)
	} else if err = dial.CheckContext(c.Context); err != nil {
		return err
	} else {
		c.nc, inContext, err = natscontext.Connect(dial.ContextFile(c.Context), opts...)
	}
	if err != nil {
		return fmt.Errorf("cannot connect to %s: %w", c.servers(), err)
	}
	switch domain := cmp.Or(c.Domain, inContext.JSDomain); {
	case domain != "":
		c.js, err = jetstream.NewWithDomain(c.nc, domain)
	case inContext.JSAPIPrefix != "":
		c.js, err = jetstream.NewWithAPIPrefix(c.nc, inContext.JSAPIPrefix)
	default:
		c.js, err = jetstream.New(c.nc)
	}
	if err != nil {
		c.nc.Close()
	}
	return err
}

// allowReconnect undoes [nats.NoReconnect].
func allowReconnect(o *nats.Options) error {
	o.AllowReconnect = true
	return nil
}

// natsOptions returns the options of the connection that the caller may override.
func (c *connector) natsOptions() ([]nats.Option, error) {
	login, err := dial.Login(c.User, c.Password, c.Creds, c.NKey)
	if err != nil {
		return nil, validate.Errorf("NKey %s: %w: name a file with a user's seed", c.NKey, err)
	}
	opts := []nats.Option{
		nats.Name("election " + c.Name),
		nats.ReconnectWait(reconnectWait),
		nats.PingInterval(min(max(c.TTL/6, time.Second), 10*time.Second)), // two without an answer end a connection
		nats.ConnectHandler(func(nc *nats.Conn) {
			c.log.Info("Connected", "server", natsconn.WithoutSecrets(nc.ConnectedUrl()), "version", nc.ConnectedServerVersion())
		}),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil { // nil: Close was called
				c.log.Warn("Connection lost", "error", err)
			}
		}),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) { c.refusal.Store(&err) }),
		nats.ReconnectHandler(func(nc *nats.Conn) {
			c.refused.Store(false)
			c.log.Info("Reconnected", "server", natsconn.WithoutSecrets(nc.ConnectedUrl()))
		}),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			switch {
			case !dial.IsRefusal(err):
				c.log.Warn("Asynchronous NATS error", "error", err)
			case !c.refused.Swap(true): // once, and not for each attempt to connect
				c.log.Warn("The server refuses the credentials, trying again until it takes them", "error", err)
			}
		}),
		dial.Servers(c.URL),
	}
	if c.InboxPrefix != "" {
		opts = append(opts, nats.CustomInboxPrefix(c.InboxPrefix))
	}
	return slices.Concat(opts, login, dial.TLS(c.TLSCert, c.TLSKey, c.TLSCA, c.TLSFirst)), nil
}

// servers names the servers that are tried, without secrets, for messages.
func (c *connector) servers() string {
	if c.Context != "" && c.URL == "" {
		return fmt.Sprintf("the servers of the context %q", c.Context)
	}
	return cmp.Or(shownURLs(c.URL), nats.DefaultURL)
}

// credentials names the settings that the credentials come from, without secrets.
func (c *connector) credentials() string {
	switch {
	case c.Password != "":
		return "User and Password"
	case c.User != "":
		return "User, which is a token without a Password"
	case c.Creds != "":
		return "Creds " + c.Creds
	case c.NKey != "":
		return "NKey " + c.NKey
	case c.Context != "":
		return fmt.Sprintf("those of the context %q", c.Context)
	}
	return "the configuration: give User and Password, Creds or NKey"
}

// waitForBucket returns the bucket as soon as it can be used.
func (c *connector) waitForBucket(ctx context.Context) (*election.Bucket, error) {
	for try := 0; ; try++ {
		bucket, err := c.tryBucket(ctx)
		if err == nil {
			return bucket, nil
		}
		if refusal := c.refusals.Final(c.nc); refusal != nil {
			return nil, fmt.Errorf("%s refuses the credentials: %w: correct %s", c.servers(), refusal, c.credentials())
		}
		if c.nc.IsClosed() {
			return nil, fmt.Errorf("%s ended the connection for good: %w", c.servers(), errors.Join(c.nc.LastError(), err))
		}
		if !c.nc.IsConnected() { // which is why the bucket was not found
			if refusal := c.refusal.Load(); refusal == nil {
				err = errors.New("no server has answered")
			} else {
				err = settingNames.Explain(*refusal, c.nc.Opts.TLSHandshakeFirst)
			}
		} else if last := c.nc.LastError(); last != nil && !errors.Is(err, last) {
			err = fmt.Errorf("%w: %w", err, last)
		}
		if final(err) {
			return nil, fmt.Errorf("on %s: %w", c.servers(), err)
		}
		if try == 0 {
			c.log.Warn("Bucket cannot be used yet, waiting for it", "server", c.servers(), "error", err)
		}
		delay := retryDelay
		if errors.Is(err, nats.ErrPermissionViolation) {
			delay = timing.RequestTimeout // the server logs each refusal
		}
		if !timeutil.Sleep(ctx, delay) {
			if cause := context.Cause(ctx); !errors.Is(err, cause) {
				err = fmt.Errorf("%w: %w", cause, err)
			}
			return nil, fmt.Errorf("waiting for bucket %q on %s: %w", c.Bucket, c.servers(), err)
		}
	}
}

// final reports whether waiting cannot help against err. While the servers of a cluster start, they refuse to make a bucket for which they
// will have room later.
func final(err error) bool {
	const noRoomYet, notNow = jetstream.ErrorCode(10005), 503
	if api := (*jetstream.APIError)(nil); errors.As(err, &api) && (api.ErrorCode == noRoomYet || api.Code == notNow) {
		return errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount)
	}
	return errors.Is(err, election.ErrBucketUnsuitable) || errors.Is(err, election.ErrInvalidOption) ||
		errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount)
}

// tryBucket opens the bucket or makes it, and checks it, once.
func (c *connector) tryBucket(ctx context.Context) (*election.Bucket, error) {
	request, cancel := context.WithTimeout(ctx, timing.RequestTimeout)
	defer cancel()
	bucket, err := election.OpenBucket(request, c.js, c.Bucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) && !c.MustExist {
		creation, cancel := context.WithTimeout(ctx, timing.RequestTimeout+2*kv.StartOfCluster)
		defer cancel()
		var replicas int
		var refusal error
		if replicas, refusal, err = c.bucketConfig().CreateReplicated(creation, c.js); err == nil {
			c.log.Info("Bucket created", "ttl", c.TTL, "replicas", replicas)
			if refusal != nil && !kv.IsOnItsOwn(refusal) {
				c.log.Warn("Bucket has one replica: while its server is away, nobody leads for long", "error", refusal,
					"fix", "see why the cluster has no room for three, then run 'election-cli bucket edit --bucket "+c.Bucket+" --replicas 3', or call election.CreateBucket")
			}
		}
		if err == nil || errors.Is(err, jetstream.ErrBucketExists) { // another process made it meanwhile: leave it as it is
			request, cancel = context.WithTimeout(ctx, timing.RequestTimeout)
			defer cancel()
			bucket, err = election.OpenBucket(request, c.js, c.Bucket)
		}
	}
	if err != nil {
		return nil, err
	}
	c.compare(request, bucket)
	return bucket, c.check(ctx, bucket)
}

// compare logs which settings of the Config the bucket differs from.
func (c *connector) compare(ctx context.Context, bucket *election.Bucket) {
	info, err := kv.With(bucket, c.js).Load(ctx)
	if err != nil || info.Stream == nil {
		return // the check reports it
	}
	for _, s := range []struct {
		setting       string
		differs       bool
		given, actual any
	}{
		{"TTL", c.given.TTL != 0 && c.given.TTL != info.TTL, c.given.TTL, info.TTL},
		{"Replicas", c.given.Replicas != 0 && c.given.Replicas != info.Stream.Config.Replicas, c.given.Replicas, info.Stream.Config.Replicas},
		{"MaxBytes", c.given.MaxBytes != 0 && c.given.MaxBytes != info.Stream.Config.MaxBytes, c.given.MaxBytes, max(info.Stream.Config.MaxBytes, 0)},
		{"ChoriaCompatible", c.given.ChoriaCompatible && info.MarkerTTL > 0, true, false},
	} {
		if s.differs && !c.warned[s.setting] {
			c.warned[s.setting] = true
			c.log.Warn("Bucket exists with another setting, which stays as it is", "setting", s.setting, "configured", s.given, "actual", s.actual)
		}
	}
}

// check returns an error for a bucket in which elections do not work, or not safely.
func (c *connector) check(ctx context.Context, bucket *election.Bucket) error {
	reconnects := c.nc.Stats().Reconnects
	var findings []admin.Finding
	var err error
	if c.Key == "" {
		findings, err = admin.Check(ctx, bucket, c.Options()...)
	} else {
		findings, err = admin.CheckKey(ctx, bucket, c.Key, c.Options()...)
	}
	if err != nil {
		return err
	}
	temporary := !c.nc.IsConnected() || c.nc.Stats().Reconnects != reconnects // the connection explains the findings, not the bucket
	var problems []error
	for _, f := range findings {
		switch f.Severity {
		case admin.SeverityCritical:
			temporary = temporary || f.Code == "no-stream-leader" || f.Code == "replicas-offline"
			problems = append(problems, fmt.Errorf("bucket %q (%s): %s: %s", c.Bucket, f.Code, f.Message, f.Fix))
		case admin.SeverityWarning:
			if !c.warned[f.Code] {
				c.warned[f.Code] = true
				c.log.Warn("Bucket check warning", "code", f.Code, "finding", f.Message, "fix", f.Fix)
			}
		default:
			c.log.Debug("Bucket check passed", "code", f.Code, "finding", f.Message)
		}
	}
	err = errors.Join(problems...)
	if err != nil && !temporary {
		return fmt.Errorf("%w: %w", election.ErrBucketUnsuitable, err)
	}
	return err
}
