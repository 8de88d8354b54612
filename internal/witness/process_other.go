//go:build !linux && !darwin

package witness

import (
	"context"
	"net"
)

// Supported says whether this system shows when a process has died.
const Supported = false

// Process is a process whose death the kernel reports. The zero Process is dead, and there is no other on this system.
type Process struct{}

func introduce(*net.UnixConn) error { return ErrUnsupported }

func meet(*net.UnixConn) (*Process, error) { return nil, ErrUnsupported }

func peerUser(*net.UnixConn) (uint32, error) { return 0, ErrUnsupported }

// Wait returns at once.
func (*Process) Wait(context.Context) error { return nil }

// ImageEnded returns false.
func (*Process) ImageEnded() bool { return false }

// Close does nothing.
func (*Process) Close() {}
