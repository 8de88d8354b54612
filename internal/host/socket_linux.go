package host

import (
	"io/fs"

	"golang.org/x/sys/unix"
)

// narrower returns what gives a socket the permissions that its file will have at most, before the file exists. undo is called afterwards.
func narrower(mode fs.FileMode) (narrow func(fd uintptr) error, undo func()) {
	return func(fd uintptr) error { return unix.Fchmod(int(fd), uint32(mode.Perm())) }, func() {}
}
