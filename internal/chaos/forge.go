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

	"github.com/natscampaign/election/internal/processes"
	"github.com/natscampaign/election/internal/record"
)

// forgeEvery is how often a forged change is published.
const forgeEvery = 5 * time.Millisecond

// Headers of what a bucket republishes.
const (
	headerStream       = "Nats-Stream"
	headerSubject      = "Nats-Subject"
	headerSequence     = "Nats-Sequence"
	headerLastSequence = "Nats-Last-Sequence"
	headerTimeStamp    = "Nats-Time-Stamp"
	headerMarker       = "Nats-Marker-Reason"
	headerOperation    = "KV-Operation"
)

// forger makes what a stranger publishes as changes of the key.
type forger struct {
	subject string                    // on which the bucket republishes the key
	live    jetstream.KeyValueEntry   // the newest change
	before  []jetstream.KeyValueEntry // genuine changes that are older
	names   []string                  // of candidates
	made    int
	round   int // how often each kind has had its turn
}

// forgery is a kind of change that somebody might make up.
type forgery func(f *forger) *nats.Msg

// forgeries are all kinds, each in turn.
var forgeries = []forgery{
	func(f *forger) *nats.Msg { return f.change(f.live.Revision(), f.record(released())) },
	func(f *forger) *nats.Msg {
		return f.change(f.live.Revision(), f.record(released(f.names[f.round%len(f.names)])))
	},
	func(f *forger) *nats.Msg { return f.removal(headerMarker, "MaxAge") },
	func(f *forger) *nats.Msg { return f.removal(headerMarker, "Remove") },
	func(f *forger) *nats.Msg { return f.removal(headerMarker, "Purge") },
	func(f *forger) *nats.Msg { return f.removal(headerOperation, "DEL") },
	func(f *forger) *nats.Msg { return f.removal(headerOperation, "PURGE") },
	func(f *forger) *nats.Msg { return f.change(f.live.Revision()+1, f.record(invented)) },
	func(f *forger) *nats.Msg { return f.change(f.live.Revision()+1<<40, f.record(invented)) },
	func(f *forger) *nats.Msg { return f.change(1, f.record(invented, laterBucket)) },
	func(f *forger) *nats.Msg { return f.change(1, f.record(released(), laterBucket)) },
	func(f *forger) *nats.Msg {
		if len(f.before) == 0 {
			return nil
		}
		return f.replay(f.before[f.round%len(f.before)])
	},
}

// released makes a release of a record, which names these successors.
func released(successors ...string) func(*record.Record) {
	return func(r *record.Record) { r.Released, r.Successors = time.Now(), successors }
}

// invented makes a record that of a candidate that does not exist.
func invented(r *record.Record) {
	id := nuid.Next()
	r.Name, r.Instance, r.Attempt, r.Started, r.Since = processes.Stranger, id, id+".1", time.Now(), time.Now()
}

// laterBucket makes a record claim that the bucket was created later.
func laterBucket(r *record.Record) { r.BucketCreated = time.Now().Add(time.Hour) }

// next returns the next forged change; nil if there is nothing to make it of.
func (f *forger) next() *nats.Msg {
	m := forgeries[f.made%len(forgeries)](f)
	f.made++
	f.round = f.made / len(forgeries)
	return m
}

// record returns the newest record with these changes.
func (f *forger) record(changes ...func(*record.Record)) []byte {
	r := record.Parse(f.live.Value())
	for _, change := range changes {
		change(&r)
	}
	return r.Encode()
}

// change returns a change of the key as the server republishes it.
func (f *forger) change(revision uint64, record []byte) *nats.Msg {
	m := nats.NewMsg(f.subject)
	m.Data = record
	m.Header.Set(headerStream, "KV_"+f.live.Bucket())
	m.Header.Set(headerSubject, "$KV."+f.live.Bucket()+"."+f.live.Key())
	m.Header.Set(headerSequence, strconv.FormatUint(revision, 10))
	last := uint64(0) // of the key, before that
	for _, entry := range append(slices.Clone(f.before), f.live) {
		if entry.Revision() < revision {
			last = entry.Revision()
		}
	}
	m.Header.Set(headerLastSequence, strconv.FormatUint(last, 10))
	m.Header.Set(headerTimeStamp, time.Now().UTC().Format(time.RFC3339Nano))
	return m
}

// removal returns the end of the newest record.
func (f *forger) removal(header, why string) *nats.Msg {
	m := f.change(f.live.Revision()+1, nil)
	m.Header.Set(header, why)
	return m
}

// replay returns a genuine change as the server republished it.
func (f *forger) replay(entry jetstream.KeyValueEntry) *nats.Msg {
	m := f.change(entry.Revision(), entry.Value())
	m.Header.Set(headerTimeStamp, entry.Created().UTC().Format(time.RFC3339Nano))
	if entry.Operation() == jetstream.KeyValueDelete {
		m.Header.Set(headerOperation, "DEL")
	}
	return m
}

// injectForge has a stranger, who may do nothing else, publish where the bucket republishes what it commits: changes that
// nobody made. The stranger knows what stands under the key.
func injectForge(ctx context.Context, d *Drill, i *injury) error {
	ctx, cancel := context.WithTimeout(ctx, i.hold)
	defer cancel()
	f, news, err := d.newForger(ctx)
	if err != nil {
		return i.notDone(d, err)
	}
	defer func() { _ = news.Stop() }()
	refused := make(chan error, 1)
	nc, err := nats.Connect(strings.Join(d.cluster.URLs(), ","), nats.Name("drill stranger"), nats.UserInfo(processes.Stranger, processes.Stranger),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			select {
			case refused <- err:
			default:
			}
		}))
	if err != nil {
		return i.notDone(d, err)
	}
	defer nc.Close()
	ticker := time.NewTicker(forgeEvery)
	defer ticker.Stop()
	published := 0
	for ctx.Err() == nil {
		select {
		case entry := <-news.Updates():
			if entry != nil {
				f.before, f.live = append(f.before, f.live), entry
			}
		case err := <-refused:
			if errors.Is(err, nats.ErrPermissionViolation) {
				return err // nothing was tried
			}
		case <-ticker.C:
			if m := f.next(); m != nil && nc.PublishMsg(m) == nil {
				published++
			}
		case <-ctx.Done():
		}
	}
	i.note = fmt.Sprintf("%d changes made up", published)
	return nil
}

// newForger returns a forger, and the news of the key, when something stands there.
func (d *Drill) newForger(ctx context.Context) (*forger, jetstream.KeyWatcher, error) {
	info, err := d.info(ctx, "KV_"+processes.Bucket)
	if err != nil {
		return nil, nil, err
	}
	news, err := d.bucket.Watch(ctx, processes.Key)
	if err != nil {
		return nil, nil, err
	}
	f := &forger{subject: strings.TrimSuffix(info.Config.RePublish.Destination, ">") + processes.Key}
	for _, p := range d.fleet {
		f.names = append(f.names, p.Name)
	}
	for f.live == nil {
		select {
		case f.live = <-news.Updates(): // nil if nothing stands there yet
		case <-ctx.Done():
			_ = news.Stop()
			return nil, nil, ctx.Err()
		}
	}
	return f, news, nil
}
