package natstest

import (
	"log"
	"os"

	"github.com/nats-io/nats-server/v2/server"
)

// RunServer runs a server with JetStream within this process, for an example, which has no test to fail: an error ends the process. The
// server accepts connections by nats.InProcessServer only, and shutdown removes what it stored.
func RunServer() (s *server.Server, shutdown func()) {
	dir, err := os.MkdirTemp("", "election-example-")
	if err != nil {
		log.Fatal(err)
	}
	s, err = server.NewServer(&server.Options{JetStream: true, DontListen: true, StoreDir: dir, NoLog: true, NoSigs: true})
	if err != nil {
		log.Fatal(err)
	}
	s.Start()
	if !s.ReadyForConnections(patience) {
		log.Fatalf("natstest: the server is not ready after %v", patience)
	}
	return s, func() {
		s.Shutdown()
		s.WaitForShutdown()
		_ = os.RemoveAll(dir)
	}
}
