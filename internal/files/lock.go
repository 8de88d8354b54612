package files

import (
	"errors"
	"fmt"
	"os"
)

// ErrLocked is returned by lockFile while another process has the lock.
var ErrLocked = errors.New("another process has the lock")

// Lock takes the lock that an empty file at path stands for, and returns what gives it back. A process that dies, in
// whatever way, gives it back too.
func Lock(path string) (release func(), err error) {
	for {
		f, err := openLocked(path)
		if err != nil {
			return nil, err
		}
		held, err := f.Stat()
		if err == nil && (!held.Mode().IsRegular() || held.Size() > 0) { // somebody keeps something in it
			err = fmt.Errorf("%s: this is no lock of election-cli: move it away", path)
		}
		if err != nil {
			_ = f.Close()
			return nil, err
		}
		if now, err := os.Lstat(path); err != nil || !os.SameFile(held, now) {
			_ = f.Close() // its last owner removed it before we had it
			continue
		}
		return func() {
			_ = os.Remove(path) // while it is held, or it might be another's
			_ = f.Close()
		}, nil
	}
}
