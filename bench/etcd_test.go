package bench

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/natscampaign/election/internal/test/natstest"
)

// etcd is a number of members within this process.
type etcd struct {
	testing.TB
	endpoints []string
	fast      bool // it does not sync its writes to the disk
}

// startEtcd runs so many members with the defaults of etcd, which syncs every write to the disk; with fast it leaves that
// to the operating system, as a NATS server does.
func startEtcd(tb testing.TB, members int, fast bool) *etcd {
	tb.Helper()
	e := &etcd{TB: tb, fast: fast}
	var configs []*embed.Config
	var cluster []string
	for i := range members {
		c := embed.NewConfig()
		client, peer := e.freeURL(), e.freeURL()
		c.Name, c.Dir, c.UnsafeNoFsync = fmt.Sprintf("m%d", i+1), tb.TempDir(), fast
		c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
		c.ListenPeerUrls, c.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
		c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
		cluster = append(cluster, c.Name+"="+peer.String())
		configs = append(configs, c)
		e.endpoints = append(e.endpoints, client.Host)
	}
	var running []*embed.Etcd
	for _, c := range configs {
		c.InitialCluster = strings.Join(cluster, ",")
		s, err := embed.StartEtcd(c)
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(s.Close)
		running = append(running, s)
	}
	for _, s := range running {
		<-s.Server.ReadyNotify()
	}
	return e
}

func (e *etcd) freeURL() url.URL {
	e.Helper()
	return url.URL{Scheme: "http", Host: fmt.Sprintf("127.0.0.1:%d", natstest.FreePort(e))}
}

// client opens a connection to all members.
func (e *etcd) client() *clientv3.Client {
	e.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: e.endpoints, Logger: zap.NewNop()})
	if err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() { _ = c.Close() })
	return c
}

// session begins a session over the connection, with a lease of so many seconds.
func (e *etcd) session(c *clientv3.Client, seconds int) *concurrency.Session {
	e.Helper()
	s, err := concurrency.NewSession(c, concurrency.WithTTL(seconds))
	if err != nil {
		e.Fatal(err)
	}
	return s
}
