package election

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// campaign tries to win the key until it does, after so many campaigns lost in a row. It returns nil if ctx ended before, or with an error if the bucket turned
// out to be unsuitable.
//
// A campaign that has begun is carried through even if ctx ends meanwhile, for a write may have been applied that only
// its sender can clear away: what is won then is released by whoever leads on it.
func (e *Election) campaign(ctx context.Context, lost int) (*tenure, error) {
	for {
		if ctx.Err() != nil {
			return nil, nil
		}
		began := time.Now()
		t, err := e.stand(context.WithoutCancel(ctx))
		if t != nil || err != nil {
			return t, err
		}
		lost++
		pause(ctx, max(time.Until(began.Add(e.nextCampaign(lost))), minPause))
	}
}

// nextCampaign returns the time from one campaign to the next of a candidate that lost the given number in a row.
func (e *Election) nextCampaign(lost int) (d time.Duration) {
	f := e.facts.Load()
	d = f.interval
	defer func() {
		if p := recover(); p != nil {
			e.log.Error("Backoff panicked, waiting one interval", "panic", p)
		}
		e.wait.Store(int64(d))
	}()
	if e.opts.backoff != nil {
		d = min(max(e.opts.backoff.Duration(lost), minPause), f.ttl)
	}
	return d
}

// stand tries once to win the key: by creating it or, if something stands there that may be taken, by an update of that.
// It returns nil if it did not win, or does not know.
func (e *Election) stand(ctx context.Context) (*tenure, error) {
	e.announcer.campaign(CandidateState)
	e.metrics.campaigned(CandidateState)
	f := e.facts.Load()

	call, cancel := context.WithTimeout(ctx, f.try())
	defer cancel()
	w := win{reason: reasonVacant, since: time.Now()}
	rev, err := e.bucket.Create(call, e.key, e.encode(e.record(w.since, 0)))
	switch classify(err) {
	case applied:
		return e.take(ctx, w.with(rev))
	case refused:
		e.lastError.Store(nil)
		e.log.Debug("Campaign lost")
		return e.claim(ctx)
	case unknown:
		e.failed(err)
		e.log.Debug("Campaign in doubt", "error", err)
		return e.claim(ctx)
	default:
		e.failed(err)
		e.log.Debug("Campaign failed", "error", err)
		return nil, nil
	}
}

// win is a write that won the key.
type win struct {
	reason       reason
	revision     uint64
	since        time.Time // just before the write was sent
	acknowledged time.Time
	left         time.Duration // of the stand-down of whoever released the key
	bucket       time.Time     // when the bucket was created, in the words of whoever released the key
}

// standDown returns how long the winner must wait in a bucket that is known by f. A release vouches for its writer, but
// only in the bucket that this leads or led in: one who comes from an earlier bucket released what was not his. What is
// left of another's stand-down is never more than a lease may last.
func (w win) standDown(f *facts) time.Duration {
	if w.reason == reasonReleased && w.bucket.Equal(f.created) {
		return min(w.left, max(f.standDown, f.ttl))
	}
	return f.standDown
}

// with completes the win by an acknowledgement that came just now.
func (w win) with(revision uint64) win {
	w.revision, w.acknowledged = revision, time.Now()
	return w
}

// claim reads what stands under the key and takes it over if it may be taken, by an update of that very revision: a
// release, which names the stand-down that is left, or a late write of this candidate's own, on which it never leads as
// it stands. A candidate that is not permitted to read finds nothing here, and waits for the key to expire.
func (e *Election) claim(ctx context.Context) (*tenure, error) {
	f := e.facts.Load()
	call, cancel := context.WithTimeout(ctx, f.try())
	defer cancel()
	entry, err := e.bucket.Get(call, e.key)
	if err != nil {
		e.log.Debug("Record not read", "error", err)
		return nil, nil
	}
	prior := parseRecord(entry.Value())
	var w win
	if left, ok := prior.released(); ok {
		w.reason, w.left, w.bucket = reasonReleased, left, prior.Bucket
	} else if prior.Instance == e.instance {
		w.reason = reasonReclaimed
	} else {
		e.saw(prior.leader(e.key, entry.Revision(), entry.Created(), f.ttl))
		return nil, nil
	}

	w.since = time.Now()
	rev, err := e.bucket.Update(call, e.key, e.encode(e.record(w.since, 0)), entry.Revision())
	if err != nil {
		e.log.Debug("Record not taken over", "reason", string(w.reason), "outcome", failure(err))
		return nil, nil
	}
	return e.take(ctx, w.with(rev))
}

// take turns a win into a tenure. The bucket's facts are read again unless a release vouches for them: it may have been
// deleted and made again, with another TTL, since they were read. If they cannot be read the win is left
// alone: the next campaign finds it and takes it over.
func (e *Election) take(ctx context.Context, w win) (*tenure, error) {
	f := e.facts.Load()
	if f.created.IsZero() || !w.bucket.Equal(f.created) {
		call, cancel := context.WithTimeout(ctx, f.try())
		defer cancel()
		fresh, err := e.inspect(call)
		switch {
		case errors.Is(err, ErrBucketUnsuitable), errors.Is(err, ErrInvalidOption):
			return nil, errors.Join(err, e.bucket.Delete(call, e.key, jetstream.LastRevision(w.revision)))
		case err != nil:
			e.log.Warn("Key won, but the bucket cannot be looked at", "error", err)
			return nil, nil
		}
		f = fresh
	}
	term := Term{Key: e.key, Name: e.name, Number: w.revision, Bucket: f.created, Since: w.since.Round(0)}
	t := newTenure(ctx, &e.announcer, term, f.timing, w.since, w.acknowledged, w.standDown(f))
	e.lastError.Store(nil)
	e.wait.Store(int64(time.Until(t.next)))
	e.saw(e.record(w.since, 0).leader(e.key, w.revision, w.since.Round(0), f.ttl))
	e.moved(LeaderElectState, w.reason, t)
	return t, nil
}

// record returns the record to be written next.
func (e *Election) record(since time.Time, term uint64) record {
	return record{
		Name: e.name, Instance: e.instance, Attempt: e.attempt(), Since: since.Round(0), Term: term,
		Bucket: e.facts.Load().created, Host: e.host, PID: e.pid, Metadata: e.opts.metadata,
	}
}

// encode returns the bytes to be stored for r.
func (e *Election) encode(r record) []byte {
	if e.opts.plain {
		return []byte(r.Name)
	}
	return r.encode()
}

// saw remembers who holds the key.
func (e *Election) saw(l Leader) {
	if before := e.seen.Swap(&l); before == nil || before.Instance != l.Instance || before.Name != l.Name {
		e.log.Info("Leader seen", "leader", l.Name, "term", l.Term)
	}
}
