//go:build !linux && !darwin

package witness

import (
	"context"
	"net"
)

// Supported says whether this system shows when a process has died.
const Supported = false

// Process is a process whose death the kernel reports. There is none on this system.
type Process struct{}

// OpenProcess returns [ErrUnsupported].
func OpenProcess(int) (*Process, error) { return nil, ErrUnsupported }

// Peer returns [ErrUnsupported].
func Peer(*net.UnixConn) (*Process, error) { return nil, ErrUnsupported }

// Wait returns [ErrUnsupported].
func (*Process) Wait(context.Context) error { return ErrUnsupported }

// Close does nothing.
func (*Process) Close() {}
