package connect_test

import (
	"cmp"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/connect"
	"github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/natstest"
)

func TestConnectReturnsWhatAnElectionNeeds(t *testing.T) {
	fleettest.Run(t, func(f *fleettest.Fleet) {
		c := connected(f, config())
		e, err := election.NewElection(c.Name, c.Key, c.Bucket, c.Options()...)
		f.Expect(err).NotTo(HaveOccurred())
		go func() { _ = e.Start(context.Background()) }()
		f.Cleanup(func() { _ = e.Shutdown(context.Background()) })
		fleettest.After(fleettest.Interval + time.Second)
		f.Expect(e.IsLeader()).To(BeTrue())
	})
}

func TestConnectReceivesAnswersBelowItsInboxPrefix(t *testing.T) {
	fleettest.RunGuarded(t, `authorization: { users: [
		{user: all, password: x}
		{user: web, password: x, permissions: {publish: [">"], subscribe: ["_INBOX_web.>"]}}
	] }, no_auth_user: all`, func(f *fleettest.Fleet) {
		cfg := config()
		cfg.User, cfg.Password, cfg.InboxPrefix = "web", "x", "_INBOX_web"
		c := connected(f, cfg)
		f.Expect(c.NATS.NewInbox()).To(HavePrefix("_INBOX_web."))
	})
}

func TestLeadersRenewAfterAThirdOfTheTTLUnlessChoriaMayCampaignToo(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*connect.Config)
		want   time.Duration
	}{
		"by default":                  {func(*connect.Config) {}, fleettest.TTL / 4},
		"with an interval":            {func(c *connect.Config) { c.Interval = new(time.Second) }, time.Second},
		"in a bucket made for Choria": {func(c *connect.Config) { c.Bucket, c.ChoriaCompatible = "SHARED", true }, fleettest.TTL * 3 / 4},
	} {
		t.Run(name, func(t *testing.T) {
			fleettest.Run(t, func(f *fleettest.Fleet) {
				cfg := config()
				c.change(&cfg)
				conn := connected(f, cfg)
				e, err := election.NewElection(conn.Name, conn.Key, conn.Bucket, conn.Options()...)
				f.Expect(err).NotTo(HaveOccurred())
				go func() { _ = e.Start(context.Background()) }()
				f.Cleanup(func() { _ = e.Shutdown(context.Background()) })
				fleettest.After(fleettest.Interval + time.Second) // the stand-down, for nothing is known of a leader before
				leader, err := e.Leader(context.Background())
				f.Expect(err).NotTo(HaveOccurred())
				f.Expect(leader.Interval).To(BeNumerically("~", c.want, time.Millisecond))
				f.Expect(e.IsLeader()).To(BeTrue())
			})
		})
	}
}

func TestExtraOptionsNeitherLimitReconnectsNorBufferWrites(t *testing.T) {
	fleettest.Run(t, func(f *fleettest.Fleet) {
		c, err := connect.Connect(context.Background(), config(), nats.InProcessServer(f.Server),
			nats.NoReconnect(), nats.MaxReconnects(3), nats.ReconnectBufSize(1<<20), nats.Name("mine"))
		f.Expect(err).NotTo(HaveOccurred())
		f.Cleanup(c.Close)
		f.Expect(c.NATS.Opts.MaxReconnect).To(Equal(-1))
		f.Expect(c.NATS.Opts.ReconnectBufSize).To(Equal(-1))
		f.Expect(c.NATS.Opts.Name).To(Equal("mine"))
		f.Server.Restart(f.T, time.Minute)
		fleettest.After(time.Second)
		f.Expect(c.NATS.IsConnected()).To(BeTrue())
	})
}

func TestConnectLogsWhichServerItReached(t *testing.T) {
	fleettest.Run(t, func(f *fleettest.Fleet) {
		var log buffer
		cfg := config()
		cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
		c := connected(f, cfg)
		synctest.Wait()
		f.Expect(log.count("msg=Connected bucket=" + natstest.BucketName + " server=" + c.NATS.ConnectedUrl() + " version=" + c.NATS.ConnectedServerVersion())).To(Equal(1))
		f.Server.Restart(f.T, time.Second)
		fleettest.After(time.Minute)
		f.Expect(log.count("msg=Reconnected bucket=" + natstest.BucketName + " server=" + c.NATS.ConnectedUrl())).To(Equal(1))
		f.Expect(log.count("msg=Connected")).To(Equal(1))
	})
}

func TestMissingBucketIsCreatedOnceByManyConnectsAtTheSameTime(t *testing.T) {
	natstest.SkipIfShort(t)
	fleettest.Run(t, func(f *fleettest.Fleet) {
		js := jetStream(f)
		f.Expect(js.DeleteKeyValue(context.Background(), natstest.BucketName)).To(Succeed())
		var all sync.WaitGroup
		var log buffer
		cfg := config()
		cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
		for range 20 {
			all.Go(func() { connected(f, cfg) })
		}
		all.Wait()
		f.Expect(log.count("Bucket created")).To(Equal(1))
		s, err := js.Stream(context.Background(), "KV_"+natstest.BucketName)
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(s.CachedInfo().Config.MaxAge).To(Equal(fleettest.TTL))
		f.Expect(s.CachedInfo().Config.RePublish).NotTo(BeNil())
		f.Expect(s.CachedInfo().Config.SubjectDeleteMarkerTTL).To(Equal(time.Second))
	})
}

func TestBucketThatConnectMakesHasATTLOf15SecondsUnlessTheConfigGivesOne(t *testing.T) {
	natstest.SkipIfShort(t)
	fleettest.Run(t, func(f *fleettest.Fleet) {
		for bucket, ttl := range map[string]time.Duration{"DEFAULT": 0, "GIVEN": 20 * time.Second} {
			cfg := config()
			cfg.Bucket, cfg.TTL = bucket, ttl
			status, err := connected(f, cfg).Bucket.Status(context.Background())
			f.Expect(err).NotTo(HaveOccurred())
			f.Expect(status.TTL()).To(Equal(cmp.Or(ttl, 15*time.Second)))
		}
	})
}

func TestBucketCreatedByManyAtTheSameTimeKeepsTheFirstSubject(t *testing.T) {
	fleettest.Run(t, func(f *fleettest.Fleet) {
		subjects := map[string]bool{}
		var mu sync.Mutex
		var all sync.WaitGroup
		for range 20 {
			js := jetStream(f)
			all.Go(func() {
				b, err := election.CreateBucket(context.Background(), js, election.BucketConfig{Name: "E", TTL: fleettest.TTL, Storage: jetstream.MemoryStorage})
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

func TestBucketThatMustExistIsNotCreated(t *testing.T) {
	fleettest.Run(t, func(f *fleettest.Fleet) {
		cfg := config()
		cfg.Bucket, cfg.MustExist = "OTHER", true
		_, err := connect.Connect(context.Background(), cfg, nats.InProcessServer(f.Server))
		f.Expect(err).To(MatchError(election.ErrBucketUnsuitable))
		f.Expect(err).To(MatchError(ContainSubstring(`"OTHER"`)))
	})
}

func TestUnfitBucketIsRefusedWithEveryReasonAndNotChanged(t *testing.T) {
	fleettest.Run(t, func(f *fleettest.Fleet) {
		_, err := connect.Connect(context.Background(), config(), nats.InProcessServer(f.Server))
		f.Expect(err).To(MatchError(election.ErrBucketUnsuitable))
		f.Expect(err).To(MatchError(And(ContainSubstring("no-ttl"), ContainSubstring("history of 5"))))
		status, err := f.Bucket.Status(context.Background())
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(status.History()).To(Equal(int64(5)))
	}, func(cfg *jetstream.KeyValueConfig) { cfg.TTL, cfg.History = 0, 5 })
}

func TestOptionsThatDoNotFitTheBucketAreRefused(t *testing.T) {
	fleettest.Run(t, func(f *fleettest.Fleet) {
		cfg := config()
		cfg.Interval = new(fleettest.TTL)
		_, err := connect.Connect(context.Background(), cfg, nats.InProcessServer(f.Server))
		f.Expect(err).To(MatchError(And(ContainSubstring("options-unfit"), ContainSubstring("TTL of 10s"), ContainSubstring("interval of 10s"), ContainSubstring("use 10ms to 8.9s"))))
	})
}

func TestConnectWaitsForAServerThatIsDown(t *testing.T) {
	natstest.SkipIfShort(t)
	fleettest.Run(t, func(f *fleettest.Fleet) {
		f.Server.Stop()
		var log buffer
		cfg := config()
		cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
		result := make(chan error, 1)
		go func() {
			c, err := connect.Connect(context.Background(), cfg, nats.InProcessServer(f.Server))
			if err == nil {
				c.Close()
			}
			result <- err
		}()
		fleettest.After(time.Hour)
		f.Expect(result).NotTo(Receive())
		f.Expect(log.count("waiting for it")).To(Equal(1))
		f.Server.Resume(f.T)
		fleettest.After(5 * time.Second)
		f.Expect(result).To(Receive(BeNil()))
	})
}

func TestConnectEndsWithItsContextAndNamesWhatItWaitedFor(t *testing.T) {
	fleettest.Run(t, func(f *fleettest.Fleet) {
		f.Server.Stop()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		cfg := config()
		cfg.URL = "nats://secret@nowhere:4222"
		_, err := connect.Connect(ctx, cfg, nats.InProcessServer(f.Server))
		f.Expect(err).To(MatchError(context.DeadlineExceeded))
		f.Expect(err).To(MatchError(And(ContainSubstring(natstest.BucketName), ContainSubstring("nats://nowhere:4222"), ContainSubstring(natstest.ErrStopped.Error()))))
		f.Expect(err.Error()).NotTo(ContainSubstring("secret"))
	})
}

func TestAnInterruptBeforeTheFirstConnectionIsCanceledAndSaysEachCauseOnce(t *testing.T) {
	g := NewWithT(t)
	ctx, interrupt := context.WithCancel(context.Background())
	log := writer(interrupt) // when it is logged that the bucket is waited for
	_, err := connect.Connect(ctx, connect.Config{URL: "nats://127.0.0.1:1", Logger: slog.New(slog.NewTextHandler(log, nil))})
	g.Expect(err).To(MatchError(context.Canceled))
	g.Expect(err).To(MatchError(`waiting for bucket "LEADER_ELECTION" on nats://127.0.0.1:1: context canceled: dial tcp 127.0.0.1:1: connect: connection refused: ` +
		"start the server there, or correct host and port in Config.URL (NATS_URL) or the context"))
}

// writer is called with each line.
type writer func()

func (w writer) Write(b []byte) (int, error) {
	w()
	return len(b), nil
}

func TestInvalidConfigIsRefusedBeforeAnythingIsSent(t *testing.T) {
	g := NewWithT(t)
	dialled := false
	_, err := connect.Connect(context.Background(), connect.Config{
		Name: " x", Key: "no key", URL: "nats://ok,ftp://secret@host", Creds: "/no/creds", NKey: "/no/nkey", TLSCert: "/no/cert", Password: "secret",
		Bucket: "no.bucket", TTL: time.Millisecond, Replicas: 2, StandDown: new(-time.Second),
	}, nats.SetCustomDialer(dialFunc(func() { dialled = true })))
	g.Expect(err).To(MatchError(election.ErrInvalidOption))
	for _, problem := range []string{`" x"`, `"no key"`, `"ftp://host"`, "/no/creds", "/no/nkey", "/no/cert", "TLSKey", "needs User", "no.bucket", "1ms", "2 replicas", "(-1s)"} {
		g.Expect(err.Error()).To(ContainSubstring(problem))
	}
	g.Expect(err.Error()).NotTo(ContainSubstring("secret"))
	g.Expect(dialled).To(BeFalse())
}

func TestConnectUsesTheCredentialsAndNeedsOnlyThePermissionsOfACandidate(t *testing.T) {
	if testing.Short() {
		t.Skip("leases run out in real time: not with -short")
	}
	g, s := NewWithT(t), serverWithUsers(t)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	cfg := connect.Config{Key: fleettest.Key, Bucket: "E", URL: s.ClientURL(), User: "admin", Password: "x"}
	for _, user := range []string{"admin", "least"} {
		cfg.User = user
		c, err := connect.Connect(ctx, cfg)
		g.Expect(err).NotTo(HaveOccurred(), user)
		g.Expect(c.Name).NotTo(BeEmpty())
		c.Close()
	}
	cfg.Key = "another"
	_, err := connect.Connect(ctx, cfg)
	g.Expect(err).To(MatchError(And(ContainSubstring("write-refused"), ContainSubstring("$KV.E.another"))))

	cfg.User, cfg.Password = "admin", "wrong"
	_, err = connect.Connect(ctx, cfg)
	g.Expect(err).To(MatchError(nats.ErrAuthorization))
	g.Expect(ctx.Err()).NotTo(HaveOccurred(), "nothing was waited for")
	g.Expect(strings.Contains(err.Error(), "wrong")).To(BeFalse())
}

func TestConfigOverridesTheContextOfNatscli(t *testing.T) {
	natstest.SkipIfShort(t)
	g, s := NewWithT(t), serverWithUsers(t)
	home := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", home)
	writeFile(g, home, "nats/context/prod.json", `{"url":"`+s.ClientURL()+`","user":"nobody","password":"y"}`)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	cfg := connect.Config{Key: fleettest.Key, Bucket: "E", Context: "prod"}
	_, err := connect.Connect(ctx, cfg)
	g.Expect(err).To(MatchError(nats.ErrAuthorization))
	cfg.User, cfg.Password = "admin", "x"
	c, err := connect.Connect(ctx, cfg)
	g.Expect(err).NotTo(HaveOccurred())
	c.Close()
	cfg.Context = "missing"
	_, err = connect.Connect(ctx, cfg)
	g.Expect(err).To(MatchError(ContainSubstring(`"missing"`)))
}

func TestSettingsThatAnExistingBucketDiffersFromAreLogged(t *testing.T) {
	fleettest.Run(t, func(f *fleettest.Fleet) {
		logged := func(change func(*connect.Config)) string {
			var log buffer
			cfg := config()
			cfg.TTL, cfg.Logger = 0, slog.New(slog.NewTextHandler(&log, nil))
			change(&cfg)
			c, err := connect.Connect(context.Background(), cfg, nats.InProcessServer(f.Server))
			f.Expect(err).NotTo(HaveOccurred())
			c.Close()
			status, err := f.Bucket.Status(context.Background())
			f.Expect(err).NotTo(HaveOccurred())
			f.Expect(status.TTL()).To(Equal(fleettest.TTL))
			return log.String()
		}
		const differs = "another setting"
		f.Expect(logged(func(*connect.Config) {})).NotTo(ContainSubstring(differs), "nothing was set")
		f.Expect(logged(func(c *connect.Config) { c.TTL, c.Replicas = fleettest.TTL, 1 })).NotTo(ContainSubstring(differs))
		log := logged(func(c *connect.Config) {
			c.TTL, c.Replicas, c.MaxBytes, c.ChoriaCompatible = 20*time.Second, 3, 1<<20, true
		})
		f.Expect(log).To(And(ContainSubstring("setting=TTL configured=20s actual=10s"), ContainSubstring("setting=Replicas configured=3 actual=1"),
			ContainSubstring("setting=MaxBytes configured=1048576 actual=0"), ContainSubstring("setting=ChoriaCompatible")))
	})
}
