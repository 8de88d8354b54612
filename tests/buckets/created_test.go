package buckets_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/drill/faultproxy"
	. "github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/natstest"
)

// recreated is a bucket of which the server says, once a test wants it, that it was created later than it was.
type recreated struct {
	jetstream.KeyValue
	later *atomic.Int64
}

func (b recreated) Status(ctx context.Context) (jetstream.KeyValueStatus, error) {
	status, err := b.KeyValue.Status(ctx)
	if err == nil {
		info := status.(*jetstream.KeyValueBucketStatus).StreamInfo()
		info.Created = info.Created.Add(time.Duration(b.later.Load()))
	}
	return status, err
}

// A file stream of some servers has another time of creation after two restarts. That is no other bucket: the leader's record is in it.
func TestChangedTimeOfCreationIsNoOtherBucket(t *testing.T) {
	natstest.SkipIfShort(t)
	reconnect := func(a *Candidate) { a.Link.Disconnect() }
	unanswered := func(a *Candidate) {
		var lose atomic.Bool
		lose.Store(true)
		a.Link.LoseRequests(func(faultproxy.Message) bool { return lose.Load() })
		After(Interval + Interval/10)
		lose.Store(false)
	}
	restarted := func(a *Candidate) { unanswered(a); a.Link.Disconnect() }
	for name, setting := range map[string]struct {
		change            func(*jetstream.KeyValueConfig)
		watched, followed bool
		trouble           func(a *Candidate)
	}{
		"republished, reconnected": {Republished, true, false, reconnect},
		"republished, restarted":   {Republished, true, true, restarted},
		"watched, restarted":       {natstest.WithMarkers, true, true, restarted},
		"polled, restarted":        {natstest.WithMarkers, false, true, restarted},
	} {
		t.Run(name, func(t *testing.T) {
			Run(t, func(f *Fleet) {
				var later atomic.Int64
				candidate := func(name string) *Candidate {
					l := f.Server.Link(f.T)
					nc := natstest.Connect(f.T, l)
					bucket := f.Bare(nc)
					if !setting.watched {
						bucket = Unwatchable{KeyValue: bucket}
					}
					js, err := jetstream.New(nc)
					f.Expect(err).NotTo(HaveOccurred())
					return f.CandidateOn(name, l, recreated{bucket, &later}, election.WithJetStream(js)).Begin()
				}
				a := candidate("a")
				After(Interval)
				b := a
				if setting.followed {
					b = candidate("b")
				}
				After(3 * Interval)
				term, leads := a.Term()
				f.Expect(leads).To(BeTrue())

				later.Store(int64(10 * time.Second))
				setting.trouble(a)
				After(2 * TTL)
				f.Expect(a.Seen()).To(HaveLen(1), "a lost its term")
				now, _ := a.Term()
				f.Expect(now.Token()).To(Equal(term.Token()))

				c := candidate("c") // which knows no other time
				After(2 * Interval)
				f.Expect(a.Seen()).To(HaveLen(1))
				leader, err := c.Leader(context.Background())
				f.Expect(err).NotTo(HaveOccurred())
				f.Expect(leader.Token()).To(Equal(term.Token()))
				a.Stop()
				began := time.Now()
				for !b.IsLeader() && !c.IsLeader() {
					After(time.Millisecond)
				}
				if setting.watched {
					f.Expect(time.Since(began)).To(BeNumerically("<=", 100*time.Millisecond))
				} else {
					f.Expect(time.Since(began)).To(BeNumerically("<=", Interval+100*time.Millisecond), "nobody is notified of the release")
				}
				for _, next := range []interface{ Term() (election.Term, bool) }{b, c} {
					if next, leads := next.Term(); leads {
						f.Expect(next.Compare(term)).To(Equal(1))
						f.Expect(next.Token() > term.Token()).To(BeTrue())
					}
				}
			}, setting.change)
		})
	}
}
