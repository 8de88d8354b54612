package witness

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	"github.com/natscampaign/election/internal/timeutil"
)

// HostVariable is the environment variable that names the witness of a host, as in unix:///run/election/witness.sock.
const HostVariable = "ELECTION_WITNESS"

// HostSocket returns the path of the socket of the host's witness; empty if the environment names none.
func HostSocket() (path string, err error) {
	text := os.Getenv(HostVariable)
	switch {
	case text == "":
		return "", nil
	case !Supported:
		return "", ErrUnsupported
	}
	path, ok := strings.CutPrefix(text, "unix://")
	if !ok || !strings.HasPrefix(path, "/") {
		return "", fmt.Errorf("%s is %q, and is to name a socket by its whole path: as in %s=unix:///run/election/witness.sock", HostVariable, text, HostVariable)
	}
	return path, nil
}

// OfHost returns what tells the witness of the host that listens on the given socket. A witness that is not there yet is waited for.
func OfHost(path string, log *slog.Logger) *Teller {
	open := func(ctx context.Context) (Link, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}
	first, err := open(context.Background())
	if err != nil {
		log.Warn("The witness of the host does not answer yet: until it does, a leader that dies is replaced when its lease is over", "socket", path, "error", err)
		first = nil
	}
	return NewTeller(first, open, log)
}

// acceptDelay is the pause after a program that could not connect, as when this process has no descriptor left for it.
const acceptDelay = time.Second

// Serve is the witness of a host: it keeps the terms of every program that connects to a socket, until ctx ends.
func (k *Keeper) Serve(ctx context.Context, socket *net.UnixListener) error {
	defer context.AfterFunc(ctx, func() { _ = socket.Close() })()
	for {
		conn, err := socket.AcceptUnix()
		switch {
		case err == nil:
			go k.serve(ctx, conn)
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return err
		default:
			k.releaser.log.Warn("A program cannot connect to the witness, trying again", "error", err)
			_ = timeutil.Pause(ctx, acceptDelay)
		}
	}
}

// serve keeps the terms of one program.
func (k *Keeper) serve(ctx context.Context, conn *net.UnixConn) {
	defer func() { _ = conn.Close() }()
	p, err := Peer(conn)
	if err != nil {
		k.releaser.log.Warn("A program that connected cannot be watched: if it dies, it is replaced when its lease is over", "error", err)
		return
	}
	if p != nil {
		defer p.Close()
	}
	k.Keep(ctx, conn, p)
}
