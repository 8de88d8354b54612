package host

import (
	"io/fs"

	"golang.org/x/sys/unix"
)

// narrower has every file that this process makes until undo have at most the given permissions: a socket has none here before its file exists.
func narrower(mode fs.FileMode) (narrow func(fd uintptr) error, undo func()) {
	before := unix.Umask(int(0o777 &^ mode.Perm()))
	return func(uintptr) error { return nil }, func() { unix.Umask(before) }
}
