package kv

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election/internal/record"
)

// maxMarkerReads is how many watchers of one bucket may read a marker at the same time.
const maxMarkerReads = 4

// Bucket is a bucket with the connection that it was opened on, where that is known. With the connection a candidate reads the
// markers of expiries and deletions, subscribes to republished changes, and answers operators.
type Bucket struct {
	jetstream.KeyValue

	js      jetstream.JetStream // nil if it is not known
	stream  atomic.Pointer[jetstream.Stream]
	markers chan struct{} // holds one value for each watcher that reads a marker
}

// Handle is embedded by a bucket that is passed to many, so that they share what they learn of it.
type Handle struct {
	owner  jetstream.KeyValue
	shared *Bucket
}

// NewHandle returns the handle for a bucket that was opened on js. It is of use only to those that the owner itself is passed to: a bucket
// that embeds the owner may change what its methods do.
func NewHandle(owner jetstream.KeyValue, js jetstream.JetStream) Handle {
	return Handle{owner, With(owner, js)}
}

// JetStream returns the JetStream context that the bucket was opened with; nil for the zero Handle.
func (h Handle) JetStream() jetstream.JetStream {
	if h.shared == nil {
		return nil
	}
	return h.shared.JetStream()
}

func (h Handle) handle() Handle { return h }

// With returns the bucket together with the JetStream context that it was opened with. If js is nil and the bucket knows its own, by a
// method JetStream, that one is used; else the connection stays unknown.
func With(bucket jetstream.KeyValue, js jetstream.JetStream) *Bucket {
	if known, ok := bucket.(interface{ handle() Handle }); ok {
		if h := known.handle(); h.owner == bucket && (js == nil || js == h.shared.js) {
			return h.shared
		}
	}
	if known, ok := bucket.(interface{ JetStream() jetstream.JetStream }); ok && js == nil {
		js = known.JetStream()
	}
	return &Bucket{KeyValue: bucket, js: js, markers: make(chan struct{}, maxMarkerReads)}
}

// clientPackage has the client's own handle of a bucket.
const clientPackage = "github.com/nats-io/nats.go/jetstream"

// Direct reports whether the keys may be written beside the handle, by a message: the connection is known, and the handle is the client's own, or that of
// package election. Any other handle may change what a write does, or note it.
func (b *Bucket) Direct() bool {
	if b.js == nil {
		return false
	}
	if known, ok := b.KeyValue.(interface{ handle() Handle }); ok && known.handle().owner == b.KeyValue {
		return true
	}
	t := reflect.TypeOf(b.KeyValue)
	return t.Kind() == reflect.Pointer && t.Elem().PkgPath() == clientPackage
}

// JetStream returns the JetStream context; nil if it is not known.
func (b *Bucket) JetStream() jetstream.JetStream { return b.js }

// Conn returns the connection; nil if it is not known.
func (b *Bucket) Conn() *nats.Conn {
	if b.js == nil {
		return nil
	}
	return b.js.Conn()
}

// ID identifies the bucket within this process: by its connection and name or, where the connection is not known, by the handle. It is
// nil for a handle that cannot be compared.
func (b *Bucket) ID() any {
	type known struct {
		conn      *nats.Conn
		api, name string
	}
	switch {
	case b.js != nil:
		return known{b.js.Conn(), APIPrefix(b.js), b.Bucket()}
	case reflect.ValueOf(b.KeyValue).Comparable():
		return b.KeyValue
	}
	return nil
}

// Stream returns the name of the stream behind the bucket.
func (b *Bucket) Stream() string { return StreamName(b.Bucket()) }

// StreamName returns the name of the stream behind a bucket.
func StreamName(bucket string) string { return "KV_" + bucket }

// Subject returns the subject of a key.
func (b *Bucket) Subject(key string) string { return Subject(b.Bucket(), key) }

// Subject returns the subject of a key of a bucket.
func Subject(bucket, key string) string { return "$KV." + bucket + "." + key }

// SubjectToWrite returns the subject on which a key of a bucket is written through a prefix of the API, see [APIPrefix]: behind that
// prefix, unless it is the default one, as nats.go writes keys. Servers and accounts map it to [Subject].
func SubjectToWrite(api, bucket, key string) string {
	if api == jetstream.DefaultAPIPrefix {
		return Subject(bucket, key)
	}
	return api + Subject(bucket, key)
}

// APIPrefix returns the prefix of the subjects of the JetStream API for js, with the dot at its end: as nats.go makes it of the options.
func APIPrefix(js jetstream.JetStream) string {
	switch o := js.Options(); {
	case o.Domain != "":
		return "$JS." + o.Domain + ".API."
	case o.APIPrefix != "":
		return strings.TrimSuffix(o.APIPrefix, ".") + "."
	}
	return jetstream.DefaultAPIPrefix
}

// LastError returns the last error of the connection, if the connection is known and had one.
func (b *Bucket) LastError() error {
	if b.js == nil {
		return nil
	}
	return b.js.Conn().LastError()
}

// Read reads what is stored under a key. With a connection it sees the markers of expiries and deletions; without one it only sees
// that there is no record.
func (b *Bucket) Read(ctx context.Context, key string) (record.State, error) {
	asked := time.Now()
	s, err := b.read(ctx, key)
	if err == nil {
		s.Read = asked
	}
	return s, err
}

func (b *Bucket) read(ctx context.Context, key string) (record.State, error) {
	if b.js != nil {
		m, err := b.lastMessage(ctx, key)
		switch {
		case errors.Is(err, jetstream.ErrMsgNotFound):
			return record.State{Removal: record.Gone}, nil
		case err != nil:
			return record.State{}, err
		}
		return stateOf(m), nil
	}
	entry, err := b.KeyValue.Get(ctx, key)
	switch {
	case Classify(err) == Absent:
		return record.State{Removal: record.Gone}, nil
	case err != nil:
		if Failure(err) == FailedNoStream {
			_, _ = b.Status(ctx) // by which the handle learns how the stream can be read now
		}
		return record.State{}, err
	}
	return record.State{Revision: entry.Revision(), Written: entry.Created(), Record: record.Parse(entry.Value(), entry.Revision())}, nil
}

// Get is the method of the bucket. With a connection it returns the revision that the server says, whatever headers the writer gave, and a release
// that a deletion carries.
func (b *Bucket) Get(ctx context.Context, key string) (jetstream.KeyValueEntry, error) {
	if b.js == nil {
		return b.KeyValue.Get(ctx, key)
	}
	e, err := b.Last(ctx, key)
	if err == nil && RemovalBy(e) != record.Kept {
		return nil, jetstream.ErrKeyNotFound
	}
	return e, err
}

// Last returns what is stored under a key, also a marker or what else removed it. Without a connection that takes a watcher.
func (b *Bucket) Last(ctx context.Context, key string) (jetstream.KeyValueEntry, error) {
	if b.js == nil {
		return b.lastByWatcher(ctx, key)
	}
	m, err := b.lastMessage(ctx, key)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return nil, jetstream.ErrKeyNotFound
	case err != nil:
		return nil, err
	}
	return entry{b.Bucket(), key, m}, nil
}

// lastByWatcher has a watcher read what is stored under a key.
func (b *Bucket) lastByWatcher(ctx context.Context, key string) (jetstream.KeyValueEntry, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case b.markers <- struct{}{}:
		defer func() { <-b.markers }()
	}
	w, err := StartWatcher(ctx, func(ctx context.Context) (jetstream.KeyWatcher, error) { return b.Watch(ctx, key) })
	if err != nil {
		return nil, err
	}
	defer StopWatcher(w)
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case e := <-w.Updates():
		if e == nil {
			return nil, jetstream.ErrKeyNotFound
		}
		return e, nil
	}
}

// entry is a message of the bucket's stream as an entry of the bucket.
type entry struct {
	bucket, key string
	m           message
}

func (e entry) Bucket() string     { return e.bucket }
func (e entry) Key() string        { return e.key }
func (e entry) Value() []byte      { return e.m.value }
func (e entry) Revision() uint64   { return e.m.revision }
func (e entry) Created() time.Time { return e.m.written }
func (e entry) Delta() uint64      { return 0 } // it is the last

// Operation says how the message removed the key, if it did. A marker of the server is a purge, as for a watcher.
func (e entry) Operation() jetstream.KeyValueOp {
	switch {
	case e.m.ambiguous:
	case e.m.header.Get(HeaderOperation) == operationDelete:
		return jetstream.KeyValueDelete
	case IsRemoval(e.m.header):
		return jetstream.KeyValuePurge
	}
	return jetstream.KeyValuePut
}

// backing returns the stream behind the bucket. It asks the server once, and again when nobody answers a read.
func (b *Bucket) backing(ctx context.Context) (jetstream.Stream, error) {
	if s := b.stream.Load(); s != nil {
		return *s, nil
	}
	s, err := b.js.Stream(ctx, b.Stream())
	if err == nil {
		b.stream.Store(&s)
	}
	return s, err
}

// ReadMarker has a watcher read the marker under a key where no record is stored, or the release that a deletion carries, for a bucket whose
// connection is not known. It returns s if the watcher shows neither.
func (b *Bucket) ReadMarker(ctx context.Context, key string, s record.State) record.State {
	e, err := b.lastByWatcher(ctx, key)
	if err != nil {
		return s
	}
	if s.Revision, s.Written, s.Removal = e.Revision(), e.Created(), RemovalBy(e); s.Removal == record.Kept {
		s.Record = record.Parse(e.Value(), s.Revision)
	}
	return s
}
