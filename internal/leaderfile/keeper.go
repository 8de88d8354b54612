package leaderfile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/files"
)

// A marker is removed this long before the lease ends, unless it was renewed by then: a fraction of the TTL, but long
// enough for a disk that is busy. A quarter of it is how often the keeper looks.
const (
	MinAhead     = 100 * time.Millisecond
	longestAhead = time.Second
	aheadOfTTL   = 50
	looks        = 4
)

func aheadOf(ttl time.Duration) time.Duration {
	return min(max(MinAhead, ttl/aheadOfTTL), longestAhead)
}

// keeper keeps the marker while its host leads: it is there only while leadership lasts, and names the lease's end as the
// instant until which it may be trusted, however slow the disk is and whatever becomes of this process.
type keeper struct {
	path  string
	log   *slog.Logger
	about Marker // what all markers of this candidate have in common

	ahead    time.Duration
	deadline time.Time // which the marker that stands shows; zero if none does
	failing  bool
}

// Lead is the work of a leader: it returns when leadership has ended and the marker is gone, so that the key is not
// released before. An error means that the marker cannot be kept here, and that another host should lead.
func (k *keeper) Lead(ctx context.Context, term election.Term, ttl time.Duration) (err error) {
	defer func() { err = errors.Join(err, k.clear()) }()
	k.ahead = aheadOf(ttl)
	k.about.Term, k.about.Token, k.about.Since, k.about.TTLS = term.Number, term.Token(), term.Since.Round(0).UTC(), ttl.Seconds()
	k.log.Info("Marker is kept", "path", k.path, "term", term.Number)
	tick := time.NewTicker(k.ahead / looks)
	defer tick.Stop()
	for {
		if err := k.look(term); err != nil {
			return fmt.Errorf("the marker cannot be kept, so that this host gives up leadership: %w", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// look writes the marker if the lease was renewed since, or the wall clock was stepped by which the marker is judged, and removes
// it if the lease was not renewed and is about to end.
func (k *keeper) look(term election.Term) error {
	deadline := term.Deadline()
	switch left := remaining(deadline); {
	case !term.Valid():
		return nil // the context ends too
	case left <= k.ahead:
		if k.deadline.IsZero() {
			return nil
		}
		k.log.Warn("The lease was not renewed in time, the marker is removed before it ends", "path", k.path, "left", left.Round(time.Millisecond))
		if err := Remove(k.path); err != nil {
			return err
		}
		k.deadline = time.Time{}
	case !alike(deadline, k.deadline):
		return k.write(deadline)
	}
	return nil
}

// write writes the marker that shows the deadline. If that fails it is tried again for as long as the one that stands
// there counts; if there is none, nobody on this host would learn that it leads.
func (k *keeper) write(deadline time.Time) error {
	m := k.about
	m.Written, m.Expiry = time.Now().Round(0).UTC(), deadline.Round(0).UTC()
	if err := m.Write(k.path); err != nil {
		if remaining(k.deadline) <= k.ahead {
			return err
		}
		if !k.failing {
			k.log.Warn("Marker cannot be written, trying again", "path", k.path, "error", err)
		}
		k.failing = true
		return nil
	}
	k.log.Debug("Marker written", "path", k.path, "expiry", m.Expiry)
	k.deadline, k.failing = deadline, false
	return nil
}

// clear removes the marker. If that fails it is tried again until nobody trusts the marker any more; meanwhile the key is
// held, so that nobody else leads.
func (k *keeper) clear() error {
	defer func() { k.deadline = time.Time{} }()
	for {
		err := Remove(k.path)
		if err == nil {
			k.log.Info("Marker is removed", "path", k.path)
			return nil
		}
		if errors.Is(err, errForeign) || remaining(k.deadline) <= 0 {
			return fmt.Errorf("the marker cannot be removed: %w", err)
		}
		time.Sleep(k.ahead / looks)
	}
}

// alike says whether two deadlines are the same by both clocks, but for the time between readings of them.
func alike(a, b time.Time) bool {
	return a.Sub(b).Abs() < time.Millisecond && a.Round(0).Sub(b.Round(0)).Abs() < time.Millisecond
}

// remaining returns the time until t by the stricter clock.
func remaining(t time.Time) time.Duration {
	now := time.Now()
	return min(t.Sub(now), t.Round(0).Sub(now.Round(0)))
}

// Prepare makes sure that path is this process's, and removes what another left there.
func Prepare(path string) (release func(), err error) {
	if err := free(path); err != nil {
		return nil, err
	}
	if err := files.CheckWritable("PATH", path); err != nil {
		return nil, err
	}
	release, err = files.Lock(path + ".lock")
	if errors.Is(err, files.ErrLocked) {
		return nil, fmt.Errorf("another process on this host keeps %s, by its lock %s.lock: stop it first, or name another file", path, path)
	}
	if err != nil {
		return nil, err
	}
	if err := Remove(path); err != nil {
		release()
		return nil, fmt.Errorf("the marker that was left at %s cannot be removed: %w", path, err)
	}
	return release, nil
}

// NewKeeper returns one that keeps the marker of a candidate at path.
func NewKeeper(path, key, bucket, name string, log *slog.Logger) *keeper {
	return &keeper{path: path, log: log, about: Marker{Marker: markerKind, Key: key, Bucket: bucket, Name: name}}
}
