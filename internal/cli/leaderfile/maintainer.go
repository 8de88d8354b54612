package leaderfile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/host"
	"github.com/natscampaign/election/internal/timeutil"
)

// A leader file is removed by the removal margin before the lease ends, unless the lease is renewed. The margin is a fraction of the TTL,
// but long enough for a busy disk.
const (
	MinMargin        = 100 * time.Millisecond
	maxMargin        = time.Second
	marginsPerTTL    = 50
	updatesPerMargin = 4 // how often the maintainer updates the file
)

func removalMargin(ttl time.Duration) time.Duration {
	return min(max(MinMargin, ttl/marginsPerTTL), maxMargin)
}

// Maintainer maintains the leader file of one candidate. The file exists only while the candidate leads. Its expiry is the end of the
// lease, so readers stop trusting the file in time even if the disk is slow or this process dies.
type Maintainer struct {
	path     string
	log      *slog.Logger
	template Content // the fields that all files of the current term share

	margin      time.Duration
	deadline    time.Time // the expiry of the file that is on disk; zero if there is none
	writeFailed bool      // the last write failed, and the failure was logged
}

// NewMaintainer returns a maintainer of the leader file of a candidate at path. Call [Prepare] first.
func NewMaintainer(path, key, bucket, name string, log *slog.Logger) *Maintainer {
	return &Maintainer{path: path, log: log, template: Content{Program: programName, Key: key, Bucket: bucket, Name: name}}
}

// Lead maintains the file during one term. It returns when leadership has ended and the file is removed, so that the key is not released
// before that. An error means that this host cannot maintain the file, and that another host should lead.
func (m *Maintainer) Lead(ctx context.Context, term election.Term, ttl time.Duration) (err error) {
	defer func() { err = errors.Join(err, m.removeAtEnd()) }()
	m.margin = removalMargin(ttl)
	c := &m.template
	c.Term, c.Token, c.Since, c.TTLS = term.Number, term.Token(), term.Since.Round(0).UTC(), ttl.Seconds()
	ticker := time.NewTicker(m.margin / updatesPerMargin)
	defer ticker.Stop()
	for {
		if err := m.update(term); err != nil {
			return fmt.Errorf("the leader file cannot be maintained, so this host gives up leadership: %w", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// update writes the file if the lease was renewed, or if the wall clock was stepped, because readers compare the expiry with the wall
// clock. It removes the file if the lease is about to end without a renewal.
func (m *Maintainer) update(term election.Term) error {
	deadline := term.Deadline()
	switch left := timeutil.Remaining(deadline); {
	case !term.Valid():
		return nil // the context is about to end too, and Lead then removes the file
	case left <= m.margin:
		if m.deadline.IsZero() {
			return nil
		}
		m.log.Warn("The lease was not renewed in time, removing the leader file before the lease ends", "path", m.path, "left", left.Round(time.Millisecond))
		if err := Remove(m.path); err != nil {
			return err
		}
		m.deadline = time.Time{}
	case !sameOnBothClocks(deadline, m.deadline):
		return m.write(deadline)
	}
	return nil
}

// write writes the file with the deadline as its expiry. If the write fails, write returns nil for as long as the file on disk is fresh,
// and update tries again. Without a fresh file the failure is an error, because no program on this host would learn that the host leads.
func (m *Maintainer) write(deadline time.Time) error {
	c := m.template
	c.Written, c.Expiry = time.Now().Round(0).UTC(), deadline.Round(0).UTC()
	if err := c.Write(m.path); err != nil {
		if timeutil.Remaining(m.deadline) <= m.margin {
			return err
		}
		if !m.writeFailed {
			m.log.Warn("Cannot write the leader file, trying again", "path", m.path, "error", err)
		}
		m.writeFailed = true
		return nil
	}
	level := slog.LevelDebug
	if m.deadline.IsZero() {
		level = slog.LevelInfo
	}
	m.log.Log(context.Background(), level, "Leader file written", "path", m.path, "term", c.Term, "expiry", c.Expiry)
	m.deadline, m.writeFailed = deadline, false
	return nil
}

// removeAtEnd removes the file. If that fails, it tries again until the file on disk has expired. The caller still holds the key until
// then, so no other host leads while a reader may trust the file.
func (m *Maintainer) removeAtEnd() error {
	defer func() { m.deadline = time.Time{} }()
	for {
		err := Remove(m.path)
		if err == nil {
			m.log.Info("Leader file removed", "path", m.path)
			return nil
		}
		if errors.Is(err, errNotLeaderFile) || timeutil.Remaining(m.deadline) <= 0 {
			return fmt.Errorf("the leader file cannot be removed: %w", err)
		}
		time.Sleep(m.margin / updatesPerMargin)
	}
}

// sameOnBothClocks says whether two times are equal on the monotonic clock and on the wall clock. It tolerates a millisecond, because Go
// reads the two clocks one after the other.
func sameOnBothClocks(a, b time.Time) bool {
	return a.Sub(b).Abs() < time.Millisecond && a.Round(0).Sub(b.Round(0)).Abs() < time.Millisecond
}

// Prepare reserves path for this process with a lock at path.lock, and removes a leader file that an earlier process left at path. It
// returns an error if path holds any other file, or if another process holds the lock. Call release when path is no longer needed.
func Prepare(path string) (release func(), err error) {
	if err := checkReplaceable(path); err != nil {
		return nil, err
	}
	if err := host.CheckWritable("PATH", path); err != nil {
		return nil, err
	}
	release, err = host.LockFile(path + ".lock")
	if errors.Is(err, host.ErrLocked) {
		return nil, fmt.Errorf("another process on this host maintains %s and holds the lock %s.lock: stop that process, or give another path", path, path)
	}
	if err != nil {
		return nil, err
	}
	if err := Remove(path); err != nil {
		release()
		return nil, fmt.Errorf("cannot remove the leader file that an earlier process left at %s: %w", path, err)
	}
	return release, nil
}
