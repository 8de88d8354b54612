package cli

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natscampaign/election/internal/dial"
	"github.com/natscampaign/election/internal/natsconn"
)

const (
	// repeatInterval is the time between two warnings that the server still cannot be reached.
	repeatInterval = 30 * time.Second
	// restartTime is how long a server that was lost may be away before that is worth a warning of its own.
	restartTime = 5 * time.Second
)

// dialing logs each change of the state of a connection, and why a server cannot be reached: when the first attempt fails, and then every
// repeatInterval.
type dialing struct {
	log *slog.Logger

	mu        sync.Mutex
	connected bool      // at least once
	last      error     // of the last attempt; nil while there is a connection
	warnAt    time.Time // when an attempt that fails is worth a warning
}

// options returns the options that have the connection report to d.
func (d *dialing) options() []nats.Option {
	return []nats.Option{
		nats.ConnectHandler(func(nc *nats.Conn) {
			d.succeeded()
			if server := nc.ConnectedUrl(); server != "" { // it may be closed already, as after a program that ends at once
				d.log.Info("Connected", "server", natsconn.WithoutSecrets(server), "version", nc.ConnectedServerVersion())
			}
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) {
			d.succeeded()
			d.log.Info("Reconnected", "server", natsconn.WithoutSecrets(nc.ConnectedUrl()))
		}),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil { // nil when this process closed the connection
				d.lost()
				d.log.Warn("Connection lost", "error", err)
			}
		}),
		nats.ReconnectErrHandler(func(nc *nats.Conn, err error) { d.failed(err, serverURLs(nc), nc.Opts.TLSHandshakeFirst) }),
		nats.ErrorHandler(func(nc *nats.Conn, _ *nats.Subscription, err error) {
			if dial.IsRefusal(err) { // the client reports it by no other handler
				d.failed(err, serverURLs(nc), nc.Opts.TLSHandshakeFirst)
				return
			}
			if refused := describeRefusal(err); refused != "" {
				d.log.Warn("The server does not permit this user to " + refused)
				return
			}
			d.log.Warn("Asynchronous NATS error", "error", err)
		}),
	}
}

func (d *dialing) succeeded() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.connected, d.last = true, nil
}

func (d *dialing) lost() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.warnAt = time.Now().Add(restartTime)
}

// failed logs an attempt that failed, with the TLS handshake first or not.
func (d *dialing) failed(err error, servers []string, tlsFirst bool) {
	urls := strings.Join(servers, ", ")
	err = explainDial(err, urls, tlsFirst)
	d.mu.Lock()
	defer d.mu.Unlock()
	message := "Server still cannot be reached"
	if d.last == nil && !d.connected {
		message = "Server cannot be reached yet, waiting for it"
	}
	d.last = err
	level := slog.LevelDebug
	if now := time.Now(); !now.Before(d.warnAt) {
		level, d.warnAt = slog.LevelWarn, now.Add(repeatInterval)
	}
	d.log.Log(context.Background(), level, message, "server", urls, "error", err)
}

// neverConnected returns why no attempt to connect has succeeded so far; nil if one has.
func (d *dialing) neverConnected() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.connected:
		return nil
	case d.last == nil:
		return errors.New("no server has answered")
	}
	return d.last
}

// explainDial adds to the error of an attempt to connect to servers what the user can do about it, where the error does not say so.
func explainDial(err error, servers string, tlsFirst bool) error {
	if errors.Is(err, nats.ErrNoServers) { // what nats.go makes of it
		err = natsconn.ErrConnectionRefused
	}
	var fix string
	switch {
	case servers == nats.DefaultURL && (errors.Is(err, natsconn.ErrConnectionRefused) || errors.Is(err, syscall.ECONNREFUSED)):
		fix = "start a server with 'election-cli server', or name yours with --server, NATS_URL or --context"
	case errors.As(err, new(x509.UnknownAuthorityError)):
		fix = "give the file of the authority that signed the server's certificate with --tlsca"
	case errors.As(err, new(x509.HostnameError)):
		fix = "name the server with --server as its certificate does"
	case dial.IsRefusal(err):
		fix = "correct --user and --password, --token, --creds or --nkey"
	default:
		return natsconn.Settings{Server: "--server, NATS_URL or --context", TLSFirst: "--tlsfirst"}.Explain(err, tlsFirst)
	}
	return fmt.Errorf("%w: %s", err, fix)
}
