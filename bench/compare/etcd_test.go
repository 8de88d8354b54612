//go:build linux

package compare

import (
	"context"
	"net/url"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"
)

// etcdCandidate campaigns with a session of its own. It leads from the return of Campaign until Session.Done; an orderly stop
// resigns, and closes the session.
type etcdCandidate struct {
	place
	client *clientv3.Client
	ttl    time.Duration
	sent   *sentMessages
}

// sentMessages counts what a gRPC client sends, in streams too.
type sentMessages struct{ n atomic.Int64 }

func (s *sentMessages) HandleRPC(_ context.Context, what stats.RPCStats) {
	if _, ok := what.(*stats.OutPayload); ok {
		s.n.Add(1)
	}
}
func (*sentMessages) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (*sentMessages) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (*sentMessages) HandleConn(context.Context, stats.ConnStats)                       {}

func startEtcd(s *stage) {
	c := embed.NewConfig()
	client, peer := url.URL{Scheme: "http", Host: s.freeAddress()}, url.URL{Scheme: "http", Host: s.freeAddress()}
	c.Name, c.Dir = "m1", s.TempDir()
	c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	c.ListenPeerUrls, c.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	c.InitialCluster = "m1=" + peer.String()
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	e, err := embed.StartEtcd(c)
	s.check(err)
	s.Cleanup(e.Close)
	<-e.Server.ReadyNotify()
	s.endpoint = client.Host
}

func newEtcd(_ context.Context, p place, c *comparison) (candidate, error) {
	sent := &sentMessages{}
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{p.endpoint}, DialTimeout: 5 * time.Second, Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithStatsHandler(sent)},
	})
	return &etcdCandidate{p, client, c.ttl, sent}, err
}

func (c *etcdCandidate) campaign(ctx context.Context, report func(bool)) error {
	session, err := concurrency.NewSession(c.client, concurrency.WithTTL(int(c.ttl/time.Second)))
	if err != nil {
		return err
	}
	defer session.Close()
	e := concurrency.NewElection(session, "/"+c.key)
	if err := e.Campaign(ctx, c.name); err != nil {
		return err
	}
	report(true)
	select {
	case <-session.Done():
		report(false)
		return nil
	case <-ctx.Done():
		report(false)
		return e.Resign(context.Background())
	}
}

func (c *etcdCandidate) requests() int64 { return c.sent.n.Load() }
