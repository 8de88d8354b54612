// Package leaderfile maintains a file on the host that leads. Programs on that host read the file instead of NATS to learn whether their
// host leads.
//
// The package guarantees that the file exists only while its host leads. The leader writes the file when its leadership begins to count,
// replaces the whole file at each renewal, removes the file before the lease ends unless the lease is renewed, and removes the file before
// it releases the key. A process that is killed or stopped cannot remove its file. Each file therefore contains an expiry: the end of the
// lease by the wall clock of this host. [Check] never trusts a file for longer than one TTL.
//
// The package never replaces or removes a file that is not a leader file. An empty file counts as a leader file, because a power cut may
// leave one.
package leaderfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/natscampaign/election/internal/cli/terminal"
	"github.com/natscampaign/election/internal/host"
)

// Content is the content of a leader file. The help documents its field names, which must not change.
type Content struct {
	Program string    `json:"marker"` // always programName, which distinguishes a leader file from any other file
	Key     string    `json:"key"`
	Bucket  string    `json:"bucket"`
	Name    string    `json:"name"`
	Term    uint64    `json:"term"`
	Token   string    `json:"token"`
	Since   time.Time `json:"since"`
	Written time.Time `json:"written"`
	Expiry  time.Time `json:"expiry"`
	TTLS    float64   `json:"ttl_s"`
}

const (
	programName = "election-cli"
	// MaxSize is the size, in bytes, above which a file is not a leader file.
	MaxSize       = 16 << 10
	maxTTLSeconds = 3600 // no election has a longer TTL
)

var (
	// errNotLeaderFile is returned for a file that this package did not write. Such a file is never replaced or removed.
	errNotLeaderFile = errors.New("this is not a leader file of election-cli")
	// errEmpty is returned for a file without content. A power cut may leave an empty leader file.
	errEmpty = errors.New("the file is empty")
)

// parse reads the content of a leader file. Content that this package cannot have written is errNotLeaderFile.
func parse(text []byte) (Content, error) {
	var c Content
	if len(bytes.Trim(text, "\x00")) == 0 {
		return c, errEmpty
	}
	if err := json.Unmarshal(text, &c); err != nil {
		return c, errNotLeaderFile
	}
	if c.Program != programName || c.Key == "" || c.Name == "" || c.Term == 0 || c.Token == "" || c.Written.IsZero() ||
		c.Expiry.IsZero() || !(c.TTLS > 0 && c.TTLS <= maxTTLSeconds) {
		return c, errNotLeaderFile
	}
	return c, nil
}

// Read reads the leader file at path. It does not open anything but a regular file: opening a pipe without a writer would block.
func Read(path string) (Content, error) {
	info, err := os.Stat(path)
	if err != nil {
		return Content{}, err
	}
	if !info.Mode().IsRegular() {
		return Content{}, errNotLeaderFile
	}
	f, err := os.Open(path)
	if err != nil {
		return Content{}, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, MaxSize+1))
	if err != nil {
		return Content{}, err
	}
	if len(text) > MaxSize {
		return Content{}, errNotLeaderFile
	}
	return parse(text)
}

// StaleReason says why a reader must not trust the file at the given time; it is empty if the file is fresh. The expiry alone is not
// enough, because the wall clock may have been set back since the file was written: a file is also stale before the time at which it was
// written, and while its expiry is more than one TTL away.
func (c Content) StaleReason(now time.Time) string {
	switch ttl := terminal.FromSeconds(c.TTLS); {
	case !now.Before(c.Expiry):
		return fmt.Sprintf("the file expired %s", terminal.Ago(now.Sub(c.Expiry)))
	case now.Before(c.Written):
		return fmt.Sprintf("the file was written %s later than this host's clock shows: the clock was set back", terminal.FormatDuration(c.Written.Sub(now)))
	case c.Expiry.Sub(now) > ttl:
		return fmt.Sprintf("the file expires %s, later than the TTL of %s allows: the clock of this host was set back", terminal.Ago(now.Sub(c.Expiry)), terminal.FormatDuration(ttl))
	}
	return ""
}

// checkReplaceable returns nil if there is no file at path, or a leader file. It refuses a symbolic link: Write would replace the link,
// and readers of the link's target would never see the file.
func checkReplaceable(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		return fmt.Errorf("%s is a symbolic link: give the path of the file itself", path)
	}
	if _, err = Read(path); errors.Is(err, errNotLeaderFile) {
		return fmt.Errorf("%s: %w, so it stays as it is: give another path, or move the file away", path, err)
	}
	if errors.Is(err, errEmpty) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Remove removes the leader file at path, if there is one. It removes no other file.
func Remove(path string) error {
	if err := checkReplaceable(path); err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Write replaces the leader file at path. A reader sees the old file or the new file, never a part of one. Write does not sync the file
// to disk: after a power cut the file would have expired anyway.
func (c Content) Write(path string) error {
	if err := checkReplaceable(path); err != nil {
		return err
	}
	return host.ReplaceFile(path, func(w io.Writer) error { return terminal.WriteJSON(w, c) })
}
