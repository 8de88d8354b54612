package election

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/natscontext"

	"github.com/natscampaign/election/internal/reach"
)

const (
	connectWait  = 500 * time.Millisecond // from one attempt to reconnect to the next, at most
	connectPause = 250 * time.Millisecond // from one look at the bucket to the next
)

// Connection is what [NewElection] needs: a connection to NATS and a bucket on it. [Connect] makes one. Any number of
// elections may share it.
type Connection struct {
	Name, Key string // as in the Config; the name is filled in
	NATS      *nats.Conn
	JetStream jetstream.JetStream
	Bucket    jetstream.KeyValue

	options []Option
}

// Options returns the options that the [Config] says, [WithJetStream], and then more.
func (c *Connection) Options(more ...Option) []Option {
	return append(append([]Option{WithJetStream(c.JetStream)}, c.options...), more...)
}

// Close closes the connection. Stop what stands on it first: a leader whose connection is closed cannot release its key.
func (c *Connection) Close() { c.NATS.Close() }

// Connect makes a connection that is fit for elections: one that reconnects for ever, and drops what was written while it
// was down. Extra options come after those that cfg says, and before these. It waits for a server and a bucket that
// cannot be reached yet until ctx ends.
//
// A bucket that does not exist is made, by [CreateBucket], unless cfg says that it must exist. One that does is left as it
// is. Either is looked at by [Check], for the key that cfg says if it says one, which may take some seconds: what is critical
// is an [ErrBucketUnsuitable], unless it is a server that is down, for which it waits; warnings are logged, as of a server
// that knows no expiry markers.
//
// Other errors: [ErrInvalidOption] for a cfg that cannot be used, naming every problem, and nothing is sent; that of the
// server for credentials that it refuses; and ctx's, along with what was waited for.
func Connect(ctx context.Context, cfg Config, extra ...nats.Option) (*Connection, error) {
	cfg = cfg.filled()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	d := &dialler{Config: cfg, log: slog.New(slog.DiscardHandler)}
	if cfg.Logger != nil {
		d.log = cfg.Logger.With("bucket", cfg.Bucket)
	}
	if err := d.dial(extra); err != nil {
		return nil, err
	}
	bucket, err := d.await(ctx)
	if err != nil {
		d.nc.Close()
		return nil, err
	}
	return &Connection{Name: cfg.Name, Key: cfg.Key, NATS: d.nc, JetStream: d.js, Bucket: bucket, options: cfg.Options()}, nil
}

// dialler is one call of Connect.
type dialler struct {
	Config
	log *slog.Logger
	nc  *nats.Conn
	js  jetstream.JetStream

	refusal atomic.Pointer[error] // of the last attempt to connect
}

// dial begins to connect. Only what no server can put right is an error.
func (d *dialler) dial(extra []nats.Option) error {
	opts, err := d.settings()
	if err != nil {
		return err
	}
	opts = append(append(opts, extra...), nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.ReconnectBufSize(-1))
	domain := d.Domain
	if d.Context == "" {
		d.nc, err = nats.Connect("", opts...)
	} else {
		var settings natscontext.Settings
		d.nc, settings, err = natscontext.Connect(d.Context, opts...)
		if domain == "" {
			domain = settings.JSDomain
		}
		if domain == "" && settings.JSAPIPrefix != "" && err == nil {
			d.js, err = jetstream.NewWithAPIPrefix(d.nc, settings.JSAPIPrefix)
			return err
		}
	}
	if err != nil {
		return fmt.Errorf("cannot connect to %s: %w", d.whereto(), err)
	}
	if domain != "" {
		d.js, err = jetstream.NewWithDomain(d.nc, domain)
	} else {
		d.js, err = jetstream.New(d.nc)
	}
	return err
}

// settings returns the options of the connection that the configuration says, and those that may be changed.
func (d *dialler) settings() ([]nats.Option, error) {
	opts := []nats.Option{
		nats.Name("election " + d.Name),
		nats.ReconnectWait(connectWait),
		nats.PingInterval(min(max(d.TTL/6, time.Second), 10*time.Second)), // two that stay unanswered end a connection
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil { // else it was closed here
				d.log.Warn("Connection lost", "error", err)
			}
		}),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) { d.refusal.Store(&err) }),
		nats.ReconnectHandler(func(nc *nats.Conn) {
			d.log.Info("Connection made again", "server", reach.WithoutSecrets(nc.ConnectedUrl()))
		}),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { d.log.Warn("Connection complains", "error", err) }),
	}
	if urls := reach.SplitURLs(d.URL); len(urls) > 0 {
		opts = append(opts, func(o *nats.Options) error {
			o.Url, o.Servers = "", urls
			return nil
		})
	}
	login, err := d.login()
	if err != nil {
		return nil, err
	}
	opts = append(opts, login...)
	if d.TLSCert != "" {
		opts = append(opts, nats.ClientCert(reach.ExpandHome(d.TLSCert), reach.ExpandHome(d.TLSKey)))
	}
	if d.TLSCA != "" {
		opts = append(opts, nats.RootCAs(reach.ExpandHome(d.TLSCA)))
	}
	return opts, nil
}

// whereto returns the servers that are tried, as messages may show them.
func (d *dialler) whereto() string {
	switch {
	case d.URL != "":
		return strings.Join(shownURLs(d.URL), ", ")
	case d.Context != "":
		return fmt.Sprintf("the servers of the context %q", d.Context)
	}
	return nats.DefaultURL
}

// await returns the bucket once it can be used.
func (d *dialler) await(ctx context.Context) (jetstream.KeyValue, error) {
	for try := 0; ; try++ {
		bucket, err := d.try(ctx)
		if err == nil {
			return bucket, nil
		}
		if d.nc.IsClosed() {
			return nil, fmt.Errorf("%s ended the connection for good: %w", d.whereto(), errors.Join(d.nc.LastError(), err))
		}
		if why := d.refusal.Load(); why != nil && !d.nc.IsConnected() {
			err = fmt.Errorf("%w: %w", err, *why)
		} else if last := d.nc.LastError(); last != nil && !errors.Is(err, last) {
			err = fmt.Errorf("%w: %w", err, last)
		}
		if final(err) {
			return nil, err
		}
		if try == 0 {
			d.log.Warn("Bucket cannot be used yet, waiting for it", "server", d.whereto(), "error", err)
		}
		if !pause(ctx, connectPause) {
			return nil, fmt.Errorf("waiting for bucket %q on %s: %w: %w", d.Bucket, d.whereto(), context.Cause(ctx), err)
		}
	}
}

// final says whether waiting does not mend err. Servers of a cluster that are still coming up refuse a bucket that they
// will have room for.
func final(err error) bool {
	const noRoomYet, notNow = jetstream.ErrorCode(10005), 503
	if api := (*jetstream.APIError)(nil); errors.As(err, &api) && (api.ErrorCode == noRoomYet || api.Code == notNow) {
		return errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount)
	}
	return errors.Is(err, ErrBucketUnsuitable) || errors.Is(err, ErrInvalidOption) ||
		errors.Is(err, jetstream.ErrBadBucket) || errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount)
}

// try looks for the bucket once, and makes it or checks it.
func (d *dialler) try(ctx context.Context) (jetstream.KeyValue, error) {
	call, cancel := context.WithTimeout(ctx, maxTry)
	defer cancel()
	bucket, err := d.js.KeyValue(call, d.Bucket)
	switch {
	case errors.Is(err, jetstream.ErrBucketNotFound) && d.MustExist:
		return nil, fmt.Errorf("%w: there is no %q on %s, and it must exist: make it, or let Connect make it", ErrBucketUnsuitable, d.Bucket, d.whereto())
	case errors.Is(err, jetstream.ErrBucketNotFound):
		if bucket, err = d.Config.bucket().create(call, d.js); err == nil {
			d.log.Info("Bucket made", "ttl", d.TTL)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("bucket %q on %s: %w", d.Bucket, d.whereto(), err)
	}
	return bucket, d.check(ctx, bucket)
}

// check refuses a bucket on which elections do not work, or not safely.
func (d *dialler) check(ctx context.Context, bucket jetstream.KeyValue) error {
	reconnects := d.nc.Stats().Reconnects
	findings, err := check(ctx, bucket, cmp.Or(d.Key, probeKey), append([]Option{WithJetStream(d.js)}, d.Options()...))
	if err != nil {
		return err
	}
	passes := !d.nc.IsConnected() || d.nc.Stats().Reconnects != reconnects // what was found is then no fault of the bucket's
	var problems []error
	for _, f := range findings {
		switch f.Severity {
		case SeverityCritical:
			passes = passes || f.Code == "no-stream-leader" || f.Code == "replicas-offline"
			problems = append(problems, fmt.Errorf("%q is unfit (%s): %s: %s", d.Bucket, f.Code, f.Message, f.Remedy))
		case SeverityWarning:
			d.log.Warn("Bucket could be better", "code", f.Code, "finding", f.Message, "remedy", f.Remedy)
		default:
			d.log.Debug("Bucket checked", "code", f.Code, "finding", f.Message)
		}
	}
	switch err := errors.Join(problems...); {
	case err == nil:
		return nil
	case passes:
		return err
	default:
		return fmt.Errorf("%w: %w", ErrBucketUnsuitable, err)
	}
}
