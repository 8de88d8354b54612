package election_test

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/drill/faultproxy"
	"github.com/natscampaign/election/internal/test/natstest"
)

// forger publishes what the server would republish.
type forger struct {
	*fleet
	nc *nats.Conn
}

func (f *fleet) forger() *forger { return &forger{f, f.Server.Connect(f.T)} }

// publish publishes a change of the key with all headers that the server would set.
func (f *forger) publish(revision uint64, value string, headers ...string) {
	m := nats.NewMsg("election." + natstest.BucketName + "." + key)
	m.Header.Set("Nats-Stream", "KV_"+natstest.BucketName)
	m.Header.Set("Nats-Subject", "$KV."+natstest.BucketName+"."+key)
	m.Header.Set("Nats-Sequence", strconv.FormatUint(revision, 10))
	m.Header.Set("Nats-Time-Stamp", time.Now().UTC().Format(time.RFC3339Nano))
	for i := 0; i+1 < len(headers); i += 2 {
		m.Header.Set(headers[i], headers[i+1])
	}
	m.Data = []byte(value)
	f.Expect(f.nc.PublishMsg(m)).To(Succeed())
}

// releasedRecord returns the record under the key as its writer would release it.
func (f *forger) releasedRecord() string {
	var r map[string]any
	f.Expect(json.Unmarshal([]byte(f.record()), &r)).To(Succeed())
	r["released"] = time.Now().UTC().Format(time.RFC3339Nano)
	text, err := json.Marshal(r)
	f.Expect(err).NotTo(HaveOccurred())
	return string(text)
}

// forgeries are false notifications about a key at the given revision.
var forgeries = map[string]func(f *forger, revision uint64){
	"a release at the live revision": func(f *forger, revision uint64) { f.publish(revision, f.releasedRecord()) },
	"a release at the next revision": func(f *forger, revision uint64) { f.publish(revision+1, f.releasedRecord()) },
	"an expiry":                      func(f *forger, revision uint64) { f.publish(revision+1, "", "Nats-Marker-Reason", "MaxAge") },
	"an expiry at the live revision": func(f *forger, revision uint64) { f.publish(revision, "", "Nats-Marker-Reason", "MaxAge") },
	"a deletion":                     func(f *forger, revision uint64) { f.publish(revision+1, "", "KV-Operation", "DEL") },
	"another leader": func(f *forger, revision uint64) {
		f.publish(revision+1, `{"name":"evil","instance":"evil","attempt":"evil.1","term":99,"metadata":{"address":"10.6.6.6"}}`)
	},
	"a record of a later bucket": func(f *forger, revision uint64) {
		f.publish(1, fmt.Sprintf(`{"name":"evil","instance":"evil","attempt":"evil.1","term":1,"bucket":%q}`, time.Now().Add(time.Hour).Format(time.RFC3339Nano)))
	},
}

func TestNotificationOfABucketOfTheSameNameIsIgnored(t *testing.T) {
	natstest.SkipIfShort(t)
	onVirtualTime(t, func(f *fleet) {
		a := f.connected("a").start()
		after(interval)
		b := f.connected("b").start()
		after(3*interval + time.Second)
		var renewals atomic.Int64
		a.link.OnRequest(func(faultproxy.Message) { renewals.Add(1) })
		nc := f.Server.Connect(f.T)
		elsewhere := func(created time.Time) {
			m := nats.NewMsg("election." + natstest.BucketName + "." + key)
			m.Header.Set("Nats-Subject", "$KV."+natstest.BucketName+"."+key)
			m.Header.Set("Nats-Sequence", "1000000")
			m.Data = fmt.Appendf(nil, `{"name":"x","instance":"x","attempt":"x.1","bucket":%q}`, created.Format(time.RFC3339Nano))
			f.Expect(nc.PublishMsg(m)).To(Succeed())
		}
		for range 300 {
			elsewhere(time.Now().Add(-time.Hour * 24 * 365))
			elsewhere(time.Now())
			after(100 * time.Millisecond)
		}
		f.Expect(renewals.Load()).To(BeNumerically("<=", 5+2*30), "four or five renewals are due, and a few reads")
		a.link.Cut()
		crashed := time.Now()
		for !b.IsLeader() {
			elsewhere(time.Now())
			after(100 * time.Millisecond)
		}
		f.Expect(time.Since(crashed)).To(BeNumerically("<=", ttl+time.Second+interval+interval))
	}, republished)
}

func TestRefusedWritesDoNotFillTheMemoryOfTheLeader(t *testing.T) {
	natstest.SkipIfShort(t)
	onVirtualTime(t, func(f *fleet) {
		leader := f.candidateOn("a", nil, f.Open(f.Server.Connect(f.T))).start() // without a link, which has buffers
		after(interval)
		large := strings.Repeat("x", 900_000)
		live := func() int64 {
			after(instant)
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
					_, err := f.Bucket.Create(context.Background(), key, fmt.Appendf(nil, record, i))
					f.Expect(err).To(MatchError(jetstream.ErrKeyExists))
				}
			}
		}
		attempts(10) // so that buffers have grown
		before := live()
		attempts(100)
		f.Expect(live() - before).To(BeNumerically("<", 3<<20))
		f.Expect(leader.IsLeader()).To(BeTrue())
	}, republished)
}

func TestForgedNotificationMovesNoLeadership(t *testing.T) {
	for name, forge := range forgeries {
		for state, disturb := range map[string]func(*candidate){
			"connected": func(*candidate) {},
			"cut off":   func(c *candidate) { c.link.LoseRequests(func(faultproxy.Message) bool { return true }) },
		} {
			if testing.Short() && state == "connected" {
				continue
			}
			t.Run(name+", the leader "+state, func(t *testing.T) {
				onVirtualTime(t, func(f *fleet) {
					a, b := f.leaderAndFollower()
					evil := f.forger()
					disturb(a)
					for range unlessShort(100, 20) {
						forge(evil, f.revision())
						after(10 * time.Millisecond)
						f.Expect(a.IsLeader()).To(BeTrue())
						f.Expect(b.State()).To(Equal(election.CandidateState))
					}
					f.Expect(a.seen()).To(HaveLen(1))
				}, republished)
			})
		}
	}
}

func TestForgedNotificationsCostThreeReadsAndThenOnePerTTL(t *testing.T) {
	natstest.SkipIfShort(t)
	for name, forge := range forgeries {
		t.Run(name, func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				a := f.connected("a").start()
				after(interval)
				b := f.connected("b").start()
				after(3*interval + time.Second)
				evil := f.forger()
				var byLeader, byFollower, writes atomic.Int64
				a.link.OnRequest(func(m faultproxy.Message) {
					if !strings.Contains(string(m.Payload), `"term"`) {
						byLeader.Add(1) // renewals do not count
					}
				})
				b.link.OnRequest(func(m faultproxy.Message) {
					byFollower.Add(1)
					if toKey(m) {
						writes.Add(1)
					}
				})
				ttls := 3
				for end := time.Now().Add(time.Duration(ttls) * ttl); time.Now().Before(end); {
					revision := f.revision()
					for range 10 {
						forge(evil, revision)
						after(10 * time.Millisecond)
					}
				}
				f.Expect(byLeader.Load()).To(BeNumerically("<=", 3+ttls))
				f.Expect(byFollower.Load()).To(BeNumerically("<=", 3+ttls))
				f.Expect(writes.Load()).To(BeZero())

				a.Stop() // b still takes a true release
				after(ttl + 500*time.Millisecond)
				f.Expect(b.IsLeader()).To(BeTrue())
			}, republished)
		})
	}
}

func TestForgedDeletionsOfAFreeKeyCostAsFewReads(t *testing.T) {
	natstest.SkipIfShort(t)
	onVirtualTime(t, func(f *fleet) {
		a := f.connected("a").start()
		after(interval)
		b := f.connected("b").start()
		after(interval)
		b.Pause()
		a.shutdown()
		f.Expect(f.Bucket.Delete(context.Background(), key)).To(Succeed()) // which expires, as the release does not
		after(3 * ttl)
		f.Expect(f.revision()).To(BeZero())
		evil := f.forger()
		var requests atomic.Int64
		b.link.OnRequest(func(faultproxy.Message) { requests.Add(1) })
		const ttls = 3
		for i := range ttls * int(ttl/(10*time.Millisecond)) {
			evil.publish(uint64(100+i), "", "KV-Operation", "DEL")
			after(10 * time.Millisecond)
		}
		f.Expect(requests.Load()).To(BeNumerically("<=", 3+ttls))
	}, republished)
}

func TestForgedVacancyDoesNotSynchroniseLaterAnswers(t *testing.T) {
	natstest.SkipIfShort(t)
	onVirtualTime(t, func(f *fleet) {
		a := f.connected("a").start()
		after(interval)
		_, attempts := f.crowd(100, f.connected)
		after(5*interval + time.Second)
		f.forger().publish(f.revision()+2, "", "Nats-Marker-Reason", "MaxAge") // the revision of the release, after one more renewal
		after(ttl + 2*time.Second)
		attempts.Store(0)
		a.shutdown()
		after(ttl)
		f.Expect(attempts.Load()).To(And(BeNumerically(">=", 1), BeNumerically("<=", 30)))
	}, republished)
}

func TestForgedNotificationCausesNoWriteIfReadsFail(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.connected("a").start()
		after(3*interval + time.Second)
		a.link.LoseRequests(func(m faultproxy.Message) bool { return strings.HasPrefix(m.Subject, "$JS.API.DIRECT.GET.") })
		before := f.revision()
		f.forger().publish(before+1, "", "KV-Operation", "DEL")
		after(interval - 2*time.Second)
		f.Expect(f.revision()).To(Equal(before))
		f.Expect(a.IsLeader()).To(BeTrue())
	}, republished)
}

func TestOnLeaderChangeReportsOnlyWhatWasRead(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.connected("a").start()
		after(interval)
		var reported []string
		b := f.connected("b", election.OnLeaderChange(func(l election.Leader) { reported = append(reported, l.Name) })).start()
		after(3 * interval)
		evil := f.forger()
		for _, forge := range forgeries {
			forge(evil, f.revision())
			after(100 * time.Millisecond)
			f.Expect(b.Status().Leader.Name).To(Equal("a"))
			f.Expect(b.Status().Leader.Metadata).To(BeEmpty())
		}
		f.Expect(reported).To(Equal([]string{"a"}))
		f.Expect(a.IsLeader()).To(BeTrue())
	}, republished)
}

func TestForgedRenewalsDoNotHideACrash(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a, b := f.leaderAndFollower()
		evil, record := f.forger(), f.record()
		a.link.Cut()
		for revision := f.revision() + 1; !b.IsLeader(); revision++ {
			evil.publish(revision, record)
			after(100 * time.Millisecond)
			f.Expect(revision).To(BeNumerically("<", 300), "half a minute")
		}
	}, republished)
}
