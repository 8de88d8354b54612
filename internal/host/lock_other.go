//go:build !darwin && !dragonfly && !freebsd && !linux && !netbsd && !openbsd && !windows

package host

import (
	"fmt"
	"os"
	"runtime"
)

// openLocked returns an error: this platform has no locks that end with the process.
func openLocked(path string, _ bool) (*os.File, error) {
	return nil, fmt.Errorf("%s: files cannot be locked on %s", path, runtime.GOOS)
}

// belongsToUser returns false, so that nothing is removed.
func belongsToUser(os.FileInfo) bool { return false }
