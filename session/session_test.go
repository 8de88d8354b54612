package session_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/drill/faultproxy"
	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/natstest"
	"github.com/natscampaign/election/session"
)

func TestMain(m *testing.M) { natstest.VerifyTestMain(m) }

const ttl = 10 * time.Second

// fixture is a server with a bucket for sessions, older than any lease, on virtual time.
type fixture struct {
	*WithT
	t      *testing.T
	server *natstest.Server
}

// play plays a test on virtual time.
func play(t *testing.T, test func(f *fixture)) {
	playInNewBucket(t, func(f *fixture) {
		first := f.open("first")
		time.Sleep(2 * ttl)
		f.close(first)
		test(f)
	})
}

// playInNewBucket plays a test without a bucket.
func playInNewBucket(t *testing.T, test func(f *fixture)) {
	natstest.Bubble(t, func(t *testing.T) { test(&fixture{NewWithT(t), t, natstest.Start(t)}) })
}

func (f *fixture) js() jetstream.JetStream {
	js, err := jetstream.New(f.server.Connect(f.t))
	f.Expect(err).NotTo(HaveOccurred())
	return js
}

func config(name string) session.Config {
	return session.Config{Bucket: "S", Name: name, TTL: ttl, Storage: jetstream.MemoryStorage}
}

// open opens a session of a process.
func (f *fixture) open(name string, opts ...election.Option) *session.Session {
	f.t.Helper()
	s, err := session.Open(context.Background(), f.js(), config(name), opts...)
	f.Expect(err).NotTo(HaveOccurred())
	f.t.Cleanup(func() { f.close(s) })
	return s
}

func (f *fixture) close(s *session.Session) { f.Expect(s.Close(context.Background())).To(Succeed()) }

// start campaigns for a key.
func (f *fixture) start(s *session.Session, key string, opts ...election.Option) *election.Election {
	f.t.Helper()
	e, err := s.Election(key, opts...)
	f.Expect(err).NotTo(HaveOccurred())
	go func() { _ = e.Start(context.Background()) }()
	return e
}

func TestKeyIsLedAtOnceAndForAsLongAsTheSessionLasts(t *testing.T) {
	play(t, func(f *fixture) {
		s := f.open("a")
		e := f.start(s, "k")
		time.Sleep(100 * time.Millisecond)
		f.Expect(e.IsLeader()).To(BeTrue())
		term, _ := e.Term()
		time.Sleep(10 * ttl)
		after, leads := e.Term()
		f.Expect(leads).To(BeTrue())
		f.Expect(after).To(Equal(term), "the term goes on")
		f.Expect(s.Status().Led).To(Equal(1))
		f.close(s)
		f.Expect(e.IsLeader()).To(BeFalse())
	})
}

func TestTransferHandsOneKeyOverAtOnceAndNoOther(t *testing.T) {
	play(t, func(f *fixture) {
		a, b := f.open("a"), f.open("b")
		one, two := f.start(a, "one"), f.start(a, "two")
		time.Sleep(100 * time.Millisecond)
		other := f.start(b, "one")
		f.start(b, "two")
		time.Sleep(100 * time.Millisecond)
		began := time.Now()
		f.Expect(one.Transfer(context.Background(), "b")).To(Succeed())
		f.Expect(time.Since(began)).To(BeNumerically("<", 50*time.Millisecond))
		f.Expect(other.IsLeader()).To(BeTrue())
		f.Expect(two.IsLeader()).To(BeTrue())
	})
}

func TestKeyIsHandedOverToANewcomerAndBackAtOnce(t *testing.T) {
	playInNewBucket(t, func(f *fixture) {
		a := f.open("a")
		one := f.start(a, "one")
		time.Sleep(3 * ttl / 2) // it has waited for leaders of an earlier bucket, and says so in its claim
		f.Expect(one.IsLeader()).To(BeTrue())
		other := f.start(f.open("b"), "one")
		for range 3 {
			time.Sleep(100 * time.Millisecond)
			began := time.Now()
			f.Expect(one.Transfer(context.Background(), "b")).To(Succeed())
			f.Expect(other.Transfer(context.Background(), "a")).To(Succeed())
			f.Expect(time.Since(began)).To(BeNumerically("<", 100*time.Millisecond))
			f.Expect(one.IsLeader()).To(BeTrue())
		}
	})
}

// panicking is a handler of the log that panics when leadership begins.
type panicking struct{ slog.Handler }

func (panicking) Enabled(context.Context, slog.Level) bool { return true }
func (h panicking) WithAttrs([]slog.Attr) slog.Handler     { return h }
func (panicking) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if a.Value.String() == "stood-down" {
			panic("the handler of the log")
		}
		return true
	})
	return nil
}

// The session renews its lease whatever becomes of an election.
func TestPanicInTheLoopOfAnElectionEndsItsTerm(t *testing.T) {
	play(t, func(f *fixture) {
		a, b := f.open("a"), f.open("b")
		e, err := a.Election("one", election.WithLogger(slog.New(panicking{slog.DiscardHandler})))
		f.Expect(err).NotTo(HaveOccurred())
		ended := make(chan time.Time, 1)
		go func() {
			defer func() { _ = recover() }()
			_ = e.Run(context.Background(), func(ctx context.Context, _ election.Term) error {
				<-ctx.Done()
				ended <- time.Now()
				return nil
			})
		}()
		other, another := f.start(b, "one"), f.start(a, "another")
		for range 3 * ttl / time.Second {
			time.Sleep(time.Second)
			f.Expect(e.IsLeader()).To(BeFalse())
		}
		f.Expect(other.IsLeader()).To(BeTrue())
		f.Expect(another.IsLeader()).To(BeTrue(), "of the same session")
	})
}

// slowLog is a handler of the log that takes a while for a line with a value.
type slowLog struct {
	slog.Handler
	value string
	takes time.Duration
}

func (slowLog) Enabled(context.Context, slog.Level) bool { return true }
func (h slowLog) WithAttrs([]slog.Attr) slog.Handler     { return h }
func (h slowLog) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if a.Value.String() == h.value {
			time.Sleep(h.takes)
		}
		return true
	})
	return nil
}

// run runs an election whose work waits for its end. It returns when the work began and when its context ended, and when Run returned.
func (f *fixture) run(s *session.Session, key string, log slowLog) (e *election.Election, works, ended, returned <-chan time.Time) {
	f.t.Helper()
	log.Handler = slog.DiscardHandler
	e, err := s.Election(key, election.WithLogger(slog.New(log)))
	f.Expect(err).NotTo(HaveOccurred())
	began, over, end := make(chan time.Time, 1), make(chan time.Time, 1), make(chan time.Time, 1)
	go func() {
		_ = e.Run(context.Background(), func(ctx context.Context, _ election.Term) error {
			began <- time.Now()
			<-ctx.Done()
			over <- time.Now()
			return nil
		})
		end <- time.Now()
	}()
	return e, began, over, end
}

func TestWorkBeginsThoughTheElectionIsToldSomethingWhenItsLeadershipBeginsToCount(t *testing.T) {
	play(t, func(f *fixture) {
		e, works, _, _ := f.run(f.open("a"), "k", slowLog{value: "leader-elect", takes: time.Second})
		time.Sleep(500 * time.Millisecond)
		f.Expect(e.SetMetadata(map[string]string{"url": "http://a"})).To(Succeed())
		time.Sleep(time.Second)
		f.Expect(e.IsLeader()).To(BeTrue())
		f.Expect(works).To(Receive())
	})
}

func TestRunReturnsWhatTheWorkReturnsThatEndsItself(t *testing.T) {
	play(t, func(f *fixture) {
		s := f.open("a")
		e, err := s.Election("k")
		f.Expect(err).NotTo(HaveOccurred())
		failure := errors.New("out of paper")
		ctx, cancel := context.WithTimeout(context.Background(), 10*ttl)
		defer cancel()
		for range 2 { // the election may run again
			works := 0
			f.Expect(e.Run(ctx, func(context.Context, election.Term) error {
				works++
				time.Sleep(time.Second)
				return failure
			})).To(MatchError(failure))
			f.Expect(works).To(Equal(1))
			_, err = e.Leader(context.Background())
			f.Expect(err).To(MatchError(election.ErrNoLeader), "the key is released")
		}
		next := f.start(f.open("b"), "k")
		time.Sleep(100 * time.Millisecond)
		f.Expect(next.IsLeader()).To(BeTrue())
	})
}

func TestWorkOfAnElectionThatOutlivesItsTermIsUnhealthy(t *testing.T) {
	play(t, func(f *fixture) {
		e, err := f.open("a", election.WithReleaseTimeout(30*time.Second)).Election("k")
		f.Expect(err).NotTo(HaveOccurred())
		work := make(chan struct{})
		unblock := sync.OnceFunc(func() { close(work) })
		defer unblock()
		go func() {
			_ = e.Run(context.Background(), func(context.Context, election.Term) error { <-work; return nil })
		}()
		health := func() int { return fleettest.Get(e.Handler(), http.MethodGet, "/healthz").Code }
		time.Sleep(5 * ttl)
		f.Expect(e.IsLeader()).To(BeTrue())
		f.Expect(health()).To(Equal(http.StatusOK), "work may take as long as the term lasts")
		go func() { _ = e.Resign(context.Background()) }()
		time.Sleep(37 * time.Second)
		f.Expect(health()).To(Equal(http.StatusOK))
		time.Sleep(2 * time.Second)
		f.Expect(health()).To(Equal(http.StatusServiceUnavailable))
		unblock()
		time.Sleep(100 * time.Millisecond)
		f.Expect(health()).To(Equal(http.StatusOK))
	})
}

// A log that is written to a pipe may wait for its reader.
func TestCloseEndsAllWorkAtOnceAndReturnsThoughOneElectionIsSlow(t *testing.T) {
	play(t, func(f *fixture) {
		a := f.open("a", election.WithReleaseTimeout(100*time.Millisecond))
		_, _, _, slow := f.run(a, "slow", slowLog{value: "stopped", takes: 3 * ttl})
		var leaders []*election.Election
		var ends, returns []<-chan time.Time
		for i := range 9 {
			e, _, ended, returned := f.run(a, fmt.Sprint("other-", i), slowLog{})
			leaders, ends, returns = append(leaders, e), append(ends, ended), append(returns, returned)
		}
		time.Sleep(time.Second)
		for _, e := range leaders {
			f.Expect(e.IsLeader()).To(BeTrue())
		}
		b := f.open("b")
		var next []*election.Election
		for i := range leaders {
			next = append(next, f.start(b, fmt.Sprint("other-", i)))
		}
		time.Sleep(time.Second)
		closing := time.Now()
		closed := make(chan struct{})
		go func() { f.close(a); close(closed) }()
		time.Sleep(time.Second)
		for _, e := range next {
			f.Expect(e.IsLeader()).To(BeTrue(), "the other keys are released one by one")
		}
		<-closed
		f.Expect(slow).To(Receive())
		for i := range leaders {
			f.Expect(ends[i]).To(Receive(BeTemporally("==", closing)))
			f.Expect(returns[i]).To(Receive(BeTemporally("<", closing.Add(ttl))))
		}
	})
}

func TestCloseReleasesAllKeysByOneWriteOnceTheirWorkHasReturned(t *testing.T) {
	const keys = 200
	play(t, func(f *fixture) {
		a, b := f.open("a"), f.open("b")
		var works, theirs []*election.Election
		for i := range keys {
			e, err := a.Election(fmt.Sprint("k", i))
			f.Expect(err).NotTo(HaveOccurred())
			works = append(works, e)
			go func() {
				_ = e.Run(context.Background(), func(ctx context.Context, _ election.Term) error {
					<-ctx.Done()
					time.Sleep(time.Second)
					return nil
				})
			}()
		}
		time.Sleep(time.Second)
		for i := range keys {
			theirs = append(theirs, f.start(b, fmt.Sprint("k", i)))
		}
		time.Sleep(time.Second)
		led := func(all []*election.Election) (n int) {
			for _, e := range all {
				if e.IsLeader() {
					n++
				}
			}
			return n
		}
		f.Expect(led(works)).To(Equal(keys))
		before := a.Status().Requests
		go f.close(a)
		time.Sleep(990 * time.Millisecond)
		f.Expect(led(works) + led(theirs)).To(BeZero())
		time.Sleep(110 * time.Millisecond)
		f.Expect(led(theirs)).To(Equal(keys))
		f.Expect(a.Status().Requests - before).To(BeNumerically("<=", 3))
	})
}

func TestEachProcessLearnsWhoLeadsAndThatNobodyDoes(t *testing.T) {
	play(t, func(f *fixture) {
		var seen []string
		a, b := f.open("a"), f.open("b")
		e := f.start(a, "k", election.WithMetadata(map[string]string{"url": "http://a"}))
		time.Sleep(100 * time.Millisecond)
		other := f.start(b, "k", election.OnLeaderChange(func(l election.Leader) { seen = append(seen, l.Name) }))
		time.Sleep(time.Second)
		term, _ := e.Term()
		l, err := other.Leader(context.Background())
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(l.Name).To(Equal("a"))
		f.Expect(l.Token()).To(Equal(term.Token()))
		f.Expect(l.State).To(Equal(election.LeaderState))
		f.Expect(l.Instance).To(Equal(a.Status().ID))
		f.Expect(l.Metadata).To(HaveKeyWithValue("url", "http://a"))
		f.Expect(other.Status().Leader.Name).To(Equal("a"))
		f.close(a)
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		f.Expect(seen).To(Equal([]string{"a", "", "b"}), "nobody leads between them")
		f.close(b)
		_, err = other.Leader(context.Background())
		f.Expect(err).To(MatchError(election.ErrNoLeader))
	})
}

func TestTokensOfAKeyGrowWhenTheBucketIsMadeAgain(t *testing.T) {
	play(t, func(f *fixture) {
		a := f.open("a")
		e := f.start(a, "k")
		time.Sleep(time.Second)
		before, leads := e.Term()
		f.Expect(leads).To(BeTrue())
		js := f.js()
		f.Expect(js.DeleteStream(context.Background(), "KV_S")).To(Succeed())
		b := f.open("b") // makes it
		time.Sleep(3 * ttl)
		after, leads := e.Term()
		f.Expect(leads).To(BeTrue())
		f.Expect(after.Number).To(BeNumerically("<", before.Number), "else this shows nothing")
		f.Expect(after.Token() > before.Token()).To(BeTrue(), "%s, then %s", before.Token(), after.Token())
		f.close(b)
	})
}

func TestSessionThatIsCutOffLeadsNothingOnceItsLeaseIsOverAndAgainLater(t *testing.T) {
	play(t, func(f *fixture) {
		s, err := session.Open(context.Background(), f.js(), session.Config{Bucket: "FILE", Name: "a", TTL: ttl})
		f.Expect(err).NotTo(HaveOccurred())
		e := f.start(s, "k")
		time.Sleep(2 * ttl)
		f.Expect(e.IsLeader()).To(BeTrue())
		term, _ := e.Term()
		f.server.Stop()
		time.Sleep(ttl)
		f.Expect(term.Valid()).To(BeFalse())
		f.Expect(e.IsLeader()).To(BeFalse())
		f.Expect(s.Status().LastError).NotTo(BeEmpty())
		f.server.Resume(f.t)
		time.Sleep(2 * ttl)
		f.Expect(e.IsLeader()).To(BeTrue())
		f.close(s)
	})
}

func TestElectionsEndWithAConnectionThatIsClosed(t *testing.T) {
	play(t, func(f *fixture) {
		js := f.js()
		s, err := session.Open(context.Background(), js, config("a"))
		f.Expect(err).NotTo(HaveOccurred())
		e, err := s.Election("k")
		f.Expect(err).NotTo(HaveOccurred())
		result := make(chan error, 1)
		go func() { result <- e.Start(context.Background()) }()
		time.Sleep(time.Second)
		js.Conn().Close()
		f.Expect(<-result).To(MatchError(nats.ErrConnectionClosed))
		f.Expect(e.IsLeader()).To(BeFalse())
		f.close(s)
	})
}

func TestWhatCannotBeIsRefusedAndNothingIsLeftBehind(t *testing.T) {
	play(t, func(f *fixture) {
		js, ctx := f.js(), context.Background()
		_, err := election.CreateBucket(ctx, js, election.BucketConfig{Name: "E", TTL: ttl, Storage: jetstream.MemoryStorage})
		f.Expect(err).NotTo(HaveOccurred())
		open := func(change func(*session.Config), opts ...election.Option) error {
			cfg := config("a")
			change(&cfg)
			_, err := session.Open(ctx, js, cfg, opts...)
			return err
		}
		same := func(*session.Config) {}
		f.Expect(open(func(c *session.Config) { c.Bucket = "E" })).To(MatchError(election.ErrBucketUnsuitable))
		for text, err := range map[string]error{
			"one of 10s":       open(func(c *session.Config) { c.TTL = time.Minute }),
			"name is empty":    open(func(c *session.Config) { c.Name = "" }),
			"no name for":      open(func(c *session.Config) { c.Bucket = "a b" }),
			"2 replicas":       open(func(c *session.Config) { c.Replicas = 2 }),
			"Session.Election": open(same, election.WithPriority(1)),
			"was given nil":    open(same, election.WithLogger(nil)),
		} {
			f.Expect(err).To(MatchError(election.ErrInvalidOption), text)
			f.Expect(err).To(MatchError(ContainSubstring(text)))
		}
		s := f.open("a")
		for option, opt := range map[string]election.Option{
			"duration": election.WithSplay(time.Second), "WithPriority": election.WithPriority(1), "WithPlainValue": election.WithPlainValue(), "OnNext": election.OnNext(func(bool) {}),
		} {
			_, err := s.Election("k", opt)
			f.Expect(err).To(MatchError(election.ErrInvalidOption), option)
			f.Expect(err).To(MatchError(ContainSubstring(option)))
		}
		e, err := s.Election("k")
		f.Expect(err).NotTo(HaveOccurred())
		_, err = s.Election("k")
		f.Expect(err).To(MatchError(ContainSubstring("stop it first")))
		e.Stop()
		_, err = s.Election("k")
		f.Expect(err).NotTo(HaveOccurred())
		f.close(s)
		_, err = s.Election("other")
		f.Expect(err).To(MatchError(election.ErrStopped))
		bucket, err := js.KeyValue(ctx, "S")
		f.Expect(err).NotTo(HaveOccurred())
		e, err = election.NewElection("a", "k", bucket, election.WithJetStream(js))
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(e.Start(ctx)).To(MatchError(election.ErrBucketUnsuitable))
	})
}

func TestMetricsShowTheSessionAndTheLeaderOfEachKey(t *testing.T) {
	play(t, func(f *fixture) {
		registry := prometheus.NewPedanticRegistry()
		s := f.open("a", election.WithRegisterer(registry))
		f.start(s, "k")
		f.start(s, "own", election.WithRegisterer(registry))
		time.Sleep(time.Second)
		f.Expect(testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP election_leader Whether this candidate leads, 1 or 0.
# TYPE election_leader gauge
election_leader{bucket="S",election="k",identity="a"} 1
election_leader{bucket="S",election="own",identity="a"} 1
# HELP election_session_keys Elections of the session, by the state of its candidates.
# TYPE election_session_keys gauge
election_session_keys{bucket="S",identity="a",state="candidate"} 0
election_session_keys{bucket="S",identity="a",state="leader"} 2
election_session_keys{bucket="S",identity="a",state="leader-elect"} 0
# HELP election_session_open Whether the session can lead keys, 1 or 0.
# TYPE election_session_open gauge
election_session_open{bucket="S",identity="a"} 1
`), "election_leader", "election_session_keys", "election_session_open")).To(Succeed())
		_, err := session.Open(context.Background(), f.js(), config("a"), election.WithRegisterer(registry))
		f.Expect(err).To(MatchError(ContainSubstring("duplicate")))
		f.Expect(testutil.GatherAndCount(registry, "election_session_open")).To(Equal(1), "the metrics of the other session stay")
		f.close(s)
		f.Expect(testutil.GatherAndCount(registry)).To(BeZero())
	})
}

// A registry that is registered with another holds its mutex while it is scraped, and a scrape waits for that of the session.
func TestElectionsComeAndGoWhileTheirMetricsAreScraped(t *testing.T) {
	play(t, func(f *fixture) {
		registry, outer, over := prometheus.NewRegistry(), prometheus.NewRegistry(), make(chan struct{})
		outer.MustRegister(registry)
		s := f.open("a", election.WithRegisterer(registry))
		f.start(s, "k")
		var scrapes sync.WaitGroup
		scrapes.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
					_, err := outer.Gather()
					f.Expect(err).NotTo(HaveOccurred())
				}
			}
		})
		for range 100 {
			e, err := s.Election("again")
			f.Expect(err).NotTo(HaveOccurred())
			f.Expect(testutil.GatherAndCount(registry, "election_leader")).To(Equal(2))
			e.Stop()
			f.Expect(testutil.GatherAndCount(registry, "election_leader")).To(Equal(1))
		}
		close(over)
		scrapes.Wait()
		f.close(s)
		f.Expect(testutil.GatherAndCount(registry)).To(BeZero())
	})
}

func TestClosedSessionLeavesNoConsumerBehind(t *testing.T) {
	play(t, func(f *fixture) {
		stream, err := f.js().Stream(context.Background(), "KV_S")
		f.Expect(err).NotTo(HaveOccurred())
		for range 20 {
			s := f.open("a")
			f.close(s)
			f.Expect(s.Status().LeaseRemaining).To(BeZero())
			info, err := stream.Info(context.Background())
			f.Expect(err).NotTo(HaveOccurred())
			f.Expect(info.State.Consumers).To(BeZero())
		}
	})
}

func TestConsumerWhoseMakingNobodyAnswersIsRemoved(t *testing.T) {
	playInNewBucket(t, func(f *fixture) {
		f.open("a")
		link := f.server.Link(f.t)
		js, err := jetstream.New(natstest.Connect(f.t, link))
		f.Expect(err).NotTo(HaveOccurred())
		link.LoseReplies(func(m faultproxy.Message) bool {
			return strings.Contains(m.Request, "CONSUMER.CREATE") || strings.HasPrefix(m.Reply, "$JS.ACK.")
		})
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_, err = session.Open(ctx, js, config("b"))
		f.Expect(err).To(MatchError(context.DeadlineExceeded))
		time.Sleep(2 * ttl) // what Open has begun ends
		stream, err := f.js().Stream(context.Background(), "KV_S")
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(stream.CachedInfo().State.Consumers).To(Equal(1), "that of the other session")
	})
}

func TestSessionIsOpenedThoughEachAnswerTakesMoreThanHalfOfTheTimeForIt(t *testing.T) {
	playInNewBucket(t, func(f *fixture) {
		link := f.server.Link(f.t)
		js, err := jetstream.New(natstest.Connect(f.t, link))
		f.Expect(err).NotTo(HaveOccurred())
		link.DelayReplies(150 * time.Millisecond)
		cfg := config("a")
		cfg.TTL = time.Second
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		s, err := session.Open(ctx, js, cfg)
		f.Expect(err).NotTo(HaveOccurred())
		f.close(s)
	})
}

func TestElectionsOfAClosedConnectionEndWithAnError(t *testing.T) {
	play(t, func(f *fixture) {
		js, ctx := f.js(), context.Background()
		s, err := session.Open(ctx, js, config("a"))
		f.Expect(err).NotTo(HaveOccurred())
		running, err := s.Election("running")
		f.Expect(err).NotTo(HaveOccurred())
		before, err := s.Election("before")
		f.Expect(err).NotTo(HaveOccurred())
		ended := make(chan error)
		go func() { ended <- running.Start(ctx) }()
		time.Sleep(time.Second)
		js.Conn().Close()
		f.Expect(<-ended).To(MatchError(nats.ErrConnectionClosed))
		f.Expect(before.Start(ctx)).To(MatchError(nats.ErrConnectionClosed))
		after, err := s.Election("after")
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(after.Start(ctx)).To(MatchError(nats.ErrConnectionClosed))
		f.close(s)
	})
}

// A server that was killed may have forgotten when the records of sessions expire: they are stored for ever.
func TestRecordsOfSessionsThatNeverExpireKeepNobodyOutAndAreRemoved(t *testing.T) {
	play(t, func(f *fixture) {
		js, ctx := f.js(), context.Background()
		for i := range session.MaxSessions + 10 {
			old := record.Record{Name: "old", Instance: fmt.Sprint("old-", i), Attempt: record.NewID(), Since: time.Now(), LeaseMs: 9000, Commitment: record.NewSecret().Commitment()}
			_, err := js.Publish(ctx, fmt.Sprint("$KV.S.s.old-", i), old.Encode(), jetstream.WithExpectLastSequencePerSubject(0))
			f.Expect(err).NotTo(HaveOccurred())
		}
		keeper, err := session.Open(ctx, js, config("keeper"))
		f.Expect(err).To(MatchError(session.ErrFull), "they are open, as far as anybody knows")
		f.Expect(keeper).To(BeNil())
		time.Sleep(5 * ttl)
		s := f.open("a")
		time.Sleep(15 * ttl)
		stream, err := js.Stream(ctx, "KV_S")
		f.Expect(err).NotTo(HaveOccurred())
		info, err := stream.Info(ctx)
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(info.State.Msgs).To(BeNumerically("<", 5))
		f.Expect(s.Status().Others).To(BeZero())
	})
}
