package kv

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/natscampaign/election/internal/timeutil"
	"github.com/natscampaign/election/internal/timing"
	"github.com/natscampaign/election/internal/validate"
)

// Config says what bucket is to be made. It is the BucketConfig of package election, which describes the fields.
type Config struct {
	Name     string
	TTL      time.Duration
	Replicas int
	Storage  jetstream.StorageType
	MaxBytes int64

	ChoriaCompatible bool
}

// Validate checks the configuration, and names every problem.
func (c Config) Validate() error {
	var problems []error
	if !legalName.MatchString(c.Name) {
		problems = append(problems, InvalidName(c.Name))
	}
	if c.TTL < timing.MinTTL || c.TTL > timing.MaxTTL {
		problems = append(problems, validate.Errorf("a TTL of %v: give the bucket one between %v and %v", c.TTL, timing.MinTTL, timing.MaxTTL))
	}
	if c.Replicas != 0 && c.Replicas != 1 && c.Replicas != 3 && c.Replicas != 5 {
		problems = append(problems, validate.Errorf("%d replicas: use 1, 3 or 5", c.Replicas))
	}
	if c.Storage == jetstream.MemoryStorage && c.Replicas > 1 {
		problems = append(problems, validate.Errorf("memory storage with %d replicas: a restart of all servers would begin term numbers anew without a sign: use file storage, or 1 replica", c.Replicas))
	}
	if c.MaxBytes < 0 || c.MaxBytes > 0 && c.MaxBytes < MinBytes {
		problems = append(problems, validate.Errorf("a limit of %d bytes: give the bucket %d or more, such as 1048576 for up to 500 elections, or 0 for no limit", c.MaxBytes, MinBytes))
	}
	return errors.Join(problems...)
}

// Create makes a bucket that does not exist, and never changes one that does: the error is jetstream.ErrBucketExists then.
func (c Config) Create(ctx context.Context, js jetstream.JetStream) error {
	cfg := c.over(newStream(c.Name, c.Storage), true)
	noteTTL(&cfg, 0)
	made, err := c.createStream(ctx, js, cfg)
	if err != nil {
		return err
	}
	return c.writeIdentity(ctx, js, made, c.over(made.Config, WritesMarkers(made)))
}

// createStream makes the stream of a bucket. The error is jetstream.ErrBucketExists if there is one.
func (c Config) createStream(ctx context.Context, js jetstream.JetStream, cfg jetstream.StreamConfig) (*jetstream.StreamInfo, error) {
	stream, err := js.CreateStream(ctx, cfg)
	if hasErrorCode(err, noStore) && timeutil.Pause(ctx, storeRetry) == nil {
		stream, err = js.CreateStream(ctx, cfg)
	}
	switch {
	case errors.Is(err, jetstream.ErrStreamNameAlreadyInUse):
		return nil, fmt.Errorf("%w: %w", jetstream.ErrBucketExists, err)
	case err != nil:
		return nil, c.refused(err)
	}
	return stream.CachedInfo(), nil
}

// writeIdentity has a stream that was made say which it is, see [CreatedOf].
func (c Config) writeIdentity(ctx context.Context, js jetstream.JetStream, made *jetstream.StreamInfo, pinned jetstream.StreamConfig) error {
	pin(&pinned, made)
	err := UntilRefused(ctx, js.Conn(), ToChange(APIPrefix(js), c.Name), func(ctx context.Context) error {
		_, err := js.UpdateStream(ctx, pinned)
		return err
	})
	if err != nil && !errors.Is(err, nats.ErrPermissionViolation) { // a user that may make a bucket and not change it does without
		return c.refused(err)
	}
	return nil
}

const (
	// DefaultReplicas is how many CreateReplicated aims at: they survive the loss of one server.
	DefaultReplicas = 3
	// StartOfCluster is how long CreateReplicated waits for servers that join a cluster: at most half of the time that it has.
	StartOfCluster = 3 * time.Second
	startRetry     = 200 * time.Millisecond
	// storeRetry is the pause after which a stream is made again whose files could not be: a server that has just removed the last stream of an account
	// removes the folder of its streams a moment later.
	storeRetry = 100 * time.Millisecond
)

// CreateReplicated is Create with three replicas, where c does not say how many, or with one where the server refuses three. It returns how many
// there are, and why not three. A cluster whose servers are just starting has no room for three yet, so it is asked for a few seconds.
func (c Config) CreateReplicated(ctx context.Context, js jetstream.JetStream) (replicas int, refusal, err error) {
	return c.replicated(ctx, func(ctx context.Context, c Config) error { return c.Create(ctx, js) })
}

// replicated has a bucket made with as many replicas as CreateReplicated says.
func (c Config) replicated(ctx context.Context, create func(context.Context, Config) error) (replicas int, refusal, err error) {
	if c.Replicas != 0 || c.Storage == jetstream.MemoryStorage {
		return max(1, c.Replicas), nil, create(ctx, c)
	}
	c.Replicas = DefaultReplicas
	patience := StartOfCluster
	if deadline, ok := ctx.Deadline(); ok {
		patience = min(patience, time.Until(deadline)/2)
	}
	for began := time.Now(); ; {
		refusal = create(ctx, c)
		if !hasErrorCode(refusal, noRoom) || time.Since(began) > patience || timeutil.Pause(ctx, startRetry) != nil {
			break
		}
	}
	if !errors.Is(refusal, ErrUnsuitable) || hasErrorCode(refusal, noQuorum) { // there are three, or one would be refused too
		return c.Replicas, nil, refusal
	}
	c.Replicas = 1
	return c.Replicas, refusal, create(ctx, c)
}

const (
	noRoom        jetstream.ErrorCode = 10005 // a cluster has fewer servers than replicas
	noQuorum      jetstream.ErrorCode = 10008 // a cluster makes no streams at the moment
	noStore       jetstream.ErrorCode = 10049 // the files of the stream could not be made
	noReplicas    jetstream.ErrorCode = 10074 // a server is on its own
	needsMaxBytes jetstream.ErrorCode = 10113
)

func hasErrorCode(err error, code jetstream.ErrorCode) bool {
	api := jetstream.JetStreamError(nil)
	return errors.As(err, &api) && api.APIError() != nil && api.APIError().ErrorCode == code
}

// IsOnItsOwn reports whether a server refused several replicas because it belongs to no cluster.
func IsOnItsOwn(refusal error) bool { return hasErrorCode(refusal, noReplicas) }

// Change makes a bucket that exists what c says, and reports whether its TTL is another now.
func (c Config) Change(ctx context.Context, bucket *Bucket, info Info) (newTTL bool, err error) {
	want, err := c.plan(ctx, bucket, info)
	if err != nil || reflect.DeepEqual(info.Stream.Config, want) {
		return false, err
	}
	before := info.Stream.Config.MaxAge
	noteTTL(&want, before)
	if _, err := bucket.JetStream().UpdateStream(ctx, want); err != nil {
		return false, c.refused(err)
	}
	return before != c.TTL, nil
}

// Plan returns what Change would change, or its error.
func (c Config) Plan(ctx context.Context, bucket *Bucket, info Info) ([]Difference, error) {
	want, err := c.plan(ctx, bucket, info)
	if err != nil {
		return nil, err
	}
	return differences(info.Stream.Config, want), nil
}

// plan returns the configuration that c makes of a bucket that exists, or an error if the bucket cannot have it, or if the change would remove what is no
// election's, or expire a key while its holder may still lead.
func (c Config) plan(ctx context.Context, bucket *Bucket, info Info) (want jetstream.StreamConfig, err error) {
	if info.Stream == nil {
		return want, fmt.Errorf("bucket %q does not describe the stream behind it, which CreateBucket would change: pass a JetStream that jetstream.New returned", c.Name)
	}
	if err := c.canChange(info); err != nil {
		return want, err
	}
	now := info.Stream.Config
	want = c.over(now, WritesMarkers(info.Stream))
	pin(&want, info.Stream)
	shorter := now.MaxAge != c.TTL && (!info.HasTTL() || c.TTL < info.TTL)
	announces := now.SubjectDeleteMarkerTTL <= 0 && want.SubjectDeleteMarkerTTL > 0
	if !shorter && !announces && now.MaxMsgsPerSubject == want.MaxMsgsPerSubject && now.RePublish == want.RePublish && now.Sources == nil {
		return want, nil
	}
	stored, err := bucket.Contents(ctx, info)
	if err != nil {
		return want, fmt.Errorf("bucket %q cannot be changed, because it is not known what it stores: %w", c.Name, Describe(err))
	}
	if err := c.keeps(info, stored, announces); err != nil {
		return want, err
	}
	if shorter {
		return want, c.canShorten(info, stored.Holders)
	}
	return want, nil
}

// keeps returns an error if the bucket stores what is no election's, which a change may remove or publish. A bare name may be other text. It is taken for a
// candidate's where keys expire and no markers are added, which hinder those of Choria; and where the bucket has had a TTL and c expects such candidates.
func (c Config) keeps(info Info, stored Contents, announces bool) error {
	const use = "use another bucket for elections, or delete the keys if nobody needs them"
	if len(stored.Foreign) > 0 {
		return fmt.Errorf("%w: %q is not changed: it stores what no election does (%s), which could be lost: %s", ErrUnsuitable, c.Name, someKeys(stored.Foreign), use)
	}
	expired := info.HasTTL() || notedTTL(&info.Stream.Config) > 0
	if len(stored.Plain) == 0 || info.HasTTL() && !announces || expired && c.ChoriaCompatible {
		return nil
	}
	fix := "if candidates of Choria campaign in the bucket, have it compatible with them (BucketConfig.ChoriaCompatible, --choria-compatible)"
	if !expired || info.MarkerTTL > 0 {
		fix = fmt.Sprintf("if they are candidates, stop these, and evict each ('election-cli evict KEY --bucket %s')", c.Name)
	}
	return fmt.Errorf("%w: %q is not changed: it stores bare names, or other text that could be lost (%s): %s; else %s", ErrUnsuitable, c.Name, someKeys(stored.Plain), fix, use)
}

// someKeys lists the first keys.
func someKeys(keys []string) string {
	const most = 5
	var named []string
	for _, key := range keys[:min(len(keys), most)] {
		named = append(named, strconv.Quote(key))
	}
	if more := len(keys) - most; more > 0 {
		named = append(named, fmt.Sprintf("%d more", more))
	}
	return strings.Join(named, ", ")
}

// canShorten returns an error if the TTL is to become shorter than the lease of somebody who holds a key.
func (c Config) canShorten(info Info, holders []Holder) error {
	for _, h := range holders {
		change := fmt.Sprintf("%q: the TTL cannot become %v instead of %s while %q holds the key %q", c.Name, c.TTL, TTLText(info.TTL), h.Name, h.Key)
		if info.HasTTL() {
			return fmt.Errorf("%w: %s, and may consider itself leader for as long as before: %s, and change the TTL then", ErrUnsuitable, change, Idle)
		}
		if needed := h.neededTTL(notedTTL(&info.Stream.Config)); c.TTL < needed {
			lease := fmt.Sprintf("with a lease of %v", h.Lease)
			if h.Lease <= 0 {
				lease = "and does not say how long its lease is"
			}
			return fmt.Errorf("%w: %s %s: give the bucket a TTL of %v or more, or stop that candidate, evict its key ('election-cli evict %s --bucket %s'), and change the TTL then", ErrUnsuitable, change, lease, needed, h.Key, c.Name)
		}
	}
	return nil
}

// refused is the error for a bucket that could not be made as it is wanted. Only what the server itself says is about the
// bucket.
func (c Config) refused(err error) error {
	api := jetstream.JetStreamError(nil)
	switch {
	case !errors.As(err, &api) || api.APIError() == nil:
		return fmt.Errorf("bucket %q cannot be made: %w", c.Name, Describe(err))
	case hasErrorCode(err, needsMaxBytes):
		return fmt.Errorf("%w: %q cannot be made so: the account demands a limit for what a bucket stores: set MaxBytes (ELECTION_MAX_BYTES, --max-bytes), such as 1048576 for up to 500 elections: %w", ErrUnsuitable, c.Name, err)
	case c.Replicas > 1 && IsOnItsOwn(err):
		return fmt.Errorf("%w: %q cannot have %d replicas, because the server belongs to no cluster: give 1 replica, or leave their number out (Replicas, ELECTION_REPLICAS, --replicas), or connect to a cluster of %[3]d servers: %[4]w",
			ErrUnsuitable, c.Name, c.Replicas, err)
	case c.Replicas > 1 && hasErrorCode(err, noRoom):
		return fmt.Errorf("%w: %q cannot have %d replicas, because so many servers of the cluster do not run, or have no room: start or add servers, or give fewer replicas (Replicas, ELECTION_REPLICAS, --replicas): %w",
			ErrUnsuitable, c.Name, c.Replicas, err)
	}
	return fmt.Errorf("%w: %q cannot be made so: %w", ErrUnsuitable, c.Name, err)
}

// over returns the configuration that c makes of a present one, on a server that writes expiry markers or does not.
func (c Config) over(now jetstream.StreamConfig, markers bool) jetstream.StreamConfig {
	now.MaxMsgsPerSubject, now.MaxAge, now.Replicas = 1, c.TTL, cmp.Or(c.Replicas, now.Replicas, 1)
	now.Storage, now.MaxBytes = c.Storage, cmp.Or(c.MaxBytes, now.MaxBytes)
	now.MaxMsgs, now.Discard, now.AllowDirect, now.NoAck, now.Sources = -1, jetstream.DiscardNew, true, false, nil
	if most := now.MaxMsgSize; most >= 0 && most < maxMessageSize {
		now.MaxMsgSize = -1
	}
	now.Duplicates = min(c.TTL, cmp.Or(now.Duplicates, c.TTL), maxDuplicates) // servers refuse more than the TTL
	if !republishes(c.Name, now.RePublish) {
		// A subject of its own keeps it apart from buckets of the same name in other domains.
		now.RePublish = &jetstream.RePublish{Source: Subject(c.Name, ">"), Destination: "election." + c.Name + "." + nuid.Next() + ".>"}
	}
	switch {
	case c.ChoriaCompatible:
		now.SubjectDeleteMarkerTTL = 0
		setMetadata(&now, ChoriaMetadata, "true")
	case markers:
		now.AllowMsgTTL, now.SubjectDeleteMarkerTTL = true, MarkerTTL
		setMetadata(&now, RemembersMetadata, "true")
	}
	now.AllowRollup = now.SubjectDeleteMarkerTTL > 0 // the server insists, and then allows any client a roll-up of the whole stream
	return now
}

// canChange returns an error if a bucket that exists cannot be made what c says.
func (c Config) canChange(info Info) error {
	if info.SessionTTL > 0 {
		return fmt.Errorf("%w: %q is made for sessions, and is not changed: with a TTL the claims of its keys would expire while they are led; 'nats stream edit %s' changes its replicas and limits",
			ErrUnsuitable, c.Name, StreamName(c.Name))
	}
	if info.Stream.Config.Storage != c.Storage {
		return fmt.Errorf("%w: %q exists and is kept in %v storage, which cannot be changed: remove it first, or ask for that storage", ErrUnsuitable, c.Name, info.Stream.Config.Storage)
	}
	if c.ChoriaCompatible && info.MarkerTTL > 0 {
		return fmt.Errorf("%w: %q exists and announces expiries by markers, which cannot be taken away: candidates of Choria cannot campaign there, use another bucket", ErrUnsuitable, c.Name)
	}
	want := c.over(info.Stream.Config, false)
	info.TTL, info.History = c.TTL, 1
	stream := *info.Stream
	stream.Config, info.Stream = want, &stream
	return info.Validate()
}
