package host

import (
	"errors"
	"fmt"
	"os"
	"runtime"
)

// ErrLocked is returned by [LockFile] while another process holds the lock.
var ErrLocked = errors.New("another process holds the lock")

// LockFile locks the empty file at path, and creates the file if there is none. It returns [ErrLocked] while another process holds the lock,
// and an error if the file is not empty. Call release to unlock the file; the operating system also unlocks it when the process dies.
func LockFile(path string) (release func(), err error) {
	f, err := lock(path, true)
	if err != nil {
		return nil, err
	}
	return func() { unlock(f) }, nil
}

// lock is [LockFile], but it creates no file unless create says so. The file that it returns holds the lock until the file is closed.
func lock(path string, create bool) (*os.File, error) {
	for {
		f, err := openLocked(path, create)
		if err != nil {
			return nil, err
		}
		held, err := f.Stat()
		if err == nil && (!held.Mode().IsRegular() || held.Size() > 0) { // another program stores data in the file
			err = fmt.Errorf("%s is not a lock file of election-cli: move the file away", path)
		}
		if err != nil {
			_ = f.Close()
			return nil, err
		}
		if now, err := os.Lstat(path); err != nil || !os.SameFile(held, now) {
			_ = f.Close() // the previous owner removed the file after this process opened it
			continue
		}
		return f, nil
	}
}

// unlock removes a file that lock has returned, and unlocks it.
func unlock(f *os.File) {
	_ = os.Remove(f.Name()) // before it is unlocked: afterwards another process may hold it
	_ = f.Close()
	if runtime.GOOS == "windows" { // which removes no file that is open, here or in another process
		_ = os.Remove(f.Name())
	}
}
