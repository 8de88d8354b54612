package election

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election/internal/control"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/natsconn"
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

// OpenBucket opens a bucket that exists. It waits until ctx ends for a connection that is still being made, or made again. Whether the
// bucket is fit for elections is checked by [Election.Start]. The error wraps [ErrBucketUnsuitable] if there is no such bucket,
// [ErrInvalidOption] for a name that no bucket can have, and ctx's if there was no connection before ctx ended; it says why.
func OpenBucket(ctx context.Context, js jetstream.JetStream, name string) (*Bucket, error) {
	if validate.IsNil(js) {
		return nil, errNoJetStream
	}
	bucket, err := open(ctx, js, name)
	switch {
	case errors.Is(err, jetstream.ErrInvalidBucketName):
		return nil, kv.InvalidName(name)
	case errors.Is(err, jetstream.ErrBucketNotFound), errors.Is(err, jetstream.ErrBadBucket):
		return nil, fmt.Errorf("%w: %q cannot be opened: %w: make it with CreateBucket", ErrBucketUnsuitable, name, err)
	case err != nil:
		return nil, fmt.Errorf("bucket %q cannot be opened: %w", name, kv.Describe(err))
	}
	return newBucket(bucket, js), nil
}

// open opens a bucket as soon as there is a connection.
func open(ctx context.Context, js jetstream.JetStream, name string) (jetstream.KeyValue, error) {
	if err := natsconn.Wait(ctx, js.Conn()); err != nil {
		return nil, err
	}
	var bucket jetstream.KeyValue
	err := kv.UntilRefused(ctx, js.Conn(), kv.ToInspect(kv.APIPrefix(js), name), func(ctx context.Context) (err error) {
		bucket, err = js.KeyValue(ctx, name)
		return err
	})
	return bucket, err
}

var errNoJetStream = validate.Errorf("the JetStream context is nil: pass the one that jetstream.New returned")

// BucketConfig says what bucket [CreateBucket] makes.
type BucketConfig struct {
	Name     string                // letters, digits, - and _
	TTL      time.Duration         // of every lease in the bucket: 1 s to 1 h, 2 s or more by preference
	Replicas int                   // 1, 3 or 5; 0 is 1, or what the bucket has
	Storage  jetstream.StorageType // file by default; memory, with one replica only, forgets term numbers when the server restarts
	MaxBytes int64                 // of all that the bucket stores, which some accounts demand; 0 is no limit, or what the bucket has

	// ChoriaCompatible makes a bucket in which candidates of Choria can campaign too: it announces no expiries, and its metadata says so.
	ChoriaCompatible bool
}

// CreateBucket makes a bucket that is fit for elections, or changes one that exists: history 1, the TTL, expiry markers of a second unless
// it is to be compatible with Choria, and what it commits republished below election.<name>, on a subject of its own, which notifies
// candidates without a consumer each. It writes the bucket's time of creation to the metadata of the stream, where no server changes it,
// and refuses roll-ups, by which a write of one key removes all others, where there are no markers: servers allow them with markers. A bucket
// that is full refuses writes. Limits of keys, or of their size below that of a record, are removed, and sources. Everything else about a bucket
// that exists stays as it is, and a bucket that is as cfg says is not changed. Its storage cannot be changed, nor can markers be taken away;
// that is an [ErrBucketUnsuitable], as is what the server refuses. A bad configuration is an [ErrInvalidOption], and nothing is made.
// CreateBucket waits until ctx ends for a connection that is still being made.
//
// CreateBucket changes no bucket that stores what is no election's, nor does it give a bucket a TTL with which a key may expire while its
// holder considers itself leader: both are an [ErrBucketUnsuitable]. So it does not shorten a TTL while somebody holds a key; and a bucket that
// has lost its TTL gets one that is at least as long as the leases of its leaders, who lead on. It has the candidates of all keys that are stored
// read the TTL when it has changed it.
//
// Servers before 2.11 know no markers, and the bucket does without: candidates then notice an expiry 0.4 s later, and a candidate that is
// not notified waits for the stand-down after a release too. LimitMarkerTTL in the bucket's status shows it; admin.Check warns of it.
func CreateBucket(ctx context.Context, js jetstream.JetStream, cfg BucketConfig) (*Bucket, error) {
	if validate.IsNil(js) {
		return nil, errNoJetStream
	}
	want := kv.Config(cfg)
	if err := want.Validate(); err != nil {
		return nil, err
	}
	existing, err := open(ctx, js, cfg.Name)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		switch err := want.Create(ctx, js); {
		case errors.Is(err, jetstream.ErrBucketExists): // somebody made it meanwhile, with a subject that is to stay
			return CreateBucket(ctx, js, cfg)
		case err != nil:
			return nil, err
		}
		return OpenBucket(ctx, js, cfg.Name)
	}
	var info kv.Info
	bucket := newBucket(existing, js)
	known := kv.With(bucket, js)
	if err == nil {
		info, err = known.Load(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("bucket %q cannot be inspected: %w", cfg.Name, kv.Describe(err))
	}
	newTTL, err := want.Change(ctx, known, info)
	if err != nil {
		return nil, err
	}
	if newTTL {
		refresh(ctx, known)
	}
	return bucket, nil
}

// refreshTimeout is how long the candidates of a bucket whose TTL was changed are waited for.
const refreshTimeout = 2 * time.Second

// refresh has the candidates of every key that is stored read the bucket's info. Those that cannot be asked learn of it later.
func refresh(ctx context.Context, bucket *kv.Bucket) {
	ctx, cancel := context.WithTimeout(ctx, refreshTimeout)
	defer cancel()
	keys, err := bucket.StoredKeys(ctx, ">")
	if err != nil {
		return
	}
	kv.Together(len(keys), kv.MaxTogether, func(i int) { _ = control.Client{Bucket: bucket}.Refresh(ctx, keys[i]) })
}
