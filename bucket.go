package election

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
)

// markerLife is how long the marker of an expiry stands, the least that servers take: until it has gone, a candidate that may
// not read cannot create the key.
const markerLife = time.Second

// BucketConfig says what bucket [CreateBucket] makes.
type BucketConfig struct {
	Name     string                // letters, digits, - and _
	TTL      time.Duration         // of every lease in the bucket: 1 s to 1 h, 2 s or more by preference
	Replicas int                   // 1, 3 or 5; 0 is 1, or what the bucket has
	Storage  jetstream.StorageType // file unless memory is asked for, which forgets term numbers when the servers restart
	Mixed    bool                  // candidates of Choria stand in it too, so that expiries cannot be announced
}

var legalBucket = regexp.MustCompile(`^[-_a-zA-Z0-9]+$`)

// validate names every problem of the configuration.
func (c BucketConfig) validate() error {
	var problems []error
	if !legalBucket.MatchString(c.Name) {
		problems = append(problems, invalid("%q is no name for a bucket: use letters, digits, - and _", c.Name))
	}
	if c.TTL < minTTL || c.TTL > maxTTL {
		problems = append(problems, invalid("a TTL of %v: give the bucket one between %v and %v", c.TTL, minTTL, maxTTL))
	}
	if c.Replicas != 0 && c.Replicas != 1 && c.Replicas != 3 && c.Replicas != 5 {
		problems = append(problems, invalid("%d replicas: use 1, 3 or 5", c.Replicas))
	}
	return errors.Join(problems...)
}

// CreateBucket makes a bucket that is fit for elections, or brings one that exists to it: history 1, the TTL, expiry
// markers of a second unless it is mixed, and what it commits republished below election.<name>, on a subject of its own, which wakes
// candidates up without a consumer each. Of a bucket that exists the storage cannot be changed, nor can markers be taken
// away; that is an [ErrBucketUnsuitable], as is what the server refuses. All else about it stays as it is. A bad
// configuration is an [ErrInvalidOption], and nothing is made. Do not change the TTL of a bucket in which somebody leads.
//
// Servers before 2.11 know no markers, and the bucket does without: candidates then find an expiry out 0.4 s later, and one
// that hears of nothing waits for the stand-down after a release too. LimitMarkerTTL in the bucket's status tells; [Check]
// warns of it.
func CreateBucket(ctx context.Context, js jetstream.JetStream, cfg BucketConfig) (jetstream.KeyValue, error) {
	if isNil(js) {
		return nil, invalid("the JetStream context is nil: pass the one that jetstream.New returned")
	}
	if err := cfg.validate(); err != nil {
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
		return nil, fmt.Errorf("bucket %q cannot be looked at: %w", cfg.Name, err)
	}
	has, err := cfg.reconcile(status.Config())
	if err != nil {
		return nil, err
	}
	bucket, err := apply(ctx, js.UpdateKeyValue, cfg.over(has))
	if err != nil {
		return nil, cfg.refused(err)
	}
	return bucket, nil
}

// create makes a bucket that does not exist. The error is jetstream's if it does by now.
func (c BucketConfig) create(ctx context.Context, js jetstream.JetStream) (jetstream.KeyValue, error) {
	bucket, err := apply(ctx, js.CreateKeyValue, c.over(jetstream.KeyValueConfig{Bucket: c.Name, Storage: c.Storage, Description: "leader elections"}))
	switch {
	case errors.Is(err, jetstream.ErrBucketExists):
		return nil, err
	case err != nil:
		return nil, c.refused(err)
	}
	return bucket, nil
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

// markerRemedy returns how to come by expiry markers from a server of the given version, which may not be known.
func markerRemedy(version string) string {
	const known = "2.11 or newer"
	var major, minor int
	if _, err := fmt.Sscanf(version, "%d.%d", &major, &minor); err == nil && (major < 2 || major == 2 && minor < 11) {
		return fmt.Sprintf("upgrade the servers, of which this one is %s, to %s, and then let CreateBucket bring the bucket to it, unless candidates of Choria stand in it", version, known)
	}
	return fmt.Sprintf("let CreateBucket bring the bucket to it, on servers of %s, unless candidates of Choria stand in it", known)
}

// refused is the error for a bucket that could not be made as it is wanted. Only what the server itself says is about the
// bucket.
func (c BucketConfig) refused(err error) error {
	if api := jetstream.JetStreamError(nil); !errors.As(err, &api) || api.APIError() == nil {
		return fmt.Errorf("bucket %q cannot be made: %w", c.Name, err)
	}
	return fmt.Errorf("%w: %q cannot be made so: %w", ErrBucketUnsuitable, c.Name, err)
}

// over returns what a bucket becomes by c that is so now.
func (c BucketConfig) over(now jetstream.KeyValueConfig) jetstream.KeyValueConfig {
	now.History, now.TTL, now.Replicas = 1, c.TTL, cmp.Or(c.Replicas, now.Replicas, 1)
	if r := now.RePublish; r == nil || r.HeadersOnly {
		// A subject of its own keeps it apart from buckets of the same name in other domains.
		now.RePublish = &jetstream.RePublish{Source: "$KV." + c.Name + ".>", Destination: "election." + c.Name + "." + nuid.Next() + ".>"}
	}
	if !c.Mixed {
		now.LimitMarkerTTL = markerLife
	}
	return now
}

// reconcile returns the configuration of a bucket that exists if it can become what is wanted.
func (c BucketConfig) reconcile(has jetstream.KeyValueConfig) (jetstream.KeyValueConfig, error) {
	if has.Storage != c.Storage {
		return has, fmt.Errorf("%w: %q exists and is kept in %v storage, which cannot be changed: remove it first, or ask for that", ErrBucketUnsuitable, c.Name, has.Storage)
	}
	if c.Mixed && has.LimitMarkerTTL > 0 {
		return has, fmt.Errorf("%w: %q exists and announces expiries by markers, which cannot be taken away: candidates of Choria cannot stand there, use another bucket", ErrBucketUnsuitable, c.Name)
	}
	return has, nil
}
