//go:build linux || darwin

package witness

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	. "github.com/onsi/gomega"
)

// messages receives each line of a log.
type messages chan string

func (m messages) Write(b []byte) (int, error) {
	m <- string(b)
	return len(b), nil
}

func TestWitnessOfAHostGoesOnWhenAProgramCannotConnect(t *testing.T) {
	g := NewWithT(t)
	folder, err := os.MkdirTemp("/tmp", "witness-") // the path of a socket must be short
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	path := filepath.Join(folder, "socket")
	socket, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(socket.SetDeadline(time.Unix(1, 0))).To(Succeed()) // so that the next program cannot
	log := make(messages, 100)
	dial := func(context.Context) (*nats.Conn, error) { return nil, errors.New("there is no server") }
	k := NewKeeper(dial, slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})), nil)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- k.Serve(ctx, socket) }()
	awaits := func(text string) {
		g.Eventually(log).WithTimeout(20 * time.Second).Should(Receive(ContainSubstring(text)))
	}
	awaits("A program cannot connect")
	g.Expect(socket.SetDeadline(time.Time{})).To(Succeed())

	conn, err := net.Dial("unix", path)
	g.Expect(err).NotTo(HaveOccurred())
	term := Term{Bucket: "b", Key: "key", Name: "a", Instance: "a.1", LeaseMs: 1000}
	term.Secret[0] = 1
	g.Expect(json.NewEncoder(conn).Encode(message{Began: &term})).To(Succeed())
	awaits("Term is watched")
	c := term.Commitment()
	g.Expect(json.NewEncoder(conn).Encode(message{Over: &c})).To(Succeed())
	g.Expect(conn.Close()).To(Succeed())
	cancel()
	g.Eventually(served).WithTimeout(20 * time.Second).Should(Receive(BeNil()))
	g.Expect(path).NotTo(BeAnExistingFile())
}
