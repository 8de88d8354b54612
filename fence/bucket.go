package fence

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/validate"
)

// Bucket writes to one KV bucket for one term. Many goroutines may use it at once, and it needs no closing. Reads that may lag behind, and
// watches, are those of the bucket's [jetstream.KeyValue].
type Bucket struct {
	handle *handle
	name   string
	key    string // under which epochs begin
	prefix string // of the subjects to which keys are published
}

// OpenBucket begins the epoch of term t in a KV bucket, under a key of its own, and returns a handle for writes that belong to the epoch.
// What [OpenStream] says of terms, limits and errors holds here too; nor may the bucket discard old messages at a limit. Do not keep state
// in the bucket of the election itself: its keys expire, and observers take them for elections.
func OpenBucket(ctx context.Context, js jetstream.JetStream, bucket string, t election.Term, opts ...Option) (b *Bucket, err error) {
	defer func() {
		if err != nil {
			b, err = nil, fmt.Errorf("fence: cannot open bucket %q for term %d of election %q: %w", bucket, t.Number, t.Key, err)
		}
	}()
	o := optionsOf(opts)
	key := "epoch." + t.Key
	if o.epochKey != nil {
		key = *o.epochKey
	}
	if err := ready(js, t); err != nil {
		return nil, err
	}
	if !validate.IsKey(key) {
		return nil, fmt.Errorf("the key for epochs, %q: %w", key, jetstream.ErrInvalidKey)
	}
	ctx, cancel := limited(ctx, js)
	defer cancel()
	on, err := find(ctx, js, kv.StreamName(bucket), kv.Subject(bucket, key), t)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		err = jetstream.ErrBucketNotFound
	}
	if err != nil {
		return nil, err
	}
	if err := on.checkBucketLimits(t, kv.Subject(bucket, key)); err != nil {
		return nil, err
	}
	b = &Bucket{name: bucket, key: key, prefix: kv.SubjectToWrite(on.api, bucket, "")}
	careful := !on.config.AllowAtomicPublish // no other write of the epoch may come between the read of a revision and the write
	if b.handle, err = openEpoch(ctx, on, kv.Subject(bucket, key), b.prefix+key, t, careful, o); err != nil {
		return nil, err
	}
	return b, nil
}

// witness returns the key whose deletion carries the demand of the epoch in a batch.
func (b *Bucket) witness() string { return "witness." + b.key }

// Epoch returns the revision of the record that began the epoch; see [Stream.Epoch].
func (b *Bucket) Epoch() uint64 { return b.handle.sequence() }

// Atomic reports whether the server checks the revision of a key together with the epoch; see the package documentation.
func (b *Bucket) Atomic() bool { return b.handle.config.AllowAtomicPublish }

// Get returns the value of a key as the leader of the bucket's stream has it. That includes what was written before the epoch began, which
// jetstream.KeyValue's Get, asking any replica, may miss; only a server that was cut off from the others, and does not know yet that it no
// longer leads, may miss it here. A key that has no value, or is deleted, is jetstream.ErrKeyNotFound.
func (b *Bucket) Get(ctx context.Context, key string) (jetstream.KeyValueEntry, error) {
	if err := b.validate(key); err != nil {
		return nil, err
	}
	found, err := b.last(ctx, key)
	if err == nil && !found.hasValue() {
		return nil, jetstream.ErrKeyNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("fence: %w", err)
	}
	return found, nil
}

// Put sets a key, whatever its revision, and returns the new one. The headers of the demand, 100 bytes and more, count towards the bucket's
// MaxValueSize. A value over it is nats.ErrMaxPayload, here and in every other write.
func (b *Bucket) Put(ctx context.Context, key string, value []byte) (uint64, error) {
	return b.store(ctx, key, &nats.Msg{Data: value})
}

// Create sets a key that has no value, or was deleted, and returns its revision. Otherwise the error is jetstream.ErrKeyExists.
func (b *Bucket) Create(ctx context.Context, key string, value []byte) (uint64, error) {
	revision, err := b.Update(ctx, key, value, 0)
	if !errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
		return revision, err
	}
	found, readErr := b.last(ctx, key)
	if readErr != nil {
		return 0, fmt.Errorf("fence: %w", readErr)
	}
	if !found.hasValue() {
		revision, err = b.Update(ctx, key, value, found.Revision())
	}
	if errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
		err = fmt.Errorf("fence: %q: %w", key, jetstream.ErrKeyExists)
	}
	return revision, err
}

// Update sets a key whose revision is the one given, 0 for a key that has none, and returns the new one. Otherwise the error is
// jetstream.ErrKeyRevisionMismatch.
func (b *Bucket) Update(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	return b.storeOver(ctx, key, &nats.Msg{Data: value}, revision)
}

// DeleteOption is an option of [Bucket.Delete].
type DeleteOption func(revision *uint64)

// LastRevision deletes a key only if its revision is the one given; otherwise the error is jetstream.ErrKeyRevisionMismatch. It is
// jetstream.LastRevision, which other packages cannot read.
func LastRevision(revision uint64) DeleteOption {
	return func(last *uint64) { *last = revision }
}

// Delete deletes a key: it leaves a marker in its place. Deleting a key that has no value is no error.
func (b *Bucket) Delete(ctx context.Context, key string, opts ...DeleteOption) (err error) {
	var last uint64
	for _, opt := range opts {
		if opt != nil {
			opt(&last)
		}
	}
	if last == 0 {
		_, err = b.store(ctx, key, deletion())
	} else {
		_, err = b.storeOver(ctx, key, deletion(), last)
	}
	return err
}

func deletion() *nats.Msg { return &nats.Msg{Header: nats.Header{kv.HeaderOperation: {"DEL"}}} }

// validate returns why a key cannot be written for the epoch.
func (b *Bucket) validate(key string) error {
	switch {
	case !validate.IsKey(key):
		return fmt.Errorf("fence: %w: %q", jetstream.ErrInvalidKey, key)
	case key == b.key || key == b.witness():
		return fmt.Errorf("fence: %q belongs to the epochs, and only opening the bucket writes it: use another key", key)
	}
	return nil
}

// store stores m under a key whatever its revision, and returns the new one.
func (b *Bucket) store(ctx context.Context, key string, m *nats.Msg) (uint64, error) {
	if err := b.validate(key); err != nil {
		return 0, err
	}
	m.Subject = b.prefix + key
	ack, err := b.handle.store(ctx, m)
	if err != nil {
		return 0, err
	}
	return ack.Sequence, nil
}

// storeOver stores m only if the key has the given revision, and returns the new one.
func (b *Bucket) storeOver(ctx context.Context, key string, m *nats.Msg, over uint64) (revision uint64, err error) {
	if err := b.validate(key); err != nil {
		return 0, err
	}
	m.Subject = b.prefix + key
	store := b.storeAfterReading
	if b.Atomic() {
		store = b.storeWithWitness
	}
	err = b.handle.write(ctx, true, b.handle.foreign(m), func(ctx context.Context, d *demand) (err error) {
		revision, err = store(ctx, m, key, over, d)
		return err
	})
	return revision, err
}

// storeWithWitness stores m, which demands the revision, and the witness, which demands the epoch, as one.
func (b *Bucket) storeWithWitness(ctx context.Context, m *nats.Msg, key string, over uint64, d *demand) (uint64, error) {
	own := &nats.Msg{Subject: m.Subject, Data: m.Data, Header: nats.Header{jetstream.ExpectedLastSubjSeqHeader: {strconv.FormatUint(over, 10)}}}
	maps.Copy(own.Header, m.Header)
	witness := deletion()
	witness.Subject = b.prefix + b.witness()
	last, err := b.handle.publishBatch(ctx, []*nats.Msg{d.fenced(own), d.fenced(witness)})
	if conflictOf(err) == moved {
		err = fmt.Errorf("%w: %q is not at revision %d: %w", jetstream.ErrKeyRevisionMismatch, key, over, err)
	}
	if err != nil {
		return 0, err
	}
	return last - 1, nil
}

// storeAfterReading stores m with the demand of the epoch alone, if the leader of the stream says that the revision is right.
func (b *Bucket) storeAfterReading(ctx context.Context, m *nats.Msg, key string, over uint64, d *demand) (uint64, error) {
	found, err := b.last(ctx, key)
	if err != nil {
		return 0, err
	}
	if found.Revision() != over {
		return 0, fmt.Errorf("%w: %q is at revision %d, not %d", jetstream.ErrKeyRevisionMismatch, key, found.Revision(), over)
	}
	return b.handle.publish(ctx, d.fenced(m))
}

// last returns what is stored under a key; its revision is 0 if nothing ever was.
func (b *Bucket) last(ctx context.Context, key string) (*entry, error) {
	ctx, cancel := limited(ctx, b.handle.js)
	defer cancel()
	m, err := b.handle.lastUnder(ctx, kv.Subject(b.name, key))
	return &entry{b.name, key, m}, err
}

// entry is what is stored under a key.
type entry struct {
	bucket, key string
	m           jetstream.RawStreamMsg
}

func (e *entry) Bucket() string                  { return e.bucket }
func (e *entry) Key() string                     { return e.key }
func (e *entry) Value() []byte                   { return e.m.Data }
func (e *entry) Revision() uint64                { return e.m.Sequence }
func (e *entry) Created() time.Time              { return e.m.Time }
func (e *entry) Delta() uint64                   { return 0 }                     // it is the last
func (e *entry) Operation() jetstream.KeyValueOp { return jetstream.KeyValuePut } // Get returns nothing else

// hasValue reports whether the key has a value.
func (e *entry) hasValue() bool { return e.Revision() != 0 && !kv.IsRemoval(e.m.Header) }
