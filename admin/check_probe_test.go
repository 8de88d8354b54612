package admin_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/natscampaign/election/internal/test/natstest"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/admin"
	"github.com/natscampaign/election/internal/drill/faultproxy"
	"github.com/natscampaign/election/internal/test/fleettest"
)

func TestCheckFindsOutWhatIsNotPermitted(t *testing.T) {
	natstest.SkipIfShort(t)
	to := func(prefix string) func(faultproxy.Message) bool {
		return func(m faultproxy.Message) bool { return strings.HasPrefix(m.Subject, prefix) }
	}
	const watchAll = "$JS.API.CONSUMER.CREATE.KV_ELECTIONS."
	for name, c := range map[string]struct {
		denied    func(faultproxy.Message) bool
		connected bool // the bucket knows its connection
		code      string
		severity  admin.Severity
		says      string
	}{
		"writing":  {to("$KV."), false, "write-refused", admin.SeverityCritical, "election-check\" cannot be written by this user: there was no answer within 2s"},
		"reading":  {to("$JS.API.DIRECT.GET"), false, "read-refused", admin.SeverityWarning, "election-check\" cannot be read by this user: there was no answer within 2s"},
		"watching": {to(watchAll), false, "watch-refused", admin.SeverityWarning, "candidates poll"},
		"watching the rest": {func(m faultproxy.Message) bool {
			return strings.HasPrefix(m.Subject, watchAll) && strings.HasSuffix(m.Subject, ">")
		}, false, "watch-refused", admin.SeverityInfo, "single keys can"},
		"watching at all": {to(watchAll), true, "watch-refused", admin.SeverityInfo, "only by what is republished"},
	} {
		t.Run(name, func(t *testing.T) {
			fleettest.Run(t, func(f *fleet) {
				l, known := connected(f)
				var bucket jetstream.KeyValue = known
				if !c.connected {
					bucket = known.KeyValue
				}
				l.LoseRequests(c.denied)
				found := check(f, reporting{bucket, onFile})
				if f.Expect(found).To(HaveKey(c.code)); c.severity > admin.SeverityInfo {
					f.Expect(found.problems()).To(Equal([]string{c.code}))
				}
				f.Expect(found[c.code].Severity).To(Equal(c.severity))
				f.Expect(found[c.code].Message).To(ContainSubstring(c.says))
			}, republished)
		})
	}
}

func TestCheckTakesABoundedTimeWhereOnlyTheBucketsInfoIsPermitted(t *testing.T) {
	fleettest.Run(t, func(f *fleet) {
		l, bucket := connected(f)
		l.LoseRequests(func(m faultproxy.Message) bool { return !strings.HasPrefix(m.Subject, "$JS.API.STREAM.INFO") })
		begun := time.Now()
		found := check(f, bucket)
		f.Expect(time.Since(begun)).To(BeNumerically("<=", 3*time.Second))
		f.Expect(found).To(And(HaveKey("write-refused"), HaveKey("read-refused"), HaveKey("watch-refused")))
	}, republished)
}

func TestCheckWritesNothingThatIsEverApplied(t *testing.T) {
	natstest.SkipIfShort(t)
	for _, stored := range []bool{false, true} {
		fleettest.Run(t, func(f *fleet) {
			if stored {
				_, err := f.Bucket.PutString(ctx, "election-check", "x")
				f.Expect(err).NotTo(HaveOccurred())
			}
			state := func() jetstream.StreamState {
				s := f.Stream()
				s.Consumers = 0 // one whose creation was stalled is removed later
				return s
			}
			before := state()
			l, bucket := connected(f)
			probes := 0
			l.OnRequest(func(m faultproxy.Message) {
				if strings.HasPrefix(m.Subject, "$KV.") {
					if probes++; probes == 1 {
						f.Expect(string(m.Header)).To(ContainSubstring("Nats-Expected-Last-Subject-Sequence: 9223372036854775807"))
						l.Stall() // so that it arrives long after it was given up
					}
				}
			})
			f.Expect(check(f, bucket)).To(HaveKey("write-refused"))
			l.Heal()
			after(time.Second)
			f.Expect(probes).To(Equal(1))
			f.Expect(state()).To(Equal(before))
			f.Expect(check(f, bucket)).NotTo(HaveKey("write-refused"))
			after(time.Second)
			f.Expect(state()).To(Equal(before))
		}, republished)
	}
}

func TestCheckReadsALargeBucketInPartAndLeavesNoWatcher(t *testing.T) {
	natstest.SkipIfShort(t)
	fleettest.Run(t, func(f *fleet) {
		for i := range 3000 {
			_, err := f.Bucket.PutString(ctx, fmt.Sprintf("key-%d", i), "name")
			f.Expect(err).NotTo(HaveOccurred())
		}
		f.Expect(check(f, f.Bucket)["markers-plain-names"].Message).To(ContainSubstring("under 1000 keys"))
		after(time.Second)
		f.Expect(f.Stream().Consumers).To(BeZero())
	})
}

// endless is a watcher that always has another update, and ends only when it was stopped and its last update was received.
type endless struct {
	updates chan jetstream.KeyValueEntry
	stopped atomic.Bool
}

func (w *endless) Updates() <-chan jetstream.KeyValueEntry { return w.updates }

func (w *endless) Stop() error {
	w.stopped.Store(true)
	return nil
}

type endlessly struct{ jetstream.KeyValue }

func (b endlessly) WatchAll(ctx context.Context, _ ...jetstream.WatchOpt) (jetstream.KeyWatcher, error) {
	w := &endless{updates: make(chan jetstream.KeyValueEntry)}
	entry, err := b.Get(ctx, key)
	go func() {
		defer close(w.updates)
		for !w.stopped.Load() {
			w.updates <- entry
		}
	}()
	return w, err
}

func TestCheckStopsAWatcherThatHasMoreUpdates(t *testing.T) {
	fleettest.Run(t, func(f *fleet) { // which fails if a goroutine is left
		f.Write("name")
		f.Expect(check(f, endlessly{f.Bucket})["markers-plain-names"].Message).To(ContainSubstring("under 1000 keys"))
	})
}

// bare is a bucket that can do no more than an election needs.
type bare struct{ jetstream.KeyValue }

func (b bare) WatchAll(context.Context, ...jetstream.WatchOpt) (jetstream.KeyWatcher, error) {
	panic("not implemented")
}

func (b bare) Watch(context.Context, string, ...jetstream.WatchOpt) (jetstream.KeyWatcher, error) {
	return nil, nil
}

func TestCheckNamesTheMethodsThatABucketLacks(t *testing.T) {
	fleettest.Run(t, func(f *fleet) {
		found := check(f, bare{f.Bucket})["watch-refused"]
		f.Expect(found.Message).To(ContainSubstring("panicked: not implemented"))
		f.Expect(found.Fix).NotTo(ContainSubstring("permit"))
	})
}
