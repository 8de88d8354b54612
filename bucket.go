package election

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/settings"
	"github.com/natscampaign/election/internal/validate"
)

// Bucket is a bucket of elections together with the connection that it was opened on. Pass it wherever a bucket is asked for: what it is
// passed to finds the connection there.
type Bucket struct {
	jetstream.KeyValue
	handle
}

type handle = kv.Handle

// JetStream returns the JetStream context that the bucket was opened with.
func (b *Bucket) JetStream() jetstream.JetStream { return b.handle.JetStream() }

func newBucket(bucket jetstream.KeyValue, js jetstream.JetStream) *Bucket {
	b := &Bucket{KeyValue: bucket}
	b.handle = kv.NewHandle(b, js)
	return b
}

// OpenBucket opens a bucket that exists. Whether it is fit for elections is checked by [Election.Start]. The error wraps
// [ErrBucketUnsuitable] if there is no such bucket, and [ErrInvalidOption] for a name that no bucket can have.
func OpenBucket(ctx context.Context, js jetstream.JetStream, name string) (*Bucket, error) {
	if validate.IsNil(js) {
		return nil, errNoJetStream
	}
	bucket, err := js.KeyValue(ctx, name)
	switch {
	case errors.Is(err, jetstream.ErrInvalidBucketName):
		return nil, kv.InvalidName(name)
	case errors.Is(err, jetstream.ErrBucketNotFound), errors.Is(err, jetstream.ErrBadBucket):
		return nil, fmt.Errorf("%w: %q cannot be opened: %w: make it with CreateBucket", ErrBucketUnsuitable, name, err)
	case err != nil:
		return nil, fmt.Errorf("bucket %q cannot be opened: %w", name, err)
	}
	return newBucket(bucket, js), nil
}

var errNoJetStream = validate.Errorf("the JetStream context is nil: pass the one that jetstream.New returned")

// BucketConfig says what bucket [CreateBucket] makes.
type BucketConfig struct {
	Name     string                // letters, digits, - and _
	TTL      time.Duration         // of every lease in the bucket: 1 s to 1 h, 2 s or more by preference
	Replicas int                   // 1, 3 or 5; 0 is 1, or what the bucket has
	Storage  jetstream.StorageType // file by default; memory, with one replica only, forgets term numbers when the server restarts

	// ChoriaCompatible makes a bucket in which candidates of Choria can campaign too: it announces no expiries.
	ChoriaCompatible bool
}

// CreateBucket makes a bucket that is fit for elections, or changes one that exists: history 1, the TTL, expiry markers of a second unless
// it is to be compatible with Choria, and what it commits republished below election.<name>, on a subject of its own, which notifies
// candidates without a consumer each. Of a bucket that exists the storage cannot be changed, nor can markers be taken away; that is an
// [ErrBucketUnsuitable], as is what the server refuses. Everything else about it stays as it is. A bad configuration is an
// [ErrInvalidOption], and nothing is made. Do not change the TTL of a bucket in which somebody leads.
//
// Servers before 2.11 know no markers, and the bucket does without: candidates then notice an expiry 0.4 s later, and a candidate that is
// not notified waits for the stand-down after a release too. LimitMarkerTTL in the bucket's status shows it; admin.Check warns of it.
func CreateBucket(ctx context.Context, js jetstream.JetStream, cfg BucketConfig) (*Bucket, error) {
	if validate.IsNil(js) {
		return nil, errNoJetStream
	}
	if err := kv.ValidateConfig(cfg.Name, cfg.TTL, cfg.Replicas, cfg.Storage); err != nil {
		return nil, err
	}
	existing, err := js.KeyValue(ctx, cfg.Name)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		bucket, err := cfg.create(ctx, js)
		if errors.Is(err, jetstream.ErrBucketExists) { // somebody made it meanwhile, with a subject that is to stay
			return CreateBucket(ctx, js, cfg)
		}
		return bucket, err
	}
	var status jetstream.KeyValueStatus
	if err == nil {
		status, err = existing.Status(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("bucket %q cannot be inspected: %w", cfg.Name, err)
	}
	if err := cfg.canChange(kv.InfoOf(status)); err != nil {
		return nil, err
	}
	bucket, err := apply(ctx, js.UpdateKeyValue, cfg.over(status.Config()))
	if err != nil {
		return nil, cfg.refused(err)
	}
	return newBucket(bucket, js), nil
}

func init() {
	settings.CreateBucket = func(ctx context.Context, js jetstream.JetStream, config any) error {
		_, err := config.(BucketConfig).create(ctx, js)
		return err
	}
}

// create makes a bucket that does not exist. The error is jetstream's if it does by now.
func (c BucketConfig) create(ctx context.Context, js jetstream.JetStream) (*Bucket, error) {
	bucket, err := apply(ctx, js.CreateKeyValue, c.over(jetstream.KeyValueConfig{Bucket: c.Name, Storage: c.Storage, Description: "leader elections"}))
	switch {
	case errors.Is(err, jetstream.ErrBucketExists):
		return nil, err
	case err != nil:
		return nil, c.refused(err)
	}
	return newBucket(bucket, js), nil
}

// apply asks a server for a bucket, without expiry markers if the server knows none.
func apply(ctx context.Context, do func(context.Context, jetstream.KeyValueConfig) (jetstream.KeyValue, error), cfg jetstream.KeyValueConfig) (jetstream.KeyValue, error) {
	bucket, err := do(ctx, cfg)
	if errors.Is(err, jetstream.ErrLimitMarkerTTLNotSupported) {
		cfg.LimitMarkerTTL = 0
		bucket, err = do(ctx, cfg)
	}
	return bucket, err
}

// refused is the error for a bucket that could not be made as it is wanted. Only what the server itself says is about the
// bucket.
func (c BucketConfig) refused(err error) error {
	if api := jetstream.JetStreamError(nil); !errors.As(err, &api) || api.APIError() == nil {
		return fmt.Errorf("bucket %q cannot be made: %w", c.Name, err)
	}
	return fmt.Errorf("%w: %q cannot be made so: %w", ErrBucketUnsuitable, c.Name, err)
}

// over returns the configuration that c makes of a present one.
func (c BucketConfig) over(now jetstream.KeyValueConfig) jetstream.KeyValueConfig {
	now.History, now.TTL, now.Replicas = 1, c.TTL, cmp.Or(c.Replicas, now.Replicas, 1)
	if !kv.Republishes(c.Name, now.RePublish) {
		// A subject of its own keeps it apart from buckets of the same name in other domains.
		now.RePublish = &jetstream.RePublish{Source: kv.Subject(c.Name, ">"), Destination: "election." + c.Name + "." + nuid.Next() + ".>"}
	}
	if !c.ChoriaCompatible {
		now.LimitMarkerTTL = kv.MarkerTTL
	}
	return now
}

// canChange returns an error if a bucket that exists cannot be made what c says.
func (c BucketConfig) canChange(info kv.Info) error {
	if info.Stream != nil && info.Stream.Config.Storage != c.Storage {
		return fmt.Errorf("%w: %q exists and is kept in %v storage, which cannot be changed: remove it first, or ask for that storage", ErrBucketUnsuitable, c.Name, info.Stream.Config.Storage)
	}
	if c.ChoriaCompatible && info.MarkerTTL > 0 {
		return fmt.Errorf("%w: %q exists and announces expiries by markers, which cannot be taken away: candidates of Choria cannot campaign there, use another bucket", ErrBucketUnsuitable, c.Name)
	}
	info.TTL, info.History = c.TTL, 1
	return info.Validate()
}
