package natsconn

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
)

// ExplainHandshake adds to the error of an attempt to connect what to do about a TLS handshake that only the server or only the client wants
// to make first. first says whether the client does; setting is what has it do so.
func ExplainHandshake(err error, first bool, setting string) error {
	switch {
	case first && errors.As(err, new(tls.RecordHeaderError)):
		return fmt.Errorf("%w: the server does not begin with the TLS handshake: leave out %s, or correct the address", err, setting)
	case !first && isSilence(err):
		return fmt.Errorf("%w: the server said nothing, as one does that wants the TLS handshake first (handshake_first): if so, set %s", err, setting)
	}
	return err
}

// isSilence reports whether a server that accepted a connection said nothing: until the client gave up, or until the server did.
func isSilence(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return errors.Is(err, io.EOF) || ok && op.Op == "read" && op.Timeout()
}
