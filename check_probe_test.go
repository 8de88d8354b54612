package election_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/link"
)

func TestCheckFindsOutWhatIsNotPermitted(t *testing.T) {
	to := func(prefix string) func(link.Message) bool {
		return func(m link.Message) bool { return strings.HasPrefix(m.Subject, prefix) }
	}
	const watchAll = "$JS.API.CONSUMER.CREATE.KV_ELECTIONS."
	for name, c := range map[string]struct {
		denied   func(link.Message) bool
		with     bool // WithJetStream
		code     string
		severity election.Severity
		says     string
	}{
		"writing":  {to("$KV."), false, "write-refused", election.SeverityCritical, "election-check cannot be written: there was no answer within 2s"},
		"reading":  {to("$JS.API.DIRECT.GET"), false, "read-refused", election.SeverityWarning, "election-check cannot be read: there was no answer within 2s"},
		"watching": {to(watchAll), false, "watch-refused", election.SeverityWarning, "candidates poll"},
		"watching the rest": {func(m link.Message) bool {
			return strings.HasPrefix(m.Subject, watchAll) && strings.HasSuffix(m.Subject, ">")
		}, false, "watch-refused", election.SeverityInfo, "single keys can"},
		"watching at all": {to(watchAll), true, "watch-refused", election.SeverityInfo, "only what is republished"},
	} {
		t.Run(name, func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				l, bucket, js := f.wellConnected()
				opts := []election.Option{js}
				if !c.with {
					opts = nil
				}
				l.LoseRequests(c.denied)
				found := f.check(reporting{bucket, onFile}, opts...)
				if f.Expect(found).To(HaveKey(c.code)); c.severity > election.SeverityInfo {
					f.Expect(found.troubles()).To(Equal([]string{c.code}))
				}
				f.Expect(found[c.code].Severity).To(Equal(c.severity))
				f.Expect(found[c.code].Message).To(ContainSubstring(c.says))
			}, republished)
		})
	}
}

func TestCheckTakesABoundedTimeWhereNothingButALookAtTheBucketIsPermitted(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		l, bucket, js := f.wellConnected()
		l.LoseRequests(func(m link.Message) bool { return !strings.HasPrefix(m.Subject, "$JS.API.STREAM.INFO") })
		begun := time.Now()
		found := f.check(bucket, js)
		f.Expect(time.Since(begun)).To(BeNumerically("<=", 3*time.Second))
		f.Expect(found).To(And(HaveKey("write-refused"), HaveKey("read-refused"), HaveKey("watch-refused")))
	}, republished)
}

func TestCheckWritesNothingThatIsEverApplied(t *testing.T) {
	for _, stands := range []bool{false, true} {
		onVirtualTime(t, func(f *fleet) {
			if stands {
				_, err := f.bucket.PutString(context.Background(), "election-check", "x")
				f.Expect(err).NotTo(HaveOccurred())
			}
			state := func() jetstream.StreamState {
				status, err := f.bucket.Status(context.Background())
				f.Expect(err).NotTo(HaveOccurred())
				s := status.(*jetstream.KeyValueBucketStatus).StreamInfo().State
				s.Consumers = 0 // one whose making was stalled is forgotten later
				return s
			}
			before := state()
			l, bucket, js := f.wellConnected()
			probes := 0
			l.OnRequest(func(m link.Message) {
				if strings.HasPrefix(m.Subject, "$KV.") {
					if probes++; probes == 1 {
						f.Expect(string(m.Header)).To(ContainSubstring("Nats-Expected-Last-Subject-Sequence: 9223372036854775807"))
						l.Stall() // so that it arrives when it was long given up
					}
				}
			})
			f.Expect(f.check(bucket, js)).To(HaveKey("write-refused"))
			l.Heal()
			after(time.Second)
			f.Expect(probes).To(Equal(1))
			f.Expect(state()).To(Equal(before))
			f.Expect(f.check(bucket, js)).NotTo(HaveKey("write-refused"))
			after(time.Second)
			f.Expect(state()).To(Equal(before))
		}, republished)
	}
}

func TestCheckReadsALargeBucketInPartAndLeavesNoWatcher(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		for i := range 3000 {
			_, err := f.bucket.PutString(context.Background(), fmt.Sprintf("key-%d", i), "name")
			f.Expect(err).NotTo(HaveOccurred())
		}
		f.Expect(f.check(f.bucket)["markers-plain-names"].Message).To(ContainSubstring("under 1000 keys"))
		after(time.Second)
		f.Expect(f.consumers()).To(BeZero())
	})
}

// talker is a watcher that has always more to say, and ends only when it was stopped and its last word taken from it.
type talker struct {
	updates chan jetstream.KeyValueEntry
	stopped atomic.Bool
}

func (w *talker) Updates() <-chan jetstream.KeyValueEntry { return w.updates }

func (w *talker) Stop() error {
	w.stopped.Store(true)
	return nil
}

type talking struct{ jetstream.KeyValue }

func (b talking) WatchAll(ctx context.Context, _ ...jetstream.WatchOpt) (jetstream.KeyWatcher, error) {
	w := &talker{updates: make(chan jetstream.KeyValueEntry)}
	entry, err := b.Get(ctx, key)
	go func() {
		defer close(w.updates)
		for !w.stopped.Load() {
			w.updates <- entry
		}
	}()
	return w, err
}

func TestCheckLeavesNoWatcherBehindThatHasMoreToSay(t *testing.T) {
	onVirtualTime(t, func(f *fleet) { // which fails if a goroutine is left
		f.write("name")
		f.Expect(f.check(talking{f.bucket})["markers-plain-names"].Message).To(ContainSubstring("under 1000 keys"))
	})
}

// bare is a bucket of somebody's own that can do no more than an election needs.
type bare struct{ jetstream.KeyValue }

func (b bare) WatchAll(context.Context, ...jetstream.WatchOpt) (jetstream.KeyWatcher, error) {
	panic("not implemented")
}

func (b bare) Watch(context.Context, string, ...jetstream.WatchOpt) (jetstream.KeyWatcher, error) {
	return nil, nil
}

func TestCheckOfABucketThatLacksMethodsSaysWhatItLacks(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		found := f.check(bare{f.bucket})["watch-refused"]
		f.Expect(found.Message).To(ContainSubstring("panic: not implemented"))
		f.Expect(found.Remedy).NotTo(ContainSubstring("permit"))
	})
}
