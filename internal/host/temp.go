package host

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
)

// LockName is the name of the lock file in a folder with data that only one process may use.
const LockName = "election-cli.lock"

// Prefixes of temporary folders, for [NewTemp].
const (
	ServerPrefix = "election-cli-"   // the data of a server
	DrillPrefix  = "election-drill-" // the files of a drill on processes
)

// tempName matches the names that NewTemp gives, and no other.
var tempName = regexp.MustCompile("^(" + ServerPrefix + "|" + DrillPrefix + ")[0-9]+$")

// Temp is a temporary folder that its process holds by a lock in the folder. A process that is killed leaves the folder behind, but not the
// lock: the next [NewTemp] removes the folder.
type Temp struct {
	Path string

	lock *os.File // nil where files cannot be locked: nobody else removes the folder then
}

// NewTemp makes a folder in the folder for temporary files. Before that it removes the folders of earlier processes of the same user that
// are gone. It never removes a folder whose process lives, of another user, without a lock file, or with a name that NewTemp does not give.
// Where files cannot be locked it removes nothing.
func NewTemp(prefix string) (*Temp, error) {
	removeAbandoned()
	const attempts = 100
	for range attempts {
		path, err := os.MkdirTemp("", prefix)
		if err != nil {
			return nil, err
		}
		f, err := lock(filepath.Join(path, LockName), true)
		switch {
		case err == nil:
			return &Temp{path, f}, nil
		case errors.Is(err, ErrLocked), errors.Is(err, fs.ErrNotExist): // another process took the new folder for one whose process is gone
			_ = os.Remove(path)
			continue
		}
		_ = os.Remove(filepath.Join(path, LockName))
		return &Temp{Path: path}, nil
	}
	return nil, &os.PathError{Op: "lock", Path: filepath.Join(os.TempDir(), prefix+"*"), Err: ErrLocked}
}

// Remove removes the folder.
func (t *Temp) Remove() {
	if t.lock == nil {
		_ = os.RemoveAll(t.Path)
		return
	}
	empty := true
	entries, _ := os.ReadDir(t.Path)
	for _, entry := range entries {
		if entry.Name() != LockName && os.RemoveAll(filepath.Join(t.Path, entry.Name())) != nil {
			empty = false
		}
	}
	if !empty { // the lock file stays, so that the next NewTemp tries again
		_ = t.lock.Close()
		return
	}
	// The lock file goes last: whatever ends this process before, the next NewTemp still knows the folder.
	unlock(t.lock)
	_ = os.Remove(t.Path)
}

// Keep leaves the folder where it is, for its user. Nothing removes it any more.
func (t *Temp) Keep() {
	if t.lock != nil {
		unlock(t.lock)
	}
}

// removeAbandoned removes the folders of processes that are gone.
func removeAbandoned() {
	entries, _ := os.ReadDir(os.TempDir())
	for _, entry := range entries {
		path := filepath.Join(os.TempDir(), entry.Name())
		if !tempName.MatchString(entry.Name()) || !isOwn(path, fs.ModeDir) {
			continue
		}
		if !isOwn(filepath.Join(path, LockName), 0) {
			_ = os.Remove(path) // only if it is empty: its process was killed before it had the lock
			continue
		}
		// A lock file that is gone by now was removed by its process, which may keep the folder: do not make another.
		if f, err := lock(filepath.Join(path, LockName), false); err == nil {
			(&Temp{path, f}).Remove()
		}
	}
}

// isOwn reports whether there is a file of the given type that belongs to the user of this process. It follows no link.
func isOwn(path string, of fs.FileMode) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode().Type() == of && belongsToUser(info)
}
