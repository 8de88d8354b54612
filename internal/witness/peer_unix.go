//go:build linux || darwin

package witness

import (
	"errors"
	"net"
)

// ofPeer returns what an option of a socket says of the process that connected.
func ofPeer[T any](conn *net.UnixConn, option func(socket int) (T, error)) (value T, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return value, err
	}
	controlErr := raw.Control(func(socket uintptr) { value, err = option(int(socket)) })
	return value, errors.Join(controlErr, err)
}
