// Package leaderfile keeps a file on the host that leads, for programs on that host that know no NATS.
//
// It promises that the file is there only while its host leads: it is written when leadership counts, replaced as a whole at each renewal,
// removed before the lease ends unless it is renewed, and removed before the key is released. A process that is killed or stopped leaves
// the file behind; so each file says until when it may be trusted, which is the end of the lease by the wall clock of this host, and
// [Check] does not trust it for longer than a TTL. The package never replaces or removes a file that it has not written.
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

	"github.com/natscampaign/election/internal/files"
	"github.com/natscampaign/election/internal/terminal"
)

// Marker is what the host that leads says in a file of its own, for programs on that host to read. Its field names are
// documented in the help and stay as they are.
type Marker struct {
	Marker  string    `json:"marker"` // always markerKind, by which a marker is told from any other file
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
	markerKind        = "election-cli"
	MaxSize           = 16 << 10
	longestMarkerTTLS = 3600 // elections have no longer one
)

var (
	// errForeign is of what stands in a marker's place and is none: it is never written over nor removed.
	errForeign = errors.New("this is no marker of election-cli")
	// errBlank is of a file without content, which is all that may be left of a marker when the host loses its power.
	errBlank = errors.New("the file is empty")
)

// parseMarker reads a marker. Whatever is missing from one that this tool would write makes it another's file.
func parseMarker(text []byte) (Marker, error) {
	var m Marker
	if len(bytes.Trim(text, "\x00")) == 0 {
		return m, errBlank
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return m, errForeign
	}
	if m.Marker != markerKind || m.Key == "" || m.Name == "" || m.Term == 0 || m.Token == "" || m.Written.IsZero() ||
		m.Expiry.IsZero() || !(m.TTLS > 0 && m.TTLS <= longestMarkerTTLS) {
		return m, errForeign
	}
	return m, nil
}

// Read reads the marker at path. What is no regular file, such as a pipe that nobody writes to, is not opened.
func Read(path string) (Marker, error) {
	info, err := os.Stat(path)
	if err != nil {
		return Marker{}, err
	}
	if !info.Mode().IsRegular() {
		return Marker{}, errForeign
	}
	f, err := os.Open(path)
	if err != nil {
		return Marker{}, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, MaxSize+1))
	if err != nil {
		return Marker{}, err
	}
	if len(text) > MaxSize {
		return Marker{}, errForeign
	}
	return parseMarker(text)
}

// Doubt says why the marker is not to be trusted at now; it is empty if it is. The limits that do not follow from the
// expiry are those of a clock that was set back since: a marker never promises more than a TTL.
func (m Marker) Doubt(now time.Time) string {
	switch ttl := terminal.Seconds(m.TTLS); {
	case !now.Before(m.Expiry):
		return fmt.Sprintf("it expired %s", terminal.Ago(now.Sub(m.Expiry)))
	case now.Before(m.Written):
		return fmt.Sprintf("it was written %s: the clock of this host was set back", terminal.Ago(now.Sub(m.Written)))
	case m.Expiry.Sub(now) > ttl:
		return fmt.Sprintf("it expires %s, which is later than the TTL of %s allows: the clock of this host was set back", terminal.Ago(now.Sub(m.Expiry)), terminal.Human(ttl))
	}
	return ""
}

// free returns nil if path is free for a marker, or has one. A symbolic link is not followed: it would be replaced, and
// whoever made it would wait for a file elsewhere.
func free(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		return fmt.Errorf("%s is a symbolic link: name the file itself", path)
	}
	if _, err = Read(path); errors.Is(err, errForeign) {
		return fmt.Errorf("%s: %w, and is left as it is: name another file, or move it away", path, err)
	}
	if errors.Is(err, errBlank) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Remove removes the marker at path, if there is one, and nothing else.
func Remove(path string) error {
	if err := free(path); err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Write replaces the marker at path, so that a reader sees the old one or the new one and never a part. It need not
// outlive a loss of power, after which it would have expired anyway.
func (m Marker) Write(path string) error {
	if err := free(path); err != nil {
		return err
	}
	return files.Replace(path, func(w io.Writer) error { return terminal.WriteJSON(w, m) })
}
