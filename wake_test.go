package election_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/link"
	"github.com/natscampaign/election/internal/natstest"
)

// spread is the time over which answers to a vacancy are spread where nobody counted the candidates.
const spread = 50 * time.Millisecond

// republished is a bucket like CreateBucket makes.
func republished(cfg *jetstream.KeyValueConfig) {
	natstest.WithMarkers(cfg)
	cfg.RePublish = &jetstream.RePublish{Source: "$KV." + cfg.Bucket + ".>", Destination: "election." + cfg.Bucket + ".>"}
}

// hearing returns a candidate that was given its JetStream context.
func (f *fleet) hearing(name string, opts ...election.Option) *candidate {
	f.Helper()
	l := f.server.Link(f.T)
	nc := natstest.Connect(f.T, l)
	js, err := jetstream.New(nc)
	f.Expect(err).NotTo(HaveOccurred())
	return f.candidateOn(name, l, f.server.Bucket(f.T, nc, ttl, f.options...), append(opts, election.WithJetStream(js))...)
}

// bySource runs f for each way to hear of changes.
func bySource(t *testing.T, run func(f *fleet, candidate func(name string, opts ...election.Option) *candidate)) {
	t.Run("watch", func(t *testing.T) { onVirtualTime(t, func(f *fleet) { run(f, f.candidate) }) })
	t.Run("republish", func(t *testing.T) { onVirtualTime(t, func(f *fleet) { run(f, f.hearing) }, republished) })
}

func (f *fleet) consumers() int {
	status, err := f.bucket.Status(context.Background())
	f.Expect(err).NotTo(HaveOccurred())
	return status.(*jetstream.KeyValueBucketStatus).StreamInfo().State.Consumers
}

func TestReleaseIsAnsweredAtOnce(t *testing.T) {
	bySource(t, func(f *fleet, candidate func(string, ...election.Option) *candidate) {
		a := candidate("a").start()
		after(interval)
		b := candidate("b").start()
		after(3 * ttl)
		a.Stop()
		after(spread)
		f.Expect(b.IsLeader()).To(BeTrue())
	})
}

func TestExpiryIsAnsweredAtOnceAndStoodDownFor(t *testing.T) {
	bySource(t, func(f *fleet, candidate func(string, ...election.Option) *candidate) {
		a := candidate("a").start()
		after(interval)
		b := candidate("b").start()
		after(3*interval + time.Second)
		a.link.Cut() // renewed one second ago
		after(ttl - time.Second - instant)
		f.Expect(b.State()).To(Equal(election.CandidateState))
		for b.State() == election.CandidateState {
			after(time.Millisecond)
		}
		elected := time.Now()
		f.Expect(elected).To(BeTemporally("<", b.begun.Add(3*interval+ttl+400*time.Millisecond)))
		after(interval - time.Millisecond)
		f.Expect(b.IsLeader()).To(BeFalse())
		after(time.Millisecond)
		f.Expect(b.IsLeader()).To(BeTrue())
	})
}

func TestExpiryWithoutMarkersIsFoundOutOnceNothingWasHeardForATTL(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.leading("a")
		b := f.candidate("b").start()
		after(3*interval + time.Second)
		a.link.Cut()
		after(ttl - time.Second + 500*time.Millisecond)
		f.Expect(b.State()).To(Equal(election.LeaderElectState))
	}, withoutMarkers)
}

func TestRemovedKeyIsStoodDownForAsLongAsALeaseMayLast(t *testing.T) {
	for name, remove := range map[string]func(jetstream.KeyValue) error{
		"deleted": func(kv jetstream.KeyValue) error { return kv.Delete(context.Background(), key) },
		"purged":  func(kv jetstream.KeyValue) error { return kv.Purge(context.Background(), key) },
	} {
		t.Run(name, func(t *testing.T) {
			bySource(t, func(f *fleet, candidate func(string, ...election.Option) *candidate) {
				a := candidate("a").start()
				after(interval)
				b := candidate("b").start()
				after(3*interval + time.Second)
				a.link.Cut() // and believes
				f.Expect(remove(f.bucket)).To(Succeed())
				after(spread)
				f.Expect(b.State()).To(Equal(election.LeaderElectState))
				after(ttl - spread - instant)
				f.Expect(b.IsLeader()).To(BeFalse())
				after(spread + instant)
				f.Expect(b.IsLeader()).To(BeTrue())
			})
		})
	}
}

func TestLeaderThatHearsOfAnIntruderFindsOutAtOnce(t *testing.T) {
	for name, intrude := range map[string]func(*fleet){
		"overwritten": func(f *fleet) { f.write("intruder") },
		"deleted":     func(f *fleet) { f.Expect(f.bucket.Delete(context.Background(), key)).To(Succeed()) },
	} {
		t.Run(name, func(t *testing.T) {
			bySource(t, func(f *fleet, candidate func(string, ...election.Option) *candidate) {
				a := candidate("a").start()
				after(interval + time.Second)
				f.Expect(a.IsLeader()).To(BeTrue())
				intrude(f)
				after(500 * time.Millisecond)
				f.Expect(a.IsLeader()).To(BeFalse())
			})
		})
	}
}

func TestFollowerThatHearsRenewalsSendsNothingButItsSlowCampaigns(t *testing.T) {
	bySource(t, func(f *fleet, candidate func(string, ...election.Option) *candidate) {
		candidate("a").start()
		after(interval)
		b := candidate("b").start()
		after(3 * interval)
		var requests atomic.Int64
		b.link.OnRequest(func(m link.Message) {
			if !strings.HasPrefix(m.Subject, "$JS.FC") {
				requests.Add(1)
			}
		})
		after(32 * ttl)
		f.Expect(requests.Load()).To(BeZero())
		after(96 * ttl)
		f.Expect(requests.Load()).To(And(BeNumerically(">", 0), BeNumerically("<=", 12)), "one campaign or a few")
	})
}

func TestResignedLeaderLeavesTheKeyToOthersForOneIntervalAndThenTakesItItself(t *testing.T) {
	bySource(t, func(f *fleet, candidate func(string, ...election.Option) *candidate) {
		a := candidate("a").start()
		after(interval)
		f.Expect(a.Resign(context.Background())).To(Succeed())
		after(interval - instant)
		f.Expect(a.State()).To(Equal(election.CandidateState))
		after(spread)
		f.Expect(a.IsLeader()).To(BeTrue())
	})
}

func TestCandidatesOfOneProcessShareOneWatcherAndLeaveNone(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		var all []*election.Election
		done := make(chan error, 10)
		for i := range 10 {
			e, err := election.NewElection("a", fmt.Sprintf("key-%d", i), f.bucket, election.WithSplay(0))
			f.Expect(err).NotTo(HaveOccurred())
			all = append(all, e)
			go func() { done <- e.Start(context.Background()) }()
		}
		after(interval)
		f.Expect(f.consumers()).To(Equal(1))
		for _, e := range all {
			f.Expect(e.IsLeader()).To(BeTrue())
			f.Expect(e.Status().WakeUp).To(Equal("watch"))
			e.Stop()
			f.Expect(<-done).To(Succeed())
		}
		after(time.Second)
		f.Expect(f.consumers()).To(BeZero())
	})
}

func TestRepublishedChangesNeedNoConsumer(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.hearing("a").start()
		b := f.hearing("b").start()
		after(interval)
		f.Expect(a.IsLeader()).To(BeTrue())
		f.Expect(b.Status().WakeUp).To(Equal("republish"))
		f.Expect(f.consumers()).To(BeZero())
	}, republished)
}

func TestLeaderThatDoesNotHearItsOwnRenewalsLooksForABetterSource(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.hearing("a")
		a.link.LoseReplies(func(m link.Message) bool { return strings.HasPrefix(m.Subject, "election.") })
		a.start()
		after(interval)
		f.Expect(a.IsLeader()).To(BeTrue())
		f.Expect(a.Status().WakeUp).To(Equal("republish"), "once may be chance")
		after(2 * interval)
		f.Expect(a.Status().WakeUp).To(Equal("watch"))
		after(20 * interval)
		f.Expect(a.seen()).To(HaveLen(1))
	}, republished)
}

func TestDeafSourceIsNoticedAndReplacedByTheNextBest(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.leading("a")
		b := f.hearing("b")
		b.link.LoseReplies(func(m link.Message) bool { return strings.HasPrefix(m.Subject, "election.") })
		b.start()
		f.Expect(b.Status().WakeUp).To(Equal("republish"))
		after(5 * interval)
		f.Expect(b.Status().WakeUp).To(Equal("watch"))
		after(5 * interval)
		a.Stop()
		after(spread)
		f.Expect(b.IsLeader()).To(BeTrue())
	}, republished)
}

func TestCandidateThatHearsNothingPollsAndSaysSoOnce(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		var log logged
		f.leading("a").Stop()
		f.write("somebody")
		b := f.deafCandidate("b", election.WithLogger(log.logger())).start()
		f.Expect(b.Status().WakeUp).To(Equal("none"))
		after(ttl + 400*time.Millisecond + 2*interval)
		f.Expect(b.IsLeader()).To(BeTrue())
		after(10 * ttl)
		f.Expect(log.count(`level=WARN msg="Changes of the bucket cannot be heard`)).To(Equal(1))
	})
}

func TestReconnectedCandidateReadsTheKeyAgainAndHearsOn(t *testing.T) {
	bySource(t, func(f *fleet, candidate func(string, ...election.Option) *candidate) {
		a := candidate("a").start()
		after(interval)
		b := candidate("b").start()
		after(3 * interval)
		b.link.Disconnect()
		after(time.Second)
		after(2 * ttl)
		a.Stop()
		after(spread)
		f.Expect(b.IsLeader()).To(BeTrue())
	})
}

func TestFewOfManyAnswerAVacancy(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.hearing("a").start()
		var all []*candidate
		for i := range 100 {
			c := f.hearing(fmt.Sprintf("b%d", i), election.WithSplay(5*time.Second)).start()
			c.link.DelayReplies(2 * time.Millisecond) // the network that virtual time does not have
			all = append(all, c)
		}
		after(5 * interval)
		f.Expect(f.record()).To(ContainSubstring(`"candidates":101`))
		var attempts atomic.Int64
		for _, c := range all {
			c.link.OnRequest(func(m link.Message) {
				if toKey(m) && !strings.Contains(string(m.Payload), `"term"`) {
					attempts.Add(1)
				}
			})
		}
		a.Stop()
		after(100 * time.Millisecond)
		leaders := 0
		for _, c := range all {
			if c.IsLeader() {
				leaders++
			}
		}
		f.Expect(leaders).To(Equal(1))
		f.Expect(attempts.Load()).To(BeNumerically("<", 20))
		synctest.Wait()
	}, republished)
}

func TestCreateBucketMakesABucketFitForElectionsAndBringsOneToIt(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		g := NewWithT(t)
		s := natstest.Start(t)
		js, err := jetstream.New(s.Connect(t))
		g.Expect(err).NotTo(HaveOccurred())
		ctx := context.Background()
		cfg := election.BucketConfig{Name: "E", TTL: ttl, Storage: jetstream.MemoryStorage}

		_, err = js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: "E", History: 5, LimitMarkerTTL: ttl, Description: "ours", Storage: jetstream.MemoryStorage})
		g.Expect(err).NotTo(HaveOccurred())
		bucket, err := election.CreateBucket(ctx, js, cfg)
		g.Expect(err).NotTo(HaveOccurred())
		status, err := bucket.Status(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		has := status.Config()
		g.Expect(has.History).To(BeEquivalentTo(1))
		g.Expect(has.TTL).To(Equal(ttl))
		g.Expect(has.LimitMarkerTTL).To(Equal(time.Second))
		g.Expect(has.RePublish.Destination).To(HavePrefix("election.E."))
		g.Expect(has.Description).To(Equal("ours"))

		_, err = election.CreateBucket(ctx, js, election.BucketConfig{Name: "E", TTL: ttl})
		g.Expect(err).To(MatchError(election.ErrBucketUnsuitable), "another storage")
		cfg.Mixed = true
		_, err = election.CreateBucket(ctx, js, cfg)
		g.Expect(err).To(MatchError(election.ErrBucketUnsuitable), "markers cannot be taken away")
		cfg.Name = "MIXED"
		bucket, err = election.CreateBucket(ctx, js, cfg)
		g.Expect(err).NotTo(HaveOccurred())
		status, err = bucket.Status(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(status.LimitMarkerTTL()).To(BeZero())

		_, err = election.CreateBucket(ctx, js, election.BucketConfig{Name: "no name", TTL: time.Millisecond, Replicas: 2})
		g.Expect(err).To(MatchError(And(ContainSubstring(`"no name"`), ContainSubstring("TTL of 1ms"), ContainSubstring("2 replicas"))))
		_, err = election.CreateBucket(ctx, nil, cfg)
		g.Expect(err).To(MatchError(election.ErrInvalidOption))
	})
}

func TestMarkerOfAnExpiryStandsForASecondAndItsEndIsNotTold(t *testing.T) {
	for name, storage := range map[string]jetstream.StorageType{"memory": jetstream.MemoryStorage, "file": jetstream.FileStorage} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // on the wall clock, for files do not work on another
			g, ctx := NewWithT(t), t.Context()
			nc := natstest.StartTCP(t).Connect(t)
			js, err := jetstream.New(nc)
			g.Expect(err).NotTo(HaveOccurred())
			bucket, err := election.CreateBucket(ctx, js, election.BucketConfig{Name: "E", TTL: time.Second, Storage: storage})
			g.Expect(err).NotTo(HaveOccurred())
			status, err := bucket.Status(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			republished, err := nc.SubscribeSync(status.Config().RePublish.Destination)
			g.Expect(err).NotTo(HaveOccurred())
			watcher, err := bucket.WatchAll(ctx, jetstream.UpdatesOnly())
			g.Expect(err).NotTo(HaveOccurred())
			defer func() { _ = watcher.Stop() }()

			create := func() error { // as one does who may not read
				_, err := js.Publish(ctx, "$KV.E.k", []byte("a"), jetstream.WithExpectLastSequencePerSubject(0))
				return err
			}
			g.Expect(create()).To(Succeed())
			g.Eventually(create).WithTimeout(10 * time.Second).WithPolling(10 * time.Millisecond).Should(Succeed())
			var told, heard []string
			for i := range 3 {
				entry := <-watcher.Updates()
				told = append(told, fmt.Sprint(entry.Revision(), " ", entry.Operation()))
				m, err := republished.NextMsg(10 * time.Second)
				g.Expect(err).NotTo(HaveOccurred())
				heard = append(heard, m.Header.Get("Nats-Sequence")+" "+m.Header.Get("Nats-Marker-Reason"))
				if i == 1 {
					g.Expect(time.Since(entry.Created())).To(BeNumerically(">=", time.Second), "it stood that long")
				}
			}
			g.Expect(told).To(Equal([]string{"1 KeyValuePutOp", "2 KeyValuePurgeOp", "3 KeyValuePutOp"}))
			g.Expect(heard).To(Equal([]string{"1 ", "2 MaxAge", "3 "}))
		})
	}
}

func TestFewCandidatesAnswerSoonerThanMany(t *testing.T) {
	bySource(t, func(f *fleet, candidate func(string, ...election.Option) *candidate) {
		a := candidate("a").start()
		after(time.Second)
		b, c := candidate("b").start(), candidate("c").start()
		after(3 * interval)
		a.Stop()
		after(time.Millisecond)
		f.Expect(b.IsLeader() != c.IsLeader()).To(BeTrue())
	})
}

func TestCandidateReadsOnWhenAnOperatorSwitchesDirectReadsOff(t *testing.T) {
	bySource(t, func(f *fleet, candidate func(string, ...election.Option) *candidate) {
		a := candidate("a").start()
		after(interval)
		b := candidate("b").start()
		after(3 * interval)
		js, err := jetstream.New(f.server.Connect(f.T))
		f.Expect(err).NotTo(HaveOccurred())
		stream, err := js.Stream(context.Background(), "KV_"+natstest.BucketName)
		f.Expect(err).NotTo(HaveOccurred())
		cfg := stream.CachedInfo().Config
		cfg.AllowDirect = false
		_, err = js.UpdateStream(context.Background(), cfg)
		f.Expect(err).NotTo(HaveOccurred())
		a.link.Cut()
		after(3 * ttl)
		f.Expect(b.IsLeader()).To(BeTrue())
	})
}

func TestCandidateCampaignsThoughReadingFailsForGood(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.leading("a")
		b, bucket := f.faultyCandidate("b")
		bucket.onGet(func(context.Context, func() (jetstream.KeyValueEntry, error)) (jetstream.KeyValueEntry, error) {
			return nil, errors.New("not supported")
		})
		b.start()
		after(interval)
		a.link.Cut()
		after(3*ttl + interval)
		f.Expect(b.IsLeader()).To(BeTrue())
	})
}

func TestOnlyARefusedReadOfTheKeyIsLackOfPermissionToReadIt(t *testing.T) {
	const get = "$JS.API.DIRECT.GET.KV_" + natstest.BucketName
	for denied, source := range map[string]string{
		get + ".$KV." + natstest.BucketName + "." + key:     "none",
		get + ".$KV." + natstest.BucketName + "." + key[1:]: "republish",
		get + "2.$KV." + natstest.BucketName + "2." + key:   "republish",
	} {
		t.Run(denied, func(t *testing.T) {
			natstest.Bubble(t, func(t *testing.T) {
				s := natstest.Start(t, func(o *server.Options) {
					permissions := &server.Permissions{Publish: &server.SubjectPermission{Deny: []string{denied}}}
					o.Users, o.NoAuthUser = []*server.User{{Username: "u", Password: "u", Permissions: permissions}}, "u"
				})
				f := &fleet{T: t, WithT: NewWithT(t), server: s, bucket: s.Bucket(t, s.Connect(t), ttl, republished), options: []func(*jetstream.KeyValueConfig){republished}}
				l := s.Link(t)
				nc := natstest.Connect(t, l)
				js, err := jetstream.New(nc)
				f.Expect(err).NotTo(HaveOccurred())
				c := f.candidateOn("c", l, s.Bucket(t, nc, ttl, f.options...), election.WithJetStream(js)).start()
				after(interval + time.Second)
				f.Expect(c.IsLeader()).To(BeTrue())
				f.Expect(nc.Publish(denied, nil)).To(Succeed()) // what else the process does on that connection
				after(time.Second)
				f.Expect(nc.LastError()).To(MatchError(nats.ErrPermissionViolation))
				l.LoseRequests(once(func(m link.Message) bool { return strings.HasPrefix(m.Subject, get) }))
				f.forger().say(1000, "", "KV-Operation", "DEL")
				after(3 * time.Second)
				f.Expect(c.Status().WakeUp).To(Equal(source))
			})
		})
	}
}

func TestLeaderDoesNotReadWhatItWroteItself(t *testing.T) {
	bySource(t, func(f *fleet, candidate func(string, ...election.Option) *candidate) {
		a := candidate("a").start()
		after(interval)
		b := candidate("b").start()
		after(3 * interval)
		var reads atomic.Int64
		b.link.OnRequest(func(m link.Message) {
			if strings.HasPrefix(m.Subject, "$JS.API.DIRECT.GET.") {
				reads.Add(1)
			}
		})
		b.link.DelayReplies(2 * time.Millisecond)
		a.Stop()
		after(3 * interval)
		f.Expect(b.IsLeader()).To(BeTrue())
		for i := range 5 {
			f.Expect(b.SetMetadata(map[string]string{"n": fmt.Sprint(i)})).To(Succeed())
			after(time.Second)
		}
		f.Expect(reads.Load()).To(BeEquivalentTo(1), "before it won")
		f.Expect(f.bucket.Delete(context.Background(), key)).To(Succeed())
		after(100 * time.Millisecond)
		f.Expect(b.IsLeader()).To(BeFalse())
	})
}
