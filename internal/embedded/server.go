// Package embedded runs a NATS server with JetStream within this process, on the loopback interface only: to try things out, to
// rehearse, and for tests.
package embedded

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/natscampaign/election/internal/files"
)

const (
	Loopback     = "127.0.0.1"
	StartTimeout = 10 * time.Second
)

// Config says how to run an embedded server.
type Config struct {
	Port  int    // of the loopback interface; 0 is any that is free
	Store string // the folder in which data is kept; if it is empty, a temporary one
}

// Server is a NATS server with JetStream within this process, which listens on the loopback interface only.
type Server struct {
	Server *server.Server
	Folder string
	leave  func() // gives the folder up; one that is temporary is gone
}

// Start runs a server.
func Start(c Config) (*Server, error) {
	if c.Port < 0 || c.Port > 65535 {
		return nil, fmt.Errorf("--port %d: give a port between 1 and 65535, or 0 for any that is free", c.Port)
	}
	if err := checkPort(c.Port); err != nil {
		return nil, err
	}
	folder, leave, err := c.place()
	if err != nil {
		return nil, fmt.Errorf("the embedded server has no place to store its data: %w", err)
	}
	port := c.Port
	if port == 0 {
		port = server.RANDOM_PORT
	}
	s, err := server.NewServer(&server.Options{
		ServerName: "election-cli", Host: Loopback, Port: port,
		JetStream: true, StoreDir: folder, NoLog: true, NoSigs: true,
	})
	if err != nil {
		leave()
		return nil, fmt.Errorf("the embedded server does not start: %w", err)
	}
	e := &Server{Server: s, Folder: folder, leave: leave}
	s.Start()
	if !s.ReadyForConnections(StartTimeout) || !s.JetStreamEnabled() {
		e.Stop()
		return nil, fmt.Errorf("the embedded server did not get ready within %v", StartTimeout)
	}
	return e, nil
}

// place returns the folder for the server's data, and what gives it up. One that is kept is locked, as two servers on the
// same data ruin it.
func (c Config) place() (folder string, leave func(), err error) {
	if c.Store == "" {
		folder, err = os.MkdirTemp("", "election-cli-")
		return folder, func() { _ = os.RemoveAll(folder) }, err
	}
	if folder, err = filepath.Abs(c.Store); err != nil {
		return "", nil, err
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return "", nil, fmt.Errorf("--store: %w", err)
	}
	leave, err = files.Lock(filepath.Join(folder, "election-cli.lock"))
	if errors.Is(err, files.ErrLocked) {
		err = fmt.Errorf("--store %s: another server uses it: stop that first, or name another folder", c.Store)
	}
	return folder, leave, err
}

// checkPort finds out beforehand what the server would only log.
func checkPort(port int) error {
	l, err := net.Listen("tcp", net.JoinHostPort(Loopback, strconv.Itoa(port)))
	if err != nil {
		return fmt.Errorf("--port %d cannot be used: %w; give another, or 0 for any that is free", port, err)
	}
	return l.Close()
}

// URL returns where the server listens.
func (e *Server) URL() string { return e.Server.ClientURL() }

// Stop shuts the server down; what it stored in a temporary folder is gone.
func (e *Server) Stop() {
	e.Server.Shutdown()
	e.Server.WaitForShutdown()
	e.leave()
}
