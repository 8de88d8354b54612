package election_test

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nats.go/micro"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/link"
	"github.com/natscampaign/election/internal/natstest"
)

// transferring returns a leader, and some candidates that hear of vacancies.
func (f *fleet) transferring(names ...string) (*candidate, map[string]*candidate) {
	f.Helper()
	a := f.hearing("a").start()
	after(interval)
	others := map[string]*candidate{}
	for _, name := range names {
		others[name] = f.hearing(name).start()
		after(100 * time.Millisecond)
	}
	after(interval)
	f.Expect(a.IsLeader()).To(BeTrue())
	return a, others
}

// operator returns an observer that can ask, on a connection of its own.
func (f *fleet) operator() *election.Observer {
	f.Helper()
	nc := f.server.Connect(f.T)
	js, err := jetstream.New(nc)
	f.Expect(err).NotTo(HaveOccurred())
	o, err := election.NewObserver(f.server.Bucket(f.T, nc, ttl, f.options...), election.WithJetStream(js))
	f.Expect(err).NotTo(HaveOccurred())
	return o
}

func TestTransferMakesTheNamedCandidateLeadAndReturnsThen(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a, others := f.transferring("b", "c", "d", "e") // e was heard last, and would be the heir
		for _, name := range []string{"b", "c", "d"} {
			at := time.Now()
			f.Expect(a.Transfer(context.Background(), name)).To(Succeed())
			f.Expect(time.Since(at)).To(BeNumerically("<", 50*time.Millisecond))
			f.Expect(others[name].IsLeader()).To(BeTrue())
			f.Expect(a.IsLeader()).To(BeFalse())
			a = others[name]
			after(3 * interval)
			f.Expect(a.IsLeader()).To(BeTrue(), "for good")
		}
	}, republished)
}

func TestTargetOfATransferLeadsAtTheInstantTheTransferReturns(t *testing.T) {
	s := natstest.StartTCP(t)
	f := &fleet{T: t, WithT: NewWithT(t), server: s, options: []func(*jetstream.KeyValueConfig){republished}}
	ctx := context.Background()
	candidates := map[string]*election.Election{}
	for _, name := range []string{"a", "b", "c"} {
		nc := s.Connect(t)
		js, err := jetstream.New(nc)
		f.Expect(err).NotTo(HaveOccurred())
		e, err := election.NewElection(name, key, s.Bucket(t, nc, ttl, f.options...), election.WithJetStream(js),
			election.WithSplay(0), election.WithStandDown(0))
		f.Expect(err).NotTo(HaveOccurred())
		go func() { _ = e.Start(ctx) }()
		t.Cleanup(e.Stop)
		candidates[name] = e
		f.Eventually(candidates["a"].IsLeader).Should(BeTrue())
	}
	o := f.operator()
	from := candidates["a"]
	for i := range 21 {
		to := []string{"b", "c", "a"}[i%3]
		transfer := func() error { return from.Transfer(ctx, to) }
		if i%2 == 1 {
			transfer = func() error { return o.Transfer(ctx, key, to) }
		}
		var leads bool
		f.Eventually(func() error {
			err := transfer()
			leads = candidates[to].IsLeader()
			return err
		}).WithTimeout(10*time.Second).Should(Succeed(), "once the candidate is ready")
		f.Expect(leads).To(BeTrue(), "after transfer %d, to %s", i, to)
		from = candidates[to]
	}
}

func TestTransferFailsIfItsTargetHoldsTheKeyAndDoesNotLead(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a, others := f.transferring("b")
		b := others["b"]
		b.link.OnRequest(func(m link.Message) {
			if toKey(m) {
				b.link.StallReplies() // it wins, and does not learn of it
			}
		})
		at := time.Now()
		f.Expect(a.Transfer(context.Background(), "b")).To(MatchError(ContainSubstring(`"b" has not taken over within 2s`)))
		f.Expect(time.Since(at)).To(BeNumerically("<", 2100*time.Millisecond))
		f.Expect(b.IsLeader()).To(BeFalse())
		f.Expect(f.record()).To(ContainSubstring(`"name":"b"`))
	}, republished)
}

func TestTransferByALeaderThatMayNotReadReturnsWhenTheTargetLeads(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a, others := f.transferring("b")
		a.link.LoseRequests(func(m link.Message) bool { return strings.HasPrefix(m.Subject, "$JS.API.DIRECT.GET") })
		f.Expect(a.Transfer(context.Background(), "b")).To(Succeed())
		f.Expect(others["b"].IsLeader()).To(BeTrue())
	}, republished)
}

func TestTransferToOneThatIsNotReadyIsRefusedAndTheLeaderLeadsOn(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a, others := f.transferring("b", "cut", "plain")
		others["cut"].link.Cut()
		stopped := f.hearing("stopped").start()
		after(interval)
		stopped.Stop()
		f.candidate("deaf to questions").start() // without WithJetStream it has no connection to be asked by
		after(interval)
		for _, name := range []string{"nobody", "cut", "stopped", "deaf to questions"} {
			err := a.Transfer(context.Background(), name)
			f.Expect(err).To(MatchError(election.ErrNoCandidate), name)
			f.Expect(err).To(MatchError(ContainSubstring(name)))
			f.Expect(a.IsLeader()).To(BeTrue())
		}
		f.Expect(a.Transfer(context.Background(), "")).To(MatchError(election.ErrInvalidOption))
		f.Expect(a.Transfer(context.Background(), "a")).To(Succeed(), "it leads already")
		f.Expect(a.IsLeader()).To(BeTrue())
		f.Expect(others["b"].Transfer(context.Background(), "a")).To(MatchError(election.ErrNotLeader))
		f.Expect(a.seen()).To(HaveLen(1))
	}, republished)
}

func TestTransferToOneThatDiesJustThenLeavesNobodyInItsPlaceForLong(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a, others := f.transferring("b", "c")
		work := make(chan struct{})
		a.Stop()
		after(interval)
		l := others["b"]
		heir := others["c"]
		if !l.IsLeader() {
			l, heir = heir, l
		}
		d := f.hearing("d", election.OnLost(func() { <-work })).start()
		after(interval)
		f.Expect(l.Transfer(context.Background(), "d")).To(Succeed())
		result := make(chan error, 1)
		go func() { result <- d.Transfer(context.Background(), heir.Status().Name) }()
		after(time.Second) // d winds up, and is not done
		heir.link.Cut()
		close(work)
		after(600 * time.Millisecond)
		f.Expect(l.IsLeader()).To(BeTrue(), "the others held back for half a second only")
		f.Expect(<-result).To(MatchError(ContainSubstring("was quicker than")))
	}, republished)
}

func TestTransferWithoutJetStreamSaysWhatIsMissing(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.leading("a")
		f.Expect(a.Transfer(context.Background(), "b")).To(MatchError(ContainSubstring("WithJetStream")))
		f.Expect(a.IsLeader()).To(BeTrue())
	})
}

func TestTransferFromInsideTheWorkReturnsAtOnce(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		b := f.hearing("b")
		a := f.hearing("a")
		transferred := make(chan error, 1)
		go func() {
			_ = a.Run(context.Background(), func(ctx context.Context, _ election.Term) error {
				time.Sleep(interval)
				transferred <- a.Transfer(ctx, "b")
				<-ctx.Done()
				return nil
			})
		}()
		f.Cleanup(a.Stop)
		after(interval / 2)
		b.start()
		after(2*interval + time.Second)
		f.Expect(<-transferred).To(Succeed())
		f.Expect(b.IsLeader()).To(BeTrue())
	}, republished)
}

func TestOperatorCanHaveTheLeaderHandOver(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a, others := f.transferring("b", "c")
		o := f.operator()
		f.Expect(o.Transfer(context.Background(), key, "b")).To(Succeed())
		f.Expect(others["b"].IsLeader()).To(BeTrue())
		f.Expect(o.Transfer(context.Background(), key, "nobody")).To(MatchError(election.ErrNoCandidate))
		f.Expect(others["b"].IsLeader()).To(BeTrue())
		f.Expect(o.Resign(context.Background(), key)).To(Succeed())
		after(time.Second)
		f.Expect(others["b"].IsLeader()).To(BeFalse())
		f.Expect(a.IsLeader() || others["c"].IsLeader()).To(BeTrue())
		f.Expect(o.Resign(context.Background(), "vacant")).To(MatchError(election.ErrNoLeader))
	}, republished)
}

func TestNothingOfAnOperatorsRequestOutlivesStop(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		work := make(chan struct{})
		a := f.hearing("a", election.OnLost(func() { <-work })).start()
		after(interval)
		b := f.hearing("b").start()
		after(interval)
		o, result := f.operator(), make(chan error, 1)
		go func() { result <- o.Transfer(context.Background(), key, "b") }()
		after(time.Second) // a winds up
		b.link.Cut()
		close(work)
		after(100 * time.Millisecond) // it waits for b to lead
		stopped := time.Now()
		a.Stop()
		f.Expect(time.Since(stopped)).To(BeNumerically("<", 100*time.Millisecond))
		stacks := make([]byte, 1<<20)
		for _, s := range strings.Split(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
			f.Expect(s).NotTo(ContainSubstring("(*desk).handOver"))
		}
		f.Expect(<-result).To(HaveOccurred())
		f.Expect(time.Since(stopped)).To(BeNumerically("<", 100*time.Millisecond))
	}, republished)
}

func TestLeaderThatCannotBeAskedIsSaidNotToAnswer(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.leading("a") // without WithJetStream
		err := f.operator().Resign(context.Background(), key)
		f.Expect(err).To(MatchError(ContainSubstring("does not answer")))
		f.Expect(a.IsLeader()).To(BeTrue())

		_, err = f.bucket.Put(context.Background(), "legacy", []byte("choria.example.net"))
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(f.operator().Resign(context.Background(), "legacy")).To(MatchError(ContainSubstring("bare name")))
	})
}

func TestLeaderWhoseWorkTakesLongIsSaidToGoOn(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		work := make(chan struct{})
		a := f.hearing("a", election.OnLost(func() { <-work })).start()
		after(interval)
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		f.Expect(f.operator().Resign(ctx, key)).To(MatchError(Or(ContainSubstring("goes on"), ContainSubstring("deadline exceeded"))))
		f.Expect(a.State()).To(Equal(election.CandidateState), "it leads no more")
		close(work)
	}, republished)
}

func TestCandidatesAnswerForThemselves(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a, others := f.transferring("c", "b")
		others["c"].link.DelayReplies(20 * time.Millisecond)
		found, err := f.operator().Candidates(context.Background(), key)
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(found).To(HaveLen(3))
		for i, c := range []*candidate{a, others["b"], others["c"]} {
			f.Expect(found[i].Name).To(Equal(c.Status().Name), "the leader first")
			f.Expect(found[i].Instance).To(Equal(c.Status().Instance))
			f.Expect(found[i].State).To(Equal(c.State()))
			f.Expect(found[i].Ready).To(Equal(i > 0))
			f.Expect(found[i].Key).To(Equal(key))
			f.Expect(found[i].ClockLag).To(BeNumerically("~", 0, 50*time.Millisecond), "there is but one clock here")
			f.Expect(found[i].Version).NotTo(BeEmpty())
			f.Expect(found[i].PID).NotTo(BeZero())
		}
		f.Expect(f.operator().Candidates(context.Background(), "vacant")).To(BeEmpty())
		_, err = f.operator().Candidates(context.Background(), "a b")
		f.Expect(err).To(MatchError(election.ErrInvalidOption))
		o, err := election.NewObserver(f.bucket)
		f.Expect(err).NotTo(HaveOccurred())
		_, err = o.Candidates(context.Background(), key)
		f.Expect(err).To(MatchError(ContainSubstring("WithJetStream")))
	}, republished)
}

func TestCandidatesOfAProcessAreOneMicroService(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.hearing("a").start()
		after(interval)
		nc := f.server.Connect(f.T)
		ask := func(verb micro.Verb, into any) {
			subject, err := micro.ControlSubject(verb, "election", "")
			f.Expect(err).NotTo(HaveOccurred())
			m, err := nc.Request(subject, nil, time.Second)
			f.Expect(err).NotTo(HaveOccurred())
			f.Expect(json.Unmarshal(m.Data, into)).To(Succeed())
		}
		var ping micro.Ping
		ask(micro.PingVerb, &ping)
		f.Expect(ping.Type).To(Equal(micro.PingResponseType))
		f.Expect(ping.Name).To(Equal("election"))
		f.Expect(ping.Metadata).To(HaveKeyWithValue("bucket", natstest.BucketName))
		var info micro.Info
		ask(micro.InfoVerb, &info)
		f.Expect(info.ID).To(Equal(ping.ID))
		subjects := []string{}
		for _, e := range info.Endpoints {
			subjects = append(subjects, e.Subject)
		}
		f.Expect(subjects).To(ConsistOf(
			control("candidates", ">"), control("resign", ">"), control("transfer", ">")))
		m, err := nc.Request(control("resign", key), []byte("?"), time.Second)
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(m.Header.Get(micro.ErrorCodeHeader)).To(Equal("400"))
		var stats micro.Stats
		ask(micro.StatsVerb, &stats)
		f.Expect(fmt.Sprint(stats.Endpoints[1].NumRequests, stats.Endpoints[1].NumErrors)).To(Equal("1 1"))
		f.Expect(a.IsLeader()).To(BeTrue())

		a.Stop()
		after(time.Second)
		_, err = nc.Request("$SRV.PING.election", nil, time.Second)
		f.Expect(err).To(MatchError(nats.ErrNoResponders), "the service ends with its last candidate")
	}, republished)
}

func TestTransferIsLeftToTheNamedCandidateByWhoeverComesUponIt(t *testing.T) {
	const far = 100 * time.Millisecond // what the named candidate is told, and hears of its writes, so much later
	for offset := -far; offset <= 2*far; offset += far / 10 {
		t.Run(fmt.Sprint(offset), func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				a, others := f.transferring("b")
				others["b"].link.DelayReplies(far)
				newcomer := f.hearing("c")
				go func() {
					time.Sleep(2*far + offset)
					newcomer.startWith(context.Background())
				}()
				time.Sleep(far)
				f.Expect(a.Transfer(context.Background(), "b")).To(Succeed())
				f.Expect(others["b"].State()).NotTo(Equal(election.CandidateState))
				after(interval)
				f.Expect(others["b"].IsLeader()).To(BeTrue())
			}, republished)
		})
	}
}

func TestReleaseThatNamesACandidateWhichIsGoneIsTakenOverByWhoeverComesUponIt(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a, others := f.transferring("b")
		others["b"].link.OnRequest(func(m link.Message) {
			if toKey(m) {
				others["b"].link.Cut() // just when it answers
			}
		})
		c := f.hearing("c")
		go func() { _ = a.Transfer(context.Background(), "b") }()
		after(instant)
		c.start()
		after(700 * time.Millisecond)
		f.Expect(c.IsLeader() || c.State() == election.LeaderElectState).To(BeTrue(), c.State().String())
		after(interval)
		f.Expect(c.IsLeader() || a.IsLeader()).To(BeTrue())
	}, republished)
}
