package chaos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/natscampaign/election/internal/drill/processes"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/record"
)

// forgeInterval is the time between two forged changes.
const forgeInterval = 5 * time.Millisecond

// forger creates changes of the key that a stranger publishes.
type forger struct {
	subject    string                    // on which the bucket republishes the key
	newest     jetstream.KeyValueEntry   // the newest change
	older      []jetstream.KeyValueEntry // genuine changes that are older
	candidates []string                  // names
	made       int                       // forged changes
	round      int                       // completed rounds through all kinds
}

// forgery makes one kind of forged change. It returns nil if that is impossible now.
type forgery func(f *forger) *nats.Msg

// forgeries has all kinds. The forger makes each in turn.
var forgeries = []forgery{
	func(f *forger) *nats.Msg { return f.change(f.newest.Revision(), f.record(released())) },
	func(f *forger) *nats.Msg {
		return f.change(f.newest.Revision(), f.record(released(f.candidates[f.round%len(f.candidates)])))
	},
	func(f *forger) *nats.Msg { return f.removal(jetstream.MarkerReasonHeader, "MaxAge") },
	func(f *forger) *nats.Msg { return f.removal(jetstream.MarkerReasonHeader, "Remove") },
	func(f *forger) *nats.Msg { return f.removal(jetstream.MarkerReasonHeader, "Purge") },
	func(f *forger) *nats.Msg { return f.removal(kv.HeaderOperation, "DEL") },
	func(f *forger) *nats.Msg { return f.removal(kv.HeaderOperation, "PURGE") },
	func(f *forger) *nats.Msg { return f.change(f.newest.Revision()+1, f.record(byNonexistentCandidate)) },
	func(f *forger) *nats.Msg {
		return f.change(f.newest.Revision()+1<<40, f.record(byNonexistentCandidate))
	},
	func(f *forger) *nats.Msg { return f.change(1, f.record(byNonexistentCandidate, inLaterBucket)) },
	func(f *forger) *nats.Msg { return f.change(1, f.record(released(), inLaterBucket)) },
	func(f *forger) *nats.Msg {
		if len(f.older) == 0 {
			return nil
		}
		return f.replay(f.older[f.round%len(f.older)])
	},
}

// released turns a record into a release that names these successors.
func released(successors ...string) func(*record.Record) {
	return func(r *record.Record) { r.Released, r.Successors = time.Now(), successors }
}

// byNonexistentCandidate changes the holder of a record to a candidate that does not exist.
func byNonexistentCandidate(r *record.Record) {
	id := nuid.Next()
	r.Name, r.Instance, r.Attempt, r.Started, r.Since = processes.Stranger, id, id+".1", time.Now(), time.Now()
}

// inLaterBucket moves the creation of the bucket to a later time.
func inLaterBucket(r *record.Record) { r.BucketCreated = time.Now().Add(time.Hour) }

// next returns the next forged change; nil if that kind is impossible now.
func (f *forger) next() *nats.Msg {
	m := forgeries[f.made%len(forgeries)](f)
	f.made++
	f.round = f.made / len(forgeries)
	return m
}

// record returns the newest record with these changes.
func (f *forger) record(changes ...func(*record.Record)) []byte {
	r := record.Parse(f.newest.Value(), f.newest.Revision())
	for _, change := range changes {
		change(&r)
	}
	return r.Encode()
}

// change returns a change of the key in the form in which the server republishes changes.
func (f *forger) change(revision uint64, record []byte) *nats.Msg {
	m := nats.NewMsg(f.subject)
	m.Data = record
	m.Header.Set(jetstream.StreamHeader, "KV_"+f.newest.Bucket())
	m.Header.Set(jetstream.SubjectHeader, "$KV."+f.newest.Bucket()+"."+f.newest.Key())
	m.Header.Set(jetstream.SequenceHeader, strconv.FormatUint(revision, 10))
	last := uint64(0) // the revision of the key before this one
	for _, entry := range append(slices.Clone(f.older), f.newest) {
		if entry.Revision() < revision {
			last = entry.Revision()
		}
	}
	m.Header.Set(jetstream.LastSequenceHeader, strconv.FormatUint(last, 10))
	m.Header.Set(jetstream.TimeStampHeaer, time.Now().UTC().Format(time.RFC3339Nano))
	return m
}

// removal returns an expiry or a deletion of the newest record.
func (f *forger) removal(header, value string) *nats.Msg {
	m := f.change(f.newest.Revision()+1, nil)
	m.Header.Set(header, value)
	return m
}

// replay returns a genuine older change in the form in which the server republished it.
func (f *forger) replay(entry jetstream.KeyValueEntry) *nats.Msg {
	m := f.change(entry.Revision(), entry.Value())
	m.Header.Set(jetstream.TimeStampHeaer, entry.Created().UTC().Format(time.RFC3339Nano))
	if entry.Operation() == jetstream.KeyValueDelete {
		m.Header.Set(kv.HeaderOperation, "DEL")
	}
	return m
}

// injectForge publishes forged changes on the subject on which the bucket republishes the key. The user is the stranger, which has no
// other permission. The forger knows the true state of the key, because a forgery that resembles it misleads best.
func injectForge(ctx context.Context, d *Drill, f *fault) error {
	ctx, cancel := context.WithTimeout(ctx, f.duration)
	defer cancel()
	source, watcher, err := d.newForger(ctx)
	if err != nil {
		return f.skip(d, err)
	}
	defer func() { _ = watcher.Stop() }()
	refused := make(chan error, 1)
	nc, err := nats.Connect(strings.Join(d.cluster.URLs(), ","), nats.Name("drill stranger"), nats.UserInfo(processes.Stranger, processes.Stranger),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			select {
			case refused <- err:
			default:
			}
		}))
	if err != nil {
		return f.skip(d, err)
	}
	defer nc.Close()
	ticker := time.NewTicker(forgeInterval)
	defer ticker.Stop()
	published := 0
	for ctx.Err() == nil {
		select {
		case entry := <-watcher.Updates():
			if entry != nil {
				source.older, source.newest = append(source.older, source.newest), entry
			}
		case err := <-refused:
			if errors.Is(err, nats.ErrPermissionViolation) {
				return err // the fault had no effect
			}
		case <-ticker.C:
			if m := source.next(); m != nil && nc.PublishMsg(m) == nil {
				published++
			}
		case <-ctx.Done():
		}
	}
	f.detail = fmt.Sprintf("%d forged changes", published)
	return nil
}

// newForger waits until the key has a value, and returns a forger with the watcher of the key.
func (d *Drill) newForger(ctx context.Context) (*forger, jetstream.KeyWatcher, error) {
	info, err := d.streamInfo(ctx, "KV_"+processes.Bucket)
	if err != nil {
		return nil, nil, err
	}
	watcher, err := d.bucket.Watch(ctx, processes.Key)
	if err != nil {
		return nil, nil, err
	}
	f := &forger{subject: strings.TrimSuffix(info.Config.RePublish.Destination, ">") + processes.Key}
	for _, c := range d.fleet {
		f.candidates = append(f.candidates, c.Name)
	}
	for f.newest == nil {
		select {
		case f.newest = <-watcher.Updates(): // nil while the key has no value
		case <-ctx.Done():
			_ = watcher.Stop()
			return nil, nil, ctx.Err()
		}
	}
	return f, watcher, nil
}
