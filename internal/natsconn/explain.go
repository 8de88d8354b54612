package natsconn

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
)

// Settings are the names of what decides how a connection is made, for the reader of an error.
type Settings struct{ Server, TLSFirst string }

// OfConnection are the names for a program that makes its connection by itself.
var OfConnection = Settings{Server: "the URL of the connection", TLSFirst: "nats.TLSHandshakeFirst"}

// Explain adds to the error of an attempt to connect what to try. tlsFirst says whether the client begins with the TLS handshake.
func (s Settings) Explain(err error, tlsFirst bool) error {
	var dns *net.DNSError
	var fix string
	switch {
	case tlsFirst && errors.As(err, new(tls.RecordHeaderError)):
		fix = "the server does not begin with the TLS handshake: leave out " + s.TLSFirst + ", or correct the address"
	case !tlsFirst && isSilence(err):
		fix = "the server said nothing, as one does that wants the TLS handshake first (handshake_first): if so, set " + s.TLSFirst +
			"; else see that a NATS server listens there, and that it answers through every proxy and firewall on the way"
	case errors.As(err, &dns) && dns.IsNotFound:
		fix = "correct the name of the host in " + s.Server
	case errors.As(err, &dns):
		fix = "see that the name servers of this host answer, or give an IP address in " + s.Server
	case errors.Is(err, ErrConnectionRefused) || errors.Is(err, syscall.ECONNREFUSED):
		fix = "start the server there, or correct host and port in " + s.Server
	case isTimeout(err) || errors.Is(err, syscall.EHOSTUNREACH) || errors.Is(err, syscall.ENETUNREACH):
		fix = "see that the host runs, and that no firewall is in the way, or correct host and port in " + s.Server
	default:
		return err
	}
	return fmt.Errorf("%w: %s", err, fix)
}

// ErrConnectionRefused stands for [nats.ErrNoServers], which the client makes of any connection that was refused.
var ErrConnectionRefused = errors.New("connection refused")

// isSilence reports whether a server that accepted a connection said nothing: until the client gave up, or until the server did.
func isSilence(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return errors.Is(err, io.EOF) || ok && op.Op == "read" && op.Timeout()
}

// isTimeout reports whether a host did not answer in time.
func isTimeout(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout()
}
