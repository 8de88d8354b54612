package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

const (
	loopback       = "127.0.0.1"
	serverPatience = 10 * time.Second
)

// embedded is a NATS server with JetStream within this process, which listens on the loopback interface only and
// keeps what it stores in a folder that is gone when it stops.
type embedded struct {
	server *server.Server
	folder string
}

// startEmbedded runs a server on the given port of the loopback interface, or on a free one if it is 0.
func startEmbedded(port int) (*embedded, error) {
	if port < 0 || port > 65535 {
		return nil, fmt.Errorf("--port %d: give a port between 1 and 65535, or 0 for any that is free", port)
	}
	if err := checkPort(port); err != nil {
		return nil, err
	}
	folder, err := os.MkdirTemp("", "election-cli-")
	if err != nil {
		return nil, fmt.Errorf("the embedded server has no place to store its data: %w", err)
	}
	if port == 0 {
		port = server.RANDOM_PORT
	}
	s, err := server.NewServer(&server.Options{
		ServerName: "election-cli", Host: loopback, Port: port,
		JetStream: true, StoreDir: folder, NoLog: true, NoSigs: true,
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("the embedded server does not start: %w", err), os.RemoveAll(folder))
	}
	e := &embedded{server: s, folder: folder}
	s.Start()
	if !s.ReadyForConnections(serverPatience) || !s.JetStreamEnabled() {
		e.stop()
		return nil, fmt.Errorf("the embedded server did not get ready within %v", serverPatience)
	}
	return e, nil
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

// stop shuts the server down and removes what it stored.
func (e *embedded) stop() {
	e.server.Shutdown()
	e.server.WaitForShutdown()
	_ = os.RemoveAll(e.folder)
}
