// Package embedded runs a NATS server with JetStream in this process, for experiments, drills and tests.
//
// The server listens on the loopback interface only, without authentication or TLS. It deletes its data when it stops, unless the caller
// names a folder for the data. The data of a server that was killed is deleted when the next one starts. Two servers never use the same
// folder at once.
package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/natscampaign/election/internal/host"
)

const (
	// Loopback is the address that an embedded server listens on.
	Loopback = "127.0.0.1"
	// StartTimeout is how long a server may take until it is ready.
	StartTimeout = 10 * time.Second
)

// Config is the configuration of an embedded server.
type Config struct {
	Port  int    // on the loopback interface; 0 selects a free port
	Store string // the folder for the data; if empty, a temporary folder that is deleted when the server stops, or when the next one starts

	Log *slog.Logger // receives the server's own warnings and errors; nil drops them
}

// Server is a running embedded server.
type Server struct {
	Server *server.Server
	Folder string // the folder with the data

	releaseFolder func()
}

// Start starts a server, and returns when the server is ready. Errors name the flags --port and --store.
func Start(c Config) (*Server, error) {
	if c.Port < 0 || c.Port > 65535 {
		return nil, fmt.Errorf("--port %d: give a port between 1 and 65535, or 0 for a free port", c.Port)
	}
	if c.Port != 0 && host.PortInUse(c.Port) { // before the folder is made
		return nil, c.cannotListen("address already in use")
	}
	folder, releaseFolder, err := c.prepareFolder()
	if err != nil {
		return nil, fmt.Errorf("the embedded server cannot store its data: %w", err)
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
		releaseFolder()
		return nil, fmt.Errorf("the embedded server cannot start: %w", err)
	}
	log := &serverLog{to: c.Log}
	s.SetLogger(log, false, false)
	e := &Server{Server: s, Folder: folder, releaseFolder: releaseFolder}
	s.Start()
	switch failure := log.failure.Load(); {
	case failure != nil && strings.HasPrefix(*failure, "Error listening on port"):
		err = c.cannotListen(*failure)
	case failure != nil:
		err = fmt.Errorf("the embedded server cannot start with its data in %s: %s", folder, *failure)
	case !s.ReadyForConnections(StartTimeout) || !s.JetStreamEnabled():
		err = fmt.Errorf("the embedded server was not ready within %v", StartTimeout)
	}
	if err != nil {
		e.Stop()
		return nil, err
	}
	return e, nil
}

// cannotListen returns the error of a server that cannot listen on its port.
func (c Config) cannotListen(why string) error {
	return fmt.Errorf("--port %d: cannot listen: %s; give another port, or 0 for a free port", c.Port, why)
}

// prepareFolder returns the folder for the data, and a function that releases the folder. It locks a folder of the caller, because two
// servers on the same data would destroy it. Releasing a temporary folder deletes the folder.
func (c Config) prepareFolder() (folder string, release func(), err error) {
	if c.Store == "" {
		temp, err := host.NewTemp(host.ServerPrefix)
		if err != nil {
			return "", nil, err
		}
		return temp.Path, temp.Remove, nil
	}
	if folder, err = filepath.Abs(c.Store); err != nil {
		return "", nil, err
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return "", nil, fmt.Errorf("--store: %w", err)
	}
	release, err = host.LockFile(filepath.Join(folder, host.LockName))
	if errors.Is(err, host.ErrLocked) {
		err = fmt.Errorf("--store %s: another server uses this folder: stop that server, or give another folder", c.Store)
	}
	return folder, release, err
}

// healthInterval is the time between two looks at the health of the server.
const healthInterval = time.Second

// WatchHealth logs when the server turns unhealthy, and when it is well again, until ctx ends. A server that could not write to its
// disk stays unhealthy when there is space again: nats-server stores nothing more in a stream after its first write error.
func (e *Server) WatchHealth(ctx context.Context, log *slog.Logger) {
	ticks := time.NewTicker(healthInterval)
	defer ticks.Stop()
	for before := ""; ; {
		switch now := e.Server.Healthz(nil).Error; {
		case now != "" && now != before:
			log.Error("The server is unhealthy: it may store nothing until it is restarted, after space was made on a full disk", "folder", e.Folder, "error", now)
			before = now
		case now == "" && before != "":
			log.Info("The server is healthy again")
			before = ""
		}
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
	}
}

// serverLog passes the warnings and errors of nats-server on, and keeps why it cannot start.
type serverLog struct {
	to      *slog.Logger           // nil drops them
	failure atomic.Pointer[string] // nats-server returns it nowhere
}

func (l *serverLog) log(level slog.Level, format string, v []any) {
	if l.to != nil {
		l.to.Log(context.Background(), level, "nats-server: "+fmt.Sprintf(format, v...))
	}
}
func (l *serverLog) Warnf(format string, v ...any)  { l.log(slog.LevelWarn, format, v) }
func (l *serverLog) Errorf(format string, v ...any) { l.log(slog.LevelError, format, v) }
func (l *serverLog) Fatalf(format string, v ...any) {
	failure := fmt.Sprintf(format, v...)
	l.failure.Store(&failure)
	l.Errorf("%s", failure)
}
func (*serverLog) Noticef(string, ...any) {}
func (*serverLog) Debugf(string, ...any)  {}
func (*serverLog) Tracef(string, ...any)  {}

// URL returns the URL for clients.
func (e *Server) URL() string { return e.Server.ClientURL() }

// Stop shuts the server down, waits until it has stopped, and releases its folder. A temporary folder is deleted.
func (e *Server) Stop() {
	e.Server.Shutdown()
	e.Server.WaitForShutdown()
	e.releaseFolder()
}
