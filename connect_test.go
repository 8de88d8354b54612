package election_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/natstest"
)

// config is one for the server of a fleet, with the bucket and the TTL of all tests.
func config(name string) election.Config {
	return election.Config{Name: name, Key: key, Bucket: natstest.BucketName, TTL: ttl, Splay: new(time.Duration(0))}
}

// connected returns a connection to the fleet's server.
func (f *fleet) connected(cfg election.Config) *election.Connection {
	f.Helper()
	c, err := election.Connect(context.Background(), cfg, nats.InProcessServer(f.server))
	f.Expect(err).NotTo(HaveOccurred())
	f.Cleanup(c.Close)
	return c
}

func TestConnectReturnsWhatAnElectionNeeds(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		c := f.connected(config("a"))
		e, err := election.NewElection(c.Name, c.Key, c.Bucket, c.Options()...)
		f.Expect(err).NotTo(HaveOccurred())
		go func() { _ = e.Start(context.Background()) }()
		f.Cleanup(e.Stop)
		after(interval + time.Second)
		f.Expect(e.IsLeader()).To(BeTrue())
	})
}

func TestConnectionReconnectsForEverAndSendsNothingLateWhateverElseIsAsked(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		c, err := election.Connect(context.Background(), config("a"), nats.InProcessServer(f.server),
			nats.MaxReconnects(3), nats.ReconnectBufSize(1<<20), nats.Name("mine"))
		f.Expect(err).NotTo(HaveOccurred())
		f.Cleanup(c.Close)
		f.Expect(c.NATS.Opts.MaxReconnect).To(Equal(-1))
		f.Expect(c.NATS.Opts.ReconnectBufSize).To(Equal(-1))
		f.Expect(c.NATS.Opts.Name).To(Equal("mine"))
		f.server.Restart(f.T, time.Minute)
		after(time.Second)
		f.Expect(c.NATS.IsConnected()).To(BeTrue())
	})
}

func TestBucketThatIsMissingIsMadeOnceByAllWhoConnectTogether(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		js, err := jetstream.New(f.server.Connect(f.T))
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(js.DeleteKeyValue(context.Background(), natstest.BucketName)).To(Succeed())
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() { f.connected(config("a")) })
		}
		all.Wait()
		s, err := js.Stream(context.Background(), "KV_"+natstest.BucketName)
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(s.CachedInfo().Config.MaxAge).To(Equal(ttl))
		f.Expect(s.CachedInfo().Config.RePublish).NotTo(BeNil())
		f.Expect(s.CachedInfo().Config.SubjectDeleteMarkerTTL).To(Equal(time.Second))
	})
}

func TestBucketMadeByManyAtOnceKeepsTheSubjectOfTheFirst(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		subjects := map[string]bool{}
		var mu sync.Mutex
		var all sync.WaitGroup
		for range 20 {
			js, err := jetstream.New(f.server.Connect(f.T))
			f.Expect(err).NotTo(HaveOccurred())
			all.Go(func() {
				b, err := election.CreateBucket(context.Background(), js, election.BucketConfig{Name: "E", TTL: ttl, Storage: jetstream.MemoryStorage})
				f.Expect(err).NotTo(HaveOccurred())
				status, err := b.Status(context.Background())
				f.Expect(err).NotTo(HaveOccurred())
				mu.Lock()
				defer mu.Unlock()
				subjects[status.Config().RePublish.Destination] = true
			})
		}
		all.Wait()
		f.Expect(subjects).To(HaveLen(1))
	})
}

func TestBucketThatMustExistIsNotMade(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		cfg := config("a")
		cfg.Bucket, cfg.MustExist = "OTHER", true
		_, err := election.Connect(context.Background(), cfg, nats.InProcessServer(f.server))
		f.Expect(err).To(MatchError(election.ErrBucketUnsuitable))
		f.Expect(err).To(MatchError(ContainSubstring(`"OTHER"`)))
	})
}

func TestBucketThatIsUnfitIsRefusedWithEveryReasonAndLeftAsItIs(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		_, err := election.Connect(context.Background(), config("a"), nats.InProcessServer(f.server))
		f.Expect(err).To(MatchError(election.ErrBucketUnsuitable))
		f.Expect(err).To(MatchError(And(ContainSubstring("no-ttl"), ContainSubstring("history of 5"))))
		status, err := f.bucket.Status(context.Background())
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(status.History()).To(Equal(int64(5)))
	}, func(cfg *jetstream.KeyValueConfig) { cfg.TTL, cfg.History = 0, 5 })
}

func TestOptionsThatDoNotFitTheBucketAreRefused(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		cfg := config("a")
		cfg.Interval = new(ttl)
		_, err := election.Connect(context.Background(), cfg, nats.InProcessServer(f.server))
		f.Expect(err).To(MatchError(ContainSubstring("options-unfit")))
	})
}

func TestConnectWaitsForAServerThatIsNotThereYet(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		f.server.Stop()
		var log logged
		cfg := config("a")
		cfg.Logger = log.logger()
		result := make(chan error, 1)
		go func() {
			c, err := election.Connect(context.Background(), cfg, nats.InProcessServer(f.server))
			if err == nil {
				c.Close()
			}
			result <- err
		}()
		after(time.Hour)
		f.Expect(result).NotTo(Receive())
		f.Expect(log.count("waiting for it")).To(Equal(1))
		f.server.Resume(f.T)
		after(5 * time.Second)
		f.Expect(result).To(Receive(BeNil()))
	})
}

func TestConnectEndsWithItsContextAndSaysWhatItWaitedFor(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		f.server.Stop()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		cfg := config("a")
		cfg.URL = "nats://secret@nowhere:4222"
		_, err := election.Connect(ctx, cfg, nats.InProcessServer(f.server))
		f.Expect(err).To(MatchError(context.DeadlineExceeded))
		f.Expect(err).To(MatchError(And(ContainSubstring(natstest.BucketName), ContainSubstring("nats://nowhere:4222"), ContainSubstring(natstest.ErrStopped.Error()))))
		f.Expect(err.Error()).NotTo(ContainSubstring("secret"))
	})
}

func TestConfigThatCannotBeUsedIsRefusedBeforeAnythingIsSent(t *testing.T) {
	g := NewWithT(t)
	dialled := false
	_, err := election.Connect(context.Background(), election.Config{
		Name: " x", Key: "no key", URL: "nats://ok,ftp://secret@host", Creds: "/no/creds", NKey: "/no/nkey", TLSCert: "/no/cert", Password: "secret",
		Bucket: "no.bucket", TTL: time.Millisecond, Replicas: 2, StandDown: new(-time.Second),
	}, nats.SetCustomDialer(dialFunc(func() { dialled = true })))
	g.Expect(err).To(MatchError(election.ErrInvalidOption))
	for _, problem := range []string{`" x"`, `"no key"`, `"ftp://host"`, "/no/creds", "/no/nkey", "/no/cert", "TLSKey", "without a User", "no.bucket", "1ms", "2 replicas", "(-1s)"} {
		g.Expect(err.Error()).To(ContainSubstring(problem))
	}
	g.Expect(err.Error()).NotTo(ContainSubstring("secret"))
	g.Expect(dialled).To(BeFalse())
}

type dialFunc func()

func (d dialFunc) Dial(string, string) (net.Conn, error) { d(); return nil, errors.New("not dialled") }

// guarded runs a server that knows two users, one of which may do what a candidate of one election needs, and no more.
func guarded(t *testing.T) *server.Server {
	t.Helper()
	least := &server.Permissions{
		Publish:   &server.SubjectPermission{Allow: []string{"$JS.API.STREAM.INFO.KV_E", "$KV.E." + key, "$JS.API.DIRECT.GET.KV_E.$KV.E." + key}},
		Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX.>"}},
	}
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true, JetStream: true, StoreDir: t.TempDir(),
		Users: []*server.User{{Username: "admin", Password: "x"}, {Username: "least", Password: "x", Permissions: least}},
	})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	NewWithT(t).Expect(s.ReadyForConnections(10 * time.Second)).To(BeTrue())
	return s
}

func TestConnectTakesTheCredentialsThatItIsGivenAndTheLeastPermissionsOfACandidate(t *testing.T) {
	g, s := NewWithT(t), guarded(t)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	cfg := election.Config{Key: key, Bucket: "E", URL: s.ClientURL(), User: "admin", Password: "x"}
	for _, user := range []string{"admin", "least"} {
		cfg.User = user
		c, err := election.Connect(ctx, cfg)
		g.Expect(err).NotTo(HaveOccurred(), user)
		g.Expect(c.Name).NotTo(BeEmpty())
		c.Close()
	}
	cfg.Key = "another"
	_, err := election.Connect(ctx, cfg)
	g.Expect(err).To(MatchError(And(ContainSubstring("write-refused"), ContainSubstring("$KV.E.another"))))

	cfg.User, cfg.Password = "admin", "wrong"
	_, err = election.Connect(ctx, cfg)
	g.Expect(err).To(MatchError(nats.ErrAuthorization))
	g.Expect(ctx.Err()).NotTo(HaveOccurred(), "nothing was waited for")
	g.Expect(strings.Contains(err.Error(), "wrong")).To(BeFalse())
}

func TestContextOfNatscliIsUsedAndWhatIsSaidOverridesIt(t *testing.T) {
	g, s := NewWithT(t), guarded(t)
	home := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", home)
	writeFile(g, home, "nats/context/prod.json", `{"url":"`+s.ClientURL()+`","user":"nobody","password":"y"}`)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	cfg := election.Config{Key: key, Bucket: "E", Context: "prod"}
	_, err := election.Connect(ctx, cfg)
	g.Expect(err).To(MatchError(nats.ErrAuthorization))
	cfg.User, cfg.Password = "admin", "x"
	c, err := election.Connect(ctx, cfg)
	g.Expect(err).NotTo(HaveOccurred())
	c.Close()
	cfg.Context = "missing"
	_, err = election.Connect(ctx, cfg)
	g.Expect(err).To(MatchError(ContainSubstring(`"missing"`)))
}
