package fence

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election"
)

const bucketPrefix = "KV_" // of the names of the streams behind buckets

// subjectOf returns the subject under which a bucket's stream stores a key.
func subjectOf(bucket, key string) string { return "$KV." + bucket + "." + key }

// headers by which a message says that it deletes its key
const (
	operationHeader = "KV-Operation"
	operationDelete = "DEL"
	operationPurge  = "PURGE"
)

// Bucket writes to one KV bucket for one term. It may be used by many goroutines at once, and needs no closing. Reads that may
// lag behind, and watches, are those of the bucket's [jetstream.KeyValue].
type Bucket struct {
	epoch  *epoch
	name   string
	key    string // under which epochs begin
	prefix string // of the subjects to which keys are published
	atomic bool
}

// OpenBucket begins the epoch of term t in a KV bucket, under a key of its own, and returns a handle for writes that belong to
// it. What [OpenStream] says of terms and errors holds here too. The bucket of the election itself is no place for state: its keys
// expire, and whoever looks at it takes them for elections.
func OpenBucket(ctx context.Context, js jetstream.JetStream, bucket string, t election.Term, opts ...Option) (*Bucket, error) {
	b, err := openBucket(ctx, js, bucket, t, opts)
	if err != nil {
		return nil, fmt.Errorf("fence: cannot open bucket %q for term %d of election %q: %w", bucket, t.Number, t.Key, err)
	}
	return b, nil
}

func openBucket(ctx context.Context, js jetstream.JetStream, bucket string, t election.Term, opts []Option) (*Bucket, error) {
	o := optionsOf(opts)
	key := "epoch." + t.Key
	if o.epochKey != nil {
		key = *o.epochKey
	}
	if err := ready(js, t); err != nil {
		return nil, err
	}
	if !isKey(key) {
		return nil, fmt.Errorf("the key for epochs, %q: %w", key, jetstream.ErrInvalidKey)
	}
	ctx, cancel := limited(ctx, js)
	defer cancel()
	on, err := find(ctx, js, bucketPrefix+bucket, subjectOf(bucket, key), t)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		err = jetstream.ErrBucketNotFound
	}
	if err != nil {
		return nil, err
	}
	b := &Bucket{name: bucket, key: key, prefix: subjectOf(bucket, ""), atomic: on.config.AllowAtomicPublish}
	if on.api != jetstream.DefaultAPIPrefix {
		b.prefix = on.api + b.prefix
	}
	if b.epoch, err = openEpoch(ctx, on, subjectOf(bucket, key), b.prefix+key, t, o); err != nil {
		return nil, err
	}
	if !b.atomic { // nothing of this handle comes between the reading of a revision and the write
		b.epoch.careful = true
		b.epoch.queue.Store(true)
	}
	return b, nil
}

// witness returns the key whose deletion stands in a batch for the demand of the epoch.
func (b *Bucket) witness() string { return "witness." + b.key }

// Epoch returns the revision of the record that began the epoch; see [Stream.Epoch].
func (b *Bucket) Epoch() uint64 { return b.epoch.demand.Load().sequence }

// Atomic says whether the server checks the revision of a key together with the epoch; see the package documentation.
func (b *Bucket) Atomic() bool { return b.atomic }

// Get returns what stands under a key, as the leader of the bucket's stream has it: what was written before the epoch began
// too, which jetstream.KeyValue's Get, asking any replica, may miss. Only a server that was cut off from the others, and does not
// know yet that it leads no more, may do so here. Nothing, or a deleted key, is jetstream.ErrKeyNotFound.
func (b *Bucket) Get(ctx context.Context, key string) (jetstream.KeyValueEntry, error) {
	if err := b.takes(key); err != nil {
		return nil, err
	}
	ctx, cancel := limited(ctx, b.epoch.js)
	defer cancel()
	found, err := b.last(ctx, key)
	switch {
	case err != nil:
		return nil, fmt.Errorf("fence: %w", err)
	case !found.stands():
		return nil, jetstream.ErrKeyNotFound
	}
	return found, nil
}

// Put sets a key, whatever its revision, and returns the new one.
func (b *Bucket) Put(ctx context.Context, key string, value []byte) (uint64, error) {
	if err := b.takes(key); err != nil {
		return 0, err
	}
	return b.store(ctx, &nats.Msg{Subject: b.prefix + key, Data: value})
}

// Create sets a key that nothing stands under, or that was deleted, and returns its revision. Otherwise the error is
// jetstream.ErrKeyExists.
func (b *Bucket) Create(ctx context.Context, key string, value []byte) (uint64, error) {
	if err := b.takes(key); err != nil {
		return 0, err
	}
	m := &nats.Msg{Subject: b.prefix + key, Data: value}
	revision, err := b.storeOver(ctx, m, key, 0)
	if !errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
		return revision, err
	}
	ctx, cancel := limited(ctx, b.epoch.js)
	defer cancel()
	found, readErr := b.last(ctx, key)
	if readErr != nil {
		return 0, fmt.Errorf("fence: %w", readErr)
	}
	if !found.stands() {
		revision, err = b.storeOver(ctx, m, key, found.Revision())
	}
	if errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
		err = fmt.Errorf("fence: %q: %w", key, jetstream.ErrKeyExists)
	}
	return revision, err
}

// Update sets a key whose revision is the one given, 0 for one that nothing stands under, and returns the new one. Otherwise
// the error is jetstream.ErrKeyRevisionMismatch.
func (b *Bucket) Update(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	if err := b.takes(key); err != nil {
		return 0, err
	}
	return b.storeOver(ctx, &nats.Msg{Subject: b.prefix + key, Data: value}, key, revision)
}

// DeleteOption is an option of [Bucket.Delete].
type DeleteOption func(*deletion)

type deletion struct {
	revision uint64
}

// LastRevision has a key deleted only if its revision is the one given; otherwise the error is
// jetstream.ErrKeyRevisionMismatch. It is jetstream.LastRevision, which cannot be read from outside of nats.go.
func LastRevision(revision uint64) DeleteOption {
	return func(d *deletion) { d.revision = revision }
}

// Delete deletes a key: it leaves a marker in its place. To delete one that nothing stands under is no error.
func (b *Bucket) Delete(ctx context.Context, key string, opts ...DeleteOption) error {
	if err := b.takes(key); err != nil {
		return err
	}
	var d deletion
	for _, opt := range opts {
		if opt != nil {
			opt(&d)
		}
	}
	m := deletionOf(b.prefix + key)
	var err error
	if d.revision == 0 {
		_, err = b.store(ctx, m)
	} else {
		_, err = b.storeOver(ctx, m, key, d.revision)
	}
	return err
}

func deletionOf(subject string) *nats.Msg {
	return &nats.Msg{Subject: subject, Header: nats.Header{operationHeader: {operationDelete}}}
}

// takes says why a key cannot be written for the epoch.
func (b *Bucket) takes(key string) error {
	switch {
	case !isKey(key):
		return fmt.Errorf("fence: %w: %q", jetstream.ErrInvalidKey, key)
	case key == b.key || key == b.witness():
		return fmt.Errorf("fence: %q belongs to the epochs, which only opening the bucket writes; take another key", key)
	}
	return nil
}

var keyPattern = regexp.MustCompile(`^[-/_=.a-zA-Z0-9]+$`)

// isKey says whether nats.go would take a key.
func isKey(key string) bool {
	return keyPattern.MatchString(key) && !strings.HasPrefix(key, ".") && !strings.HasSuffix(key, ".") && !strings.Contains(key, "..")
}

// store stores m whatever the revision of its key, and returns the new one.
func (b *Bucket) store(ctx context.Context, m *nats.Msg) (revision uint64, err error) {
	err = b.epoch.write(ctx, false, b.epoch.foreign(m), func(ctx context.Context, d *demand) error {
		ack, err := b.epoch.publish(ctx, d.fenced(m))
		if err == nil {
			revision = ack.Sequence
		}
		return err
	})
	return revision, err
}

// storeOver stores m only if its key has the given revision, and returns the new one.
func (b *Bucket) storeOver(ctx context.Context, m *nats.Msg, key string, over uint64) (revision uint64, err error) {
	store := b.storeAfterReading
	if b.atomic {
		store = b.storeWithWitness
	}
	err = b.epoch.write(ctx, true, b.epoch.foreign(m), func(ctx context.Context, d *demand) (err error) {
		revision, err = store(ctx, m, key, over, d)
		return err
	})
	return revision, err
}

// storeWithWitness stores m, which demands the revision, and the witness, which demands the epoch, as one.
func (b *Bucket) storeWithWitness(ctx context.Context, m *nats.Msg, key string, over uint64, d *demand) (uint64, error) {
	own := &nats.Msg{Subject: m.Subject, Data: m.Data, Header: nats.Header{jetstream.ExpectedLastSubjSeqHeader: {strconv.FormatUint(over, 10)}}}
	maps.Copy(own.Header, m.Header)
	last, err := b.epoch.publishBatch(ctx, []*nats.Msg{d.fenced(own), d.fenced(deletionOf(b.prefix + b.witness()))})
	if conflictIn(err) == moved {
		err = fmt.Errorf("%w: %q is not at revision %d: %w", jetstream.ErrKeyRevisionMismatch, key, over, err)
	}
	if err != nil {
		return 0, err
	}
	return last - 1, nil
}

// storeAfterReading stores m on the demand of the epoch alone, if the leader of the stream says that the revision is right.
func (b *Bucket) storeAfterReading(ctx context.Context, m *nats.Msg, key string, over uint64, d *demand) (uint64, error) {
	found, err := b.last(ctx, key)
	if err != nil {
		return 0, err
	}
	if found.Revision() != over {
		return 0, fmt.Errorf("%w: %q is at revision %d, not %d", jetstream.ErrKeyRevisionMismatch, key, found.Revision(), over)
	}
	ack, err := b.epoch.publish(ctx, d.fenced(m))
	if err != nil {
		return 0, err
	}
	return ack.Sequence, nil
}

// last returns what is kept under a key; its revision is 0 if nothing ever was.
func (b *Bucket) last(ctx context.Context, key string) (*entry, error) {
	m, err := b.epoch.lastUnder(ctx, subjectOf(b.name, key))
	if err != nil {
		return nil, err
	}
	if m == nil {
		m = new(jetstream.RawStreamMsg)
	}
	return &entry{b.name, key, m}, nil
}

// entry is what is kept under a key.
type entry struct {
	bucket, key string
	m           *jetstream.RawStreamMsg
}

var _ jetstream.KeyValueEntry = (*entry)(nil)

func (e *entry) Bucket() string     { return e.bucket }
func (e *entry) Key() string        { return e.key }
func (e *entry) Value() []byte      { return e.m.Data }
func (e *entry) Revision() uint64   { return e.m.Sequence }
func (e *entry) Created() time.Time { return e.m.Time }
func (e *entry) Delta() uint64      { return 0 } // the last

func (e *entry) Operation() jetstream.KeyValueOp { return operationOf(e.m.Header) }

// operationOf returns what a message did to its key; the server marks keys that it removed itself.
func operationOf(h nats.Header) jetstream.KeyValueOp {
	switch operation, reason := h.Get(operationHeader), h.Get(jetstream.MarkerReasonHeader); {
	case operation == operationPurge, reason == "MaxAge", reason == "Purge":
		return jetstream.KeyValuePurge
	case operation == operationDelete, reason == "Remove":
		return jetstream.KeyValueDelete
	}
	return jetstream.KeyValuePut
}

// stands says whether a value stands under the key.
func (e *entry) stands() bool {
	return e.Revision() != 0 && e.Operation() == jetstream.KeyValuePut
}
