package election

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/natscampaign/election/internal/control"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/natsconn"
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
	return js.KeyValue(ctx, name)
}

var errNoJetStream = validate.Errorf("the JetStream context is nil: pass the one that jetstream.New returned")

// BucketConfig says what bucket [CreateBucket] makes.
type BucketConfig struct {
	Name     string                // letters, digits, - and _
	TTL      time.Duration         // of every lease in the bucket: 1 s to 1 h, 2 s or more by preference
	Replicas int                   // 1, 3 or 5; 0 is 1, or what the bucket has
	Storage  jetstream.StorageType // file by default; memory, with one replica only, forgets term numbers when the server restarts
	MaxBytes int64                 // of all that the bucket stores, which some accounts demand; 0 is no limit, or what the bucket has

	// ChoriaCompatible makes a bucket in which candidates of Choria can campaign too: it announces no expiries.
	ChoriaCompatible bool
}

// CreateBucket makes a bucket that is fit for elections, or changes one that exists: history 1, the TTL, expiry markers of a second unless
// it is to be compatible with Choria, and what it commits republished below election.<name>, on a subject of its own, which notifies
// candidates without a consumer each. It writes the bucket's time of creation to the metadata of the stream, where no server changes it,
// and refuses roll-ups, by which a write of one key removes all others, where there are no markers: servers allow them with markers. Of a
// bucket that exists the storage cannot be changed, nor can markers be taken away; that is an [ErrBucketUnsuitable], as is what the server
// refuses. Everything else about it stays as it is, and a bucket that is as cfg says is not changed. A bad configuration is an
// [ErrInvalidOption], and nothing is made. CreateBucket waits until ctx ends for a connection that is still being made.
//
// CreateBucket does not shorten a TTL while somebody holds a key, also an [ErrBucketUnsuitable]: the holder may consider itself leader for
// as long as the old TTL. It has the candidates of all keys that are stored read the TTL when it has changed it.
//
// Servers before 2.11 know no markers, and the bucket does without: candidates then notice an expiry 0.4 s later, and a candidate that is
// not notified waits for the stand-down after a release too. LimitMarkerTTL in the bucket's status shows it; admin.Check warns of it.
func CreateBucket(ctx context.Context, js jetstream.JetStream, cfg BucketConfig) (*Bucket, error) {
	if validate.IsNil(js) {
		return nil, errNoJetStream
	}
	if err := kv.ValidateConfig(cfg.Name, cfg.TTL, cfg.Replicas, cfg.Storage, cfg.MaxBytes); err != nil {
		return nil, err
	}
	existing, err := open(ctx, js, cfg.Name)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		bucket, err := cfg.create(ctx, js)
		if errors.Is(err, jetstream.ErrBucketExists) { // somebody made it meanwhile, with a subject that is to stay
			return CreateBucket(ctx, js, cfg)
		}
		return bucket, err
	}
	var info kv.Info
	bucket := newBucket(existing, js)
	if err == nil {
		info, err = kv.With(bucket, js).Load(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("bucket %q cannot be inspected: %w", cfg.Name, kv.Describe(err))
	}
	if err := cfg.change(ctx, kv.With(bucket, js), info); err != nil {
		return nil, err
	}
	return bucket, nil
}

func init() {
	settings.CreateBucket = func(ctx context.Context, js jetstream.JetStream, config any) error {
		_, err := config.(BucketConfig).create(ctx, js)
		return err
	}
}

// create makes a bucket that does not exist. The error is jetstream.ErrBucketExists if it does by now.
func (c BucketConfig) create(ctx context.Context, js jetstream.JetStream) (*Bucket, error) {
	stream, err := js.CreateStream(ctx, c.over(kv.NewStream(c.Name, c.Storage), true))
	switch {
	case errors.Is(err, jetstream.ErrStreamNameAlreadyInUse):
		return nil, fmt.Errorf("%w: %w", jetstream.ErrBucketExists, err)
	case err != nil:
		return nil, c.refused(err)
	}
	made := stream.CachedInfo()
	pinned := c.over(made.Config, kv.WritesMarkers(made))
	kv.Pin(&pinned, made)
	err = kv.UntilRefused(ctx, js.Conn(), kv.ToChange(kv.APIPrefix(js), c.Name), func(ctx context.Context) error {
		_, err := js.UpdateStream(ctx, pinned)
		return err
	})
	if err != nil && !errors.Is(err, nats.ErrPermissionViolation) { // whoever may make a bucket and not change it does without
		return nil, c.refused(err)
	}
	return OpenBucket(ctx, js, c.Name)
}

// change makes a bucket that exists what c says.
func (c BucketConfig) change(ctx context.Context, bucket *kv.Bucket, info kv.Info) error {
	if info.Stream == nil {
		return fmt.Errorf("bucket %q does not describe the stream behind it, which CreateBucket would change: pass a JetStream that jetstream.New returned", c.Name)
	}
	if err := c.canChange(info); err != nil {
		return err
	}
	now := info.Stream.Config
	want := c.over(now, kv.WritesMarkers(info.Stream))
	kv.Pin(&want, info.Stream)
	if reflect.DeepEqual(now, want) {
		return nil
	}
	if now.MaxAge != c.TTL {
		if err := c.canShorten(ctx, bucket, info); err != nil {
			return err
		}
	}
	if _, err := bucket.JetStream().UpdateStream(ctx, want); err != nil {
		return c.refused(err)
	}
	if now.MaxAge != c.TTL {
		refresh(ctx, bucket)
	}
	return nil
}

// canShorten returns an error if the TTL is to become shorter than the lease of somebody who holds a key.
func (c BucketConfig) canShorten(ctx context.Context, bucket *kv.Bucket, info kv.Info) error {
	if info.TTL > 0 && c.TTL > info.TTL {
		return nil
	}
	change := fmt.Sprintf("%q: the TTL cannot become %v instead of %v", c.Name, c.TTL, info.TTL)
	held, found, err := bucket.FindHolder(ctx, info)
	switch {
	case err != nil:
		return fmt.Errorf("%s, because it is not known whether somebody holds a key: %w", change, kv.Describe(err))
	case found:
		return fmt.Errorf("%w: %s while %q holds the key %q, and may consider itself leader for as long as before: stop all candidates, or pause the elections and have the leaders resign, and change the TTL then",
			ErrBucketUnsuitable, change, held.Name, held.Key)
	}
	return nil
}

// refreshTimeout is how long the candidates of a bucket whose TTL was changed are waited for.
const refreshTimeout = 2 * time.Second

// refresh has the candidates of every key that is stored read the bucket's info. Those that cannot be asked learn of it later.
func refresh(ctx context.Context, bucket *kv.Bucket) {
	ctx, cancel := context.WithTimeout(ctx, refreshTimeout)
	defer cancel()
	keys, err := bucket.StoredKeys(ctx)
	if err != nil {
		return
	}
	const together = 16
	var all sync.WaitGroup
	next := make(chan string)
	for range min(together, len(keys)) {
		all.Go(func() {
			for key := range next {
				_ = control.Client{Bucket: bucket}.Refresh(ctx, key)
			}
		})
	}
	for _, key := range keys {
		next <- key
	}
	close(next)
	all.Wait()
}

// refused is the error for a bucket that could not be made as it is wanted. Only what the server itself says is about the
// bucket.
func (c BucketConfig) refused(err error) error {
	const needsMaxBytes jetstream.ErrorCode = 10113
	api := jetstream.JetStreamError(nil)
	switch {
	case !errors.As(err, &api) || api.APIError() == nil:
		return fmt.Errorf("bucket %q cannot be made: %w", c.Name, kv.Describe(err))
	case api.APIError().ErrorCode == needsMaxBytes:
		return fmt.Errorf("%w: %q cannot be made so: the account demands a limit for what a bucket stores: set MaxBytes (ELECTION_MAX_BYTES, --max-bytes), such as 1048576 for up to 500 elections: %w", ErrBucketUnsuitable, c.Name, err)
	}
	return fmt.Errorf("%w: %q cannot be made so: %w", ErrBucketUnsuitable, c.Name, err)
}

// over returns the configuration that c makes of a present one, on a server that writes expiry markers or does not.
func (c BucketConfig) over(now jetstream.StreamConfig, markers bool) jetstream.StreamConfig {
	now.MaxMsgsPerSubject, now.MaxAge, now.Replicas = 1, c.TTL, cmp.Or(c.Replicas, now.Replicas, 1)
	now.MaxBytes = cmp.Or(c.MaxBytes, now.MaxBytes)
	now.Duplicates = min(c.TTL, cmp.Or(now.Duplicates, c.TTL), kv.MaxDuplicates) // servers refuse more than the TTL
	if !kv.Republishes(c.Name, now.RePublish) {
		// A subject of its own keeps it apart from buckets of the same name in other domains.
		now.RePublish = &jetstream.RePublish{Source: kv.Subject(c.Name, ">"), Destination: "election." + c.Name + "." + nuid.Next() + ".>"}
	}
	if !c.ChoriaCompatible && markers {
		now.AllowMsgTTL, now.SubjectDeleteMarkerTTL = true, kv.MarkerTTL
	}
	now.AllowRollup = now.SubjectDeleteMarkerTTL > 0 // the server insists, and then allows any client a roll-up of the whole stream
	return now
}

// canChange returns an error if a bucket that exists cannot be made what c says.
func (c BucketConfig) canChange(info kv.Info) error {
	if info.Stream.Config.Storage != c.Storage {
		return fmt.Errorf("%w: %q exists and is kept in %v storage, which cannot be changed: remove it first, or ask for that storage", ErrBucketUnsuitable, c.Name, info.Stream.Config.Storage)
	}
	if c.ChoriaCompatible && info.MarkerTTL > 0 {
		return fmt.Errorf("%w: %q exists and announces expiries by markers, which cannot be taken away: candidates of Choria cannot campaign there, use another bucket", ErrBucketUnsuitable, c.Name)
	}
	info.TTL, info.History = c.TTL, 1
	return info.Validate()
}
