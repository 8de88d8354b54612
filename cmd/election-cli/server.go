package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

const (
	loopback       = "127.0.0.1"
	serverPatience = 10 * time.Second
)

// embeddedConfig says how to run an embedded server.
type embeddedConfig struct {
	port  int    // of the loopback interface; 0 is any that is free
	store string // the folder in which data is kept; if it is empty, a temporary one
}

// embedded is a NATS server with JetStream within this process, which listens on the loopback interface only.
type embedded struct {
	server *server.Server
	folder string
	leave  func() // gives the folder up; one that is temporary is gone
}

// startEmbedded runs a server.
func startEmbedded(c embeddedConfig) (*embedded, error) {
	if c.port < 0 || c.port > 65535 {
		return nil, fmt.Errorf("--port %d: give a port between 1 and 65535, or 0 for any that is free", c.port)
	}
	if err := checkPort(c.port); err != nil {
		return nil, err
	}
	folder, leave, err := c.place()
	if err != nil {
		return nil, fmt.Errorf("the embedded server has no place to store its data: %w", err)
	}
	port := c.port
	if port == 0 {
		port = server.RANDOM_PORT
	}
	s, err := server.NewServer(&server.Options{
		ServerName: "election-cli", Host: loopback, Port: port,
		JetStream: true, StoreDir: folder, NoLog: true, NoSigs: true,
	})
	if err != nil {
		leave()
		return nil, fmt.Errorf("the embedded server does not start: %w", err)
	}
	e := &embedded{server: s, folder: folder, leave: leave}
	s.Start()
	if !s.ReadyForConnections(serverPatience) || !s.JetStreamEnabled() {
		e.stop()
		return nil, fmt.Errorf("the embedded server did not get ready within %v", serverPatience)
	}
	return e, nil
}

// place returns the folder for the server's data, and what gives it up. One that is kept is locked, as two servers on the
// same data ruin it.
func (c embeddedConfig) place() (folder string, leave func(), err error) {
	if c.store == "" {
		folder, err = os.MkdirTemp("", "election-cli-")
		return folder, func() { _ = os.RemoveAll(folder) }, err
	}
	if folder, err = filepath.Abs(c.store); err != nil {
		return "", nil, err
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return "", nil, fmt.Errorf("--store: %w", err)
	}
	leave, err = lockFile(filepath.Join(folder, "election-cli.lock"))
	if errors.Is(err, errLocked) {
		err = fmt.Errorf("--store %s: another server uses it: stop that first, or name another folder", c.store)
	}
	return folder, leave, err
}

// checkPort finds out beforehand what the server would only log.
func checkPort(port int) error {
	l, err := net.Listen("tcp", net.JoinHostPort(loopback, strconv.Itoa(port)))
	if err != nil {
		return fmt.Errorf("--port %d cannot be used: %w; give another, or 0 for any that is free", port, err)
	}
	return l.Close()
}

// url returns where the server listens.
func (e *embedded) url() string { return e.server.ClientURL() }

// flags returns how to connect to the server, whatever is selected for others.
func (e *embedded) flags(timeout time.Duration) connFlags {
	return connFlags{server: e.url(), noContext: true, timeout: timeout}
}

// stop shuts the server down; what it stored in a temporary folder is gone.
func (e *embedded) stop() {
	e.server.Shutdown()
	e.server.WaitForShutdown()
	e.leave()
}
