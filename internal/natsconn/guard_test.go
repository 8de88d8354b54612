package natsconn_test

import (
	"bufio"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/natsconn"
	"github.com/natscampaign/election/internal/test/natstest"
)

// slowServer is a server as it is on an overloaded host: it takes its time to greet, and longer to answer a ping on the first connection.
type slowServer struct {
	greeting, pong atomic.Int64 // how long each takes
	connections    atomic.Int64
}

func (s *slowServer) Dial(_, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	first := s.connections.Add(1) == 1
	go func() {
		defer func() { _ = server.Close() }()
		time.Sleep(time.Duration(s.greeting.Load()))
		fmt.Fprint(server, `INFO {"server_id":"slow","max_payload":1048576,"headers":true}`+"\r\n")
		for lines := bufio.NewScanner(server); lines.Scan(); {
			if strings.HasPrefix(lines.Text(), "PING") {
				delay := time.Duration(0)
				if first {
					delay = time.Duration(s.pong.Load())
				}
				time.AfterFunc(delay, func() { fmt.Fprint(server, "PONG\r\n") })
			}
		}
	}()
	return client, nil
}

func TestConnectionIsNotMadeAgainWhereAnotherIsSlowToo(t *testing.T) {
	for name, c := range map[string]struct {
		greeting, pong time.Duration
		again          bool
	}{
		"the greeting takes 400 ms, the answer to a ping 2.2 s": {400 * time.Millisecond, 2200 * time.Millisecond, false},
		"the greeting takes no time, the answer to a ping 5 s":  {0, 5 * time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			natstest.Bubble(t, func(t *testing.T) {
				g := NewWithT(t)
				var s slowServer
				nc, err := nats.Connect("nats://127.0.0.1:4222", nats.SetCustomDialer(&s), nats.PingInterval(time.Hour))
				g.Expect(err).NotTo(HaveOccurred())
				defer nc.Close()
				guard := natsconn.NewGuard(nc, true, slog.New(slog.DiscardHandler))
				defer guard.Leave()
				s.greeting.Store(int64(c.greeting))
				s.pong.Store(int64(c.pong))
				guard.Suspect(0)
				time.Sleep(20 * time.Second)
				g.Expect(nc.Stats().Reconnects > 0).To(Equal(c.again))
			})
		})
	}
}
