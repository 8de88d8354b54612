package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/cli/terminal"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/natsconn"
	"github.com/natscampaign/election/internal/timeutil"
)

// RetryInterval is the time between two requests to a server that is not ready.
const RetryInterval = 500 * time.Millisecond

// OpenBucket opens the named bucket. A missing bucket is an error that says how to create the bucket.
func (c *Client) OpenBucket(ctx context.Context, name string) (*election.Bucket, error) {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	bucket, err := c.tryBucket(ctx, name)
	if err == nil {
		return bucket, nil
	}
	if permanent := c.PermanentError(name, err); permanent != nil {
		return nil, permanent
	}
	return nil, fmt.Errorf("bucket %q on %s cannot be read: %w", name, c.ServerURL(), err)
}

// tryBucket opens the named bucket with one request.
func (c *Client) tryBucket(ctx context.Context, name string) (bucket *election.Bucket, err error) {
	err = c.UntilRefused(ctx, kv.ToInspect, name, func(ctx context.Context) (err error) {
		bucket, err = election.OpenBucket(ctx, c.JetStream, name)
		return err
	})
	return bucket, err
}

// LoadInfo asks the server about the bucket and the stream behind it.
func (c *Client) LoadInfo(ctx context.Context, bucket *election.Bucket) (info kv.Info, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	sent := time.Now()
	err = c.UntilRefused(ctx, kv.ToInspect, bucket.Bucket(), func(ctx context.Context) error {
		status, err := bucket.Status(ctx)
		if err == nil {
			info = kv.InfoOf(status)
		}
		return err
	})
	switch {
	case err != nil:
		return info, fmt.Errorf("bucket %q on %s cannot be read: %w", bucket.Bucket(), c.ServerURL(), err)
	case info.Stream == nil:
		return info, fmt.Errorf("bucket %q on %s does not describe the stream behind it", bucket.Bucket(), c.ServerURL())
	}
	info.Read, info.Took = sent, time.Since(sent)
	return info, nil
}

// UntilRefused makes a request that needs a permission for a bucket, and ends it as soon as the server refuses the permission.
func (c *Client) UntilRefused(ctx context.Context, permission func(api, bucket string) kv.Permission, bucket string, request func(context.Context) error) error {
	return kv.UntilRefused(ctx, c.Conn, permission(kv.APIPrefix(c.JetStream), bucket), request)
}

// WaitForBucket opens the named bucket, and retries while the server is unreachable or not ready. It returns an error at
// once if the server answers that the bucket does not exist, or refuses the request, and after one request timeout if no server
// answers JetStream requests.
func (c *Client) WaitForBucket(ctx context.Context, name string, log *slog.Logger) (*election.Bucket, error) {
	warned := false
	var unansweredSince time.Time // the first of the latest requests in a row that had no responders
	for {
		if !c.Conn.IsConnected() { // the connection logs that itself
			if err := timeutil.Pause(ctx, RetryInterval/10); err != nil {
				return nil, err
			}
			continue
		}
		bucket, err := c.tryBucket(ctx, name)
		if err == nil {
			return bucket, nil
		}
		switch {
		case !errors.Is(err, nats.ErrNoResponders):
			unansweredSince = time.Time{}
		case unansweredSince.IsZero():
			unansweredSince = time.Now()
		case time.Since(unansweredSince) > c.Timeout:
			err = jetstream.ErrJetStreamNotEnabled
		}
		if err := c.PermanentError(name, err); err != nil {
			return nil, err
		}
		if !warned && ctx.Err() == nil {
			log.Warn("Bucket cannot be read yet, waiting for it", "bucket", name, "error", kv.Describe(err))
			warned = true
		}
		if err := timeutil.Pause(ctx, RetryInterval); err != nil {
			return nil, err
		}
	}
}

// PermanentError returns err with instructions for the user if a retry cannot succeed, and nil otherwise.
func (c *Client) PermanentError(bucket string, err error) error {
	switch {
	case errors.Is(err, jetstream.ErrBucketNotFound):
		return &MissingBucketError{
			Message: fmt.Sprintf("there is no bucket %q on %s in %s", bucket, c.ServerURL(), c.account()),
			Fix:     fmt.Sprintf("create it with %s, or name another with --bucket; if this is the wrong account, connect as a user of the right one", NameCommand("bucket add", bucket)),
		}
	case errors.Is(err, election.ErrInvalidOption):
		return fmt.Errorf("--bucket %q is not a valid bucket name: use letters, digits, - and _", bucket)
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		return fmt.Errorf("%s has no JetStream for this account: enable JetStream there, name another server with --server, or run a test server with 'election-cli server'", c.ServerURL())
	case errors.Is(err, jetstream.ErrBadBucket):
		return fmt.Errorf("the stream behind %q on %s is not a Key-Value bucket: name another bucket with --bucket", bucket, c.ServerURL())
	case errors.Is(err, nats.ErrPermissionViolation):
		return fmt.Errorf("bucket %q on %s cannot be read: %w", bucket, c.ServerURL(), err)
	case errors.Is(err, nats.ErrConnectionClosed):
		return fmt.Errorf("the connection was closed: %w", err)
	}
	return nil
}

// MissingBucketError is the error of a bucket that the account of the connection does not have. It matches jetstream.ErrBucketNotFound.
type MissingBucketError struct{ Message, Fix string }

// Error returns the message and the fix.
func (e *MissingBucketError) Error() string { return e.Message + ": " + e.Fix }

// Unwrap returns jetstream.ErrBucketNotFound.
func (*MissingBucketError) Unwrap() error { return jetstream.ErrBucketNotFound }

// accountTimeout is how long the server is waited for that says which account a connection has: it does not answer a user that may not ask.
const accountTimeout = 500 * time.Millisecond

// account names the account of the connection.
func (c *Client) account() string {
	var info struct {
		Data struct{ Account string }
	}
	if reply, err := c.Conn.Request("$SYS.REQ.USER.INFO", nil, accountTimeout); err != nil || json.Unmarshal(reply.Data, &info) != nil || info.Data.Account == "" {
		return "the account of this user"
	}
	return "account " + terminal.Printable(info.Data.Account)
}

// CommandForBucket returns the command line that runs a command on the bucket; an empty name stands for the default one.
func CommandForBucket(command, bucket string) string {
	if bucket == "" || bucket == DefaultBucket {
		return "election-cli " + command
	}
	return "election-cli " + command + " --bucket " + bucket
}

// NameCommand names a command on the bucket in a text, in quotes.
func NameCommand(command, bucket string) string { return "'" + CommandForBucket(command, bucket) + "'" }

// NameCommand names a command on the bucket of the command line in a text, in quotes.
func (e *Env) NameCommand(command string) string { return NameCommand(command, e.Bucket) }

// ServerURL returns the URL of the connected server, without credentials.
func (c *Client) ServerURL() string { return natsconn.WithoutSecrets(c.Conn.ConnectedUrl()) }
