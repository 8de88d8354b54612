package connect_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/connect"
	"github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/natstest"
)

func TestMain(m *testing.M) { natstest.VerifyTestMain(m) }

// config returns a configuration for the fleet's server, without a splay.
func config() connect.Config {
	return connect.Config{Name: "a", Key: fleettest.Key, Bucket: natstest.BucketName, TTL: fleettest.TTL, Splay: new(time.Duration(0))}
}

// connected returns a connection to the fleet's server.
func connected(f *fleettest.Fleet, cfg connect.Config) *connect.Connection {
	f.Helper()
	c, err := connect.Connect(context.Background(), cfg, nats.InProcessServer(f.Server))
	f.Expect(err).NotTo(HaveOccurred())
	f.Cleanup(c.Close)
	return c
}

// jetStream returns a JetStream context of the fleet's server.
func jetStream(f *fleettest.Fleet) jetstream.JetStream {
	f.Helper()
	js := f.JetStream()
	return js
}

// buffer is a bytes.Buffer for loggers.
type buffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

func (b *buffer) count(text string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Count(b.String(), text)
}

// serverWithUsers runs a server with two users: admin, and least, which has only the permissions that a candidate of one election needs.
func serverWithUsers(t *testing.T) *server.Server {
	t.Helper()
	least := &server.Permissions{
		Publish:   &server.SubjectPermission{Allow: []string{"$JS.API.STREAM.INFO.KV_E", "$KV.E." + fleettest.Key, "$JS.API.DIRECT.GET.KV_E.$KV.E." + fleettest.Key}},
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

type dialFunc func()

func (d dialFunc) Dial(string, string) (net.Conn, error) { d(); return nil, errors.New("not dialled") }

func writeFile(g *WithT, dir, name, content string) {
	path := filepath.Join(dir, name)
	g.Expect(os.MkdirAll(filepath.Dir(path), 0o700)).To(Succeed())
	g.Expect(os.WriteFile(path, []byte(content), 0o600)).To(Succeed())
}
