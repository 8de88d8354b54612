package trust_test

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/drill/faultproxy"
	. "github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/natstest"
)

// releasedRecord returns the record under the key as its writer would release it.
func releasedRecord(f *Forger) string {
	var r map[string]any
	f.Expect(json.Unmarshal([]byte(f.Record()), &r)).To(Succeed())
	r["released"] = time.Now().UTC().Format(time.RFC3339Nano)
	text, err := json.Marshal(r)
	f.Expect(err).NotTo(HaveOccurred())
	return string(text)
}

// forgeries are false notifications about a key at the given revision.
var forgeries = map[string]func(f *Forger, revision uint64){
	"a release at the live revision": func(f *Forger, revision uint64) { f.Publish(revision, releasedRecord(f)) },
	"a release at the next revision": func(f *Forger, revision uint64) { f.Publish(revision+1, releasedRecord(f)) },
	"an expiry":                      func(f *Forger, revision uint64) { f.Publish(revision+1, "", "Nats-Marker-Reason", "MaxAge") },
	"an expiry at the live revision": func(f *Forger, revision uint64) { f.Publish(revision, "", "Nats-Marker-Reason", "MaxAge") },
	"a deletion":                     func(f *Forger, revision uint64) { f.Publish(revision+1, "", "KV-Operation", "DEL") },
	"another leader": func(f *Forger, revision uint64) {
		f.Publish(revision+1, `{"name":"evil","instance":"evil","attempt":"evil.1","term":99,"metadata":{"address":"10.6.6.6"}}`)
	},
	"a record of a later bucket": func(f *Forger, revision uint64) {
		f.Publish(1, fmt.Sprintf(`{"name":"evil","instance":"evil","attempt":"evil.1","term":1,"bucket":%q}`, time.Now().Add(time.Hour).Format(time.RFC3339Nano)))
	},
}

func TestNotificationOfABucketOfTheSameNameIsIgnored(t *testing.T) {
	natstest.SkipIfShort(t)
	Run(t, func(f *Fleet) {
		a, b := f.LeaderAndFollower(f.Connected)
		After(time.Second)
		var renewals atomic.Int64
		a.Link.OnRequest(func(faultproxy.Message) { renewals.Add(1) })
		nc := f.Server.Connect(f.T)
		elsewhere := func(created time.Time) {
			m := nats.NewMsg("election." + natstest.BucketName + "." + Key)
			m.Header.Set("Nats-Subject", "$KV."+natstest.BucketName+"."+Key)
			m.Header.Set("Nats-Sequence", "1000000")
			m.Data = fmt.Appendf(nil, `{"name":"x","instance":"x","attempt":"x.1","bucket":%q}`, created.Format(time.RFC3339Nano))
			f.Expect(nc.PublishMsg(m)).To(Succeed())
		}
		for range 300 {
			elsewhere(time.Now().Add(-time.Hour * 24 * 365))
			elsewhere(time.Now())
			After(100 * time.Millisecond)
		}
		f.Expect(renewals.Load()).To(BeNumerically("<=", 5+2*30), "four or five renewals are due, and a few reads")
		a.Link.Cut()
		crashed := time.Now()
		for !b.IsLeader() {
			elsewhere(time.Now())
			After(100 * time.Millisecond)
		}
		f.Expect(time.Since(crashed)).To(BeNumerically("<=", TTL+time.Second+Interval+Interval))
	}, Republished)
}

func TestRefusedWritesDoNotFillTheMemoryOfTheLeader(t *testing.T) {
	natstest.SkipIfShort(t)
	Run(t, func(f *Fleet) {
		leader := f.CandidateOn("a", nil, f.Open(f.Server.Connect(f.T))).Begin() // without a link, which has buffers
		After(Interval)
		large := strings.Repeat("x", 900_000)
		live := func() int64 {
			After(Instant)
			runtime.GC()
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return int64(m.HeapAlloc)
		}
		attempts := func(n int) {
			for i := range n {
				for _, record := range []string{
					`{"name":"` + large + `","instance":"i%d","attempt":"i.1","notified":true}`,
					`{"name":"x","instance":"` + large + `%d","attempt":"i.1","notified":true}`,
					`{"name":"` + large[:80_000] + `","instance":"j%d","attempt":"i.1","notified":true}`,
				} {
					_, err := f.Bucket.Create(context.Background(), Key, fmt.Appendf(nil, record, i))
					f.Expect(err).To(MatchError(jetstream.ErrKeyExists))
				}
			}
		}
		attempts(10) // so that buffers have grown
		before := live()
		attempts(100)
		f.Expect(live() - before).To(BeNumerically("<", 3<<20))
		f.Expect(leader.IsLeader()).To(BeTrue())
	}, Republished)
}

func TestForgedNotificationMovesNoLeadership(t *testing.T) {
	for name, forge := range forgeries {
		for state, disturb := range map[string]func(*Candidate){
			"connected": func(*Candidate) {},
			"cut off":   func(c *Candidate) { c.Link.LoseRequests(func(faultproxy.Message) bool { return true }) },
		} {
			if testing.Short() && state == "connected" {
				continue
			}
			t.Run(name+", the leader "+state, func(t *testing.T) {
				Run(t, func(f *Fleet) {
					a, b := f.LeaderAndFollower(f.Connected)
					evil := f.Forger()
					disturb(a)
					for range UnlessShort(100, 20) {
						forge(evil, f.Revision())
						After(10 * time.Millisecond)
						f.Expect(a.IsLeader()).To(BeTrue())
						f.Expect(b.State()).To(Equal(election.CandidateState))
					}
					f.Expect(a.Seen()).To(HaveLen(1))
				}, Republished)
			})
		}
	}
}

func TestForgedNotificationsCostThreeReadsAndThenOnePerTTL(t *testing.T) {
	natstest.SkipIfShort(t)
	for name, forge := range forgeries {
		t.Run(name, func(t *testing.T) {
			Run(t, func(f *Fleet) {
				a, b := f.LeaderAndFollower(f.Connected)
				After(time.Second)
				evil := f.Forger()
				var byLeader, byFollower, writes atomic.Int64
				a.Link.OnRequest(func(m faultproxy.Message) {
					if !strings.Contains(string(m.Payload), `"term"`) {
						byLeader.Add(1) // renewals do not count
					}
				})
				b.Link.OnRequest(func(m faultproxy.Message) {
					byFollower.Add(1)
					if ToKey(m) {
						writes.Add(1)
					}
				})
				ttls := 3
				for end := time.Now().Add(time.Duration(ttls) * TTL); time.Now().Before(end); {
					revision := f.Revision()
					for range 10 {
						forge(evil, revision)
						After(10 * time.Millisecond)
					}
				}
				f.Expect(byLeader.Load()).To(BeNumerically("<=", 3+ttls))
				f.Expect(byFollower.Load()).To(BeNumerically("<=", 3+ttls))
				f.Expect(writes.Load()).To(BeZero())

				a.Stop() // b still takes a true release
				After(TTL + 500*time.Millisecond)
				f.Expect(b.IsLeader()).To(BeTrue())
			}, Republished)
		})
	}
}

func TestForgedDeletionsOfAFreeKeyCostAsFewReads(t *testing.T) {
	natstest.SkipIfShort(t)
	Run(t, func(f *Fleet) {
		a := f.Connected("a").Begin()
		After(Interval)
		b := f.Connected("b").Begin()
		After(Interval)
		b.Pause()
		a.End()
		f.Expect(f.Bucket.Delete(context.Background(), Key)).To(Succeed()) // which expires, as the release does not
		After(3 * TTL)
		f.Expect(f.Revision()).To(BeZero())
		evil := f.Forger()
		var requests atomic.Int64
		b.Link.OnRequest(func(faultproxy.Message) { requests.Add(1) })
		const ttls = 3
		for i := range ttls * int(TTL/(10*time.Millisecond)) {
			evil.Publish(uint64(100+i), "", "KV-Operation", "DEL")
			After(10 * time.Millisecond)
		}
		f.Expect(requests.Load()).To(BeNumerically("<=", 3+ttls))
	}, Republished)
}

func TestForgedVacancyDoesNotSynchroniseLaterAnswers(t *testing.T) {
	natstest.SkipIfShort(t)
	Run(t, func(f *Fleet) {
		a := f.Connected("a").Begin()
		After(Interval)
		_, attempts := f.Crowd(100, f.Connected)
		After(5*Interval + time.Second)
		f.Forger().Publish(f.Revision()+2, "", "Nats-Marker-Reason", "MaxAge") // the revision of the release, after one more renewal
		After(TTL + 2*time.Second)
		attempts.Store(0)
		a.End()
		After(TTL)
		f.Expect(attempts.Load()).To(And(BeNumerically(">=", 1), BeNumerically("<=", 30)))
	}, Republished)
}

func TestForgedNotificationCausesNoWriteIfReadsFail(t *testing.T) {
	Run(t, func(f *Fleet) {
		a := f.Connected("a").Begin()
		After(3*Interval + time.Second)
		a.Link.LoseRequests(func(m faultproxy.Message) bool { return strings.HasPrefix(m.Subject, "$JS.API.DIRECT.GET.") })
		before := f.Revision()
		f.Forger().Publish(before+1, "", "KV-Operation", "DEL")
		After(Interval - 2*time.Second)
		f.Expect(f.Revision()).To(Equal(before))
		f.Expect(a.IsLeader()).To(BeTrue())
	}, Republished)
}

func TestOnLeaderChangeReportsOnlyWhatWasRead(t *testing.T) {
	Run(t, func(f *Fleet) {
		a := f.Connected("a").Begin()
		After(Interval)
		var reported []string
		b := f.Connected("b", election.OnLeaderChange(func(l election.Leader) { reported = append(reported, l.Name) })).Begin()
		After(3 * Interval)
		evil := f.Forger()
		for _, forge := range forgeries {
			forge(evil, f.Revision())
			After(100 * time.Millisecond)
			f.Expect(b.Status().Leader.Name).To(Equal("a"))
			f.Expect(b.Status().Leader.Metadata).To(BeEmpty())
		}
		f.Expect(reported).To(Equal([]string{"a"}))
		f.Expect(a.IsLeader()).To(BeTrue())
	}, Republished)
}

func TestWhatACallbackDoesWithMetadataChangesNobodyElses(t *testing.T) {
	Run(t, func(f *Fleet) {
		a := f.Connected("a", election.WithMetadata(map[string]string{"url": "http://a"}),
			election.OnLeaderChange(func(l election.Leader) { l.Metadata["url"] = "changed" })).Begin()
		After(3 * Interval)
		f.Expect(a.Status().Leader.Metadata).To(HaveKeyWithValue("url", "http://a"))
		f.Expect(f.Stored().Metadata).To(HaveKeyWithValue("url", "http://a"))
	}, Republished)
}

func TestForgedRenewalsDoNotHideACrash(t *testing.T) {
	Run(t, func(f *Fleet) {
		a, b := f.LeaderAndFollower(f.Connected)
		evil, record := f.Forger(), f.Record()
		a.Link.Cut()
		for revision := f.Revision() + 1; !b.IsLeader(); revision++ {
			evil.Publish(revision, record)
			After(100 * time.Millisecond)
			f.Expect(revision).To(BeNumerically("<", 300), "half a minute")
		}
	}, Republished)
}
