package election

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// campaign tries to win the key until it does, first at the given time, after so many campaigns lost in a row. It returns
// nil if ctx ended before, or with an error if the bucket turned out to be unsuitable.
//
// A campaign that has begun is carried through even if ctx ends meanwhile, for a write may have been applied that only
// its sender can clear away: what is won then is released by whoever leads on it.
func (e *Election) campaign(ctx context.Context, due time.Time, lost int) (*tenure, error) {
	e.campaigning.Store(true)
	defer e.campaigning.Store(false)
	for {
		vacancy := e.await(ctx, due, lost)
		e.beat("waiting to be let campaign", time.Time{})
		if e.pass(ctx) {
			due = e.afterGate()
			continue
		}
		if ctx.Err() != nil {
			return nil, nil
		}
		began := time.Now()
		e.busy("campaigning")
		t, err := e.stand(context.WithoutCancel(ctx), vacancy)
		if t != nil || err != nil {
			return t, err
		}
		lost++
		e.countWatchers(ctx, lost, vacancy)
		due = began.Add(e.nextCampaign(lost))
		if soonest := time.Now().Add(minPause); due.Before(soonest) {
			due = soonest
		}
	}
}

// countWatchers looks how many watch the bucket, which is about how many candidates will hear of a vacancy if a leader
// cannot count them. It does so with the campaigns that are made in any case, and not before all that started together do.
func (e *Election) countWatchers(ctx context.Context, lost int, vacancy *change) {
	ear := e.ear.Load()
	if vacancy != nil || lost < openingCampaigns || ear.hub.inUse() != sourceWatch {
		return
	}
	e.busy("counting those who watch")
	ctx, cancel := context.WithTimeout(ctx, e.facts.Load().try()) // meanwhile it answers no vacancy
	defer cancel()
	if f, err := e.inspect(ctx); err == nil {
		ear.guess(f.consumers)
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
		e.busy("asking its Backoff")
		d = min(max(e.opts.backoff.Duration(lost), minPause), f.ttl)
	}
	return d
}

// stand tries once to win the key: over the vacancy that was heard of, else by creating it or, if something stands there
// that may be taken, over that. It returns nil if it did not win, or does not know.
func (e *Election) stand(ctx context.Context, vacancy *change) (*tenure, error) {
	e.announcer.campaign(CandidateState)
	e.metrics.campaigned(CandidateState)
	call, cancel := context.WithTimeout(ctx, e.facts.Load().try())
	defer cancel()

	ear := e.ear.Load()
	w := win{reason: reasonVacant, removal: ear.lastRemoval()}
	if vacancy != nil {
		w = vacancy.win()
		w.follow(vacancy.record)
	} else if c, ok := ear.latest(); ok {
		w.removed = c.removal == removed // even if this is no answer to it
		w.follow(c.record)
	}
	err := e.write(call, &w)
	result := classify(err)
	if vacancy != nil {
		ear.answered(vacancy, result)
	}
	switch {
	case result == applied:
		return e.take(ctx, w)
	case result == refused && vacancy != nil: // somebody else was quicker, or in the way
		e.log.Debug("Campaign lost")
		return nil, nil
	case result == refused:
		e.lastError.Store(nil)
		e.log.Debug("Campaign lost")
		ear.refused()
		return e.claim(ctx)
	case result == unknown:
		e.failed(err)
		e.log.Debug("Campaign in doubt", "error", err)
		return e.claim(ctx)
	default:
		e.failed(err)
		e.log.Debug("Campaign failed", "error", err)
		return nil, nil
	}
}

// win is a write that wins the key.
type win struct {
	over         uint64    // the revision that it is an update of; 0 if it creates the key
	known        time.Time // when that was heard or read
	reason       reason
	removal      uint64        // the revision of the last removal that was heard of before it was sent, if it creates the key
	removed      bool          // whether the key was free because somebody had removed it, as far as was heard
	left         time.Duration // of the stand-down of whoever wrote what was taken over: a release, or a late write of this candidate's own
	bucket       time.Time     // when the bucket was created, in the words of the record that was taken over
	candidates   int           // how many stood in the predecessor's eyes; 0 if that is not known
	uncounted    bool          // whether there was a predecessor, who had not counted them
	heirs        []string      // names of some that stood
	levels       []int         // the highest of their priorities
	revision     uint64        // what comes next is known once it was written
	since        time.Time     // just before it was sent
	acknowledged time.Time
}

// follow takes over from the predecessor how many stand, and who.
func (w *win) follow(predecessor record) {
	w.candidates = predecessor.Candidates
	w.uncounted = predecessor.Name != "" && predecessor.Candidates == 0
	w.heirs, w.levels = predecessor.Heirs, predecessor.Levels
}

// write writes the record that wins the key.
func (e *Election) write(ctx context.Context, w *win) (err error) {
	w.since = time.Now()
	r := e.record(w.since)
	r.Won, r.Candidates, r.Levels, r.Hears = w.reason, w.candidates, w.levels, e.ear.Load().hub.inUse() != sourceNone
	r.StandDownMs = milliseconds(w.standDown(e.facts.Load()))
	if w.over > 0 {
		w.revision, err = e.bucket.Update(ctx, e.key, e.encode(r), w.over)
	} else {
		w.revision, err = e.bucket.Create(ctx, e.key, e.encode(r))
	}
	w.acknowledged = time.Now()
	return err
}

// vouchPatience is for how long a release vouches for the bucket that it stands in: later this may have been made again, and
// the update of the release have hit what has its revision there.
const vouchPatience = 250 * time.Millisecond

// vouched says whether what was taken over vouches for the bucket as it is known by f.
func (w win) vouched(f *facts) bool {
	return w.reason == reasonReleased && w.bucket.Equal(f.created) && w.acknowledged.Sub(w.known) < vouchPatience
}

// standDown returns how long the winner must wait in a bucket that is known by f. A release vouches for its writer, but
// only in the bucket that this leads or led in: one who comes from an earlier bucket released what was not his. What is
// left of another's stand-down is never more than a lease may last. The holder of a key that was removed may be cut off
// just now, and believe for the rest of its lease; so may one whose record was hit by a write that was meant for an
// earlier bucket. A late write of this candidate's own tells what it owed for such a cause.
func (w win) standDown(f *facts) time.Duration {
	longest := max(f.standDown, f.ttl)
	switch {
	case w.removed, w.reason != reasonVacant && !w.bucket.Equal(f.created):
		return longest
	case w.reason == reasonReleased:
		return min(w.left, longest)
	}
	return min(max(f.standDown, w.left), longest)
}

// claim reads what stands under the key and takes it over if it may be taken, by an update of that very revision: a
// release, which names the stand-down that is left, or a late write of this candidate's own, on which it never leads as
// it stands. A release that somebody else is to take over first is left to that one. A candidate that is not permitted to
// read finds nothing here, and waits for the key to expire.
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
	w := win{over: entry.Revision(), known: time.Now()}
	w.follow(prior)
	if left, ok := prior.released(); ok {
		c := changeBy(entry)
		c.record = prior
		if e.ear.Load().leave(c) {
			e.log.Debug("Release left to the candidate that it names", "next", prior.Next)
			return nil, nil
		}
		w.reason, w.left, w.bucket = reasonReleased, left, prior.Bucket
	} else if prior.Instance == e.instance {
		w.reason, w.left, w.bucket = reasonReclaimed, time.Duration(prior.StandDownMs)*time.Millisecond, prior.Bucket
	} else {
		e.ear.Load().read(entry.Revision())
		e.saw(prior.leader(e.key, entry.Revision(), entry.Created(), f.ttl))
		return nil, nil
	}
	if err := e.write(call, &w); err != nil {
		e.log.Debug("Record not taken over", "reason", string(w.reason), "outcome", failure(err))
		return nil, nil
	}
	return e.take(ctx, w)
}

// take turns a win into a tenure. The bucket's facts are read again unless a release vouches for them: it may have been
// deleted and made again, with another TTL, since they were read. If they cannot be read the win is left alone: the next
// campaign finds it and takes it over.
func (e *Election) take(ctx context.Context, w win) (*tenure, error) {
	f := e.facts.Load()
	if f.created.IsZero() || !w.vouched(f) || e.opts.conn() == nil { // without a connection nobody tells it of a pause
		call, cancel := context.WithTimeout(ctx, f.try())
		defer cancel()
		fresh, err := e.inspect(call)
		switch {
		case errors.Is(err, ErrBucketUnsuitable), errors.Is(err, ErrInvalidOption):
			return nil, errors.Join(err, e.giveBack(call, w.revision))
		case err != nil:
			e.log.Warn("Key won, but the bucket cannot be looked at", "error", err)
			return nil, nil
		}
		if e.gate.shut(shutByOperator) {
			e.log.Info("Key won in an election that is paused, giving it back", "error", e.giveBack(call, w.revision))
			return nil, nil
		}
		f = fresh
		if r := e.ear.Load().lastRemoval(); w.over == 0 && r != w.removal && r < w.revision {
			w.removed = true // which was heard only after it was sent
		}
		if h := e.ear.Load().hub; !h.knows(f.created) {
			signal(h.remake)
		}
	}
	term := Term{Key: e.key, Name: e.name, Number: w.revision, Bucket: f.created, Since: w.since.Round(0)}
	t := newTenure(ctx, &e.announcer, term, f.timing, w.since, w.acknowledged, w.standDown(f))
	e.lastError.Store(nil)
	e.wait.Store(int64(time.Until(t.next)))
	t.won, t.candidates, t.uncounted, t.heirs, t.levels = w.reason, w.candidates, w.uncounted, w.heirs, w.levels
	e.saw(e.record(w.since).leader(e.key, w.revision, w.since.Round(0), f.ttl))
	e.moved(LeaderElectState, w.reason, t)
	return t, nil
}

// giveBack deletes a win on which nobody has led.
func (e *Election) giveBack(ctx context.Context, revision uint64) error {
	return e.bucket.Delete(ctx, e.key, jetstream.LastRevision(revision))
}

// record returns the record to be written next, in a term that was won at the given time.
func (e *Election) record(since time.Time) record {
	return record{
		Name: e.name, Instance: e.instance, Attempt: e.attempt(), Started: *e.started.Load(), Since: since.Round(0), Bucket: e.facts.Load().created,
		Host: e.host, PID: e.pid, Priority: e.opts.priority, Metadata: *e.metadata.Load(),
	}
}

// recordOf returns the record that a renewal or release writes which is sent at the given time.
func (e *Election) recordOf(t *tenure, sent time.Time) record {
	r := e.record(t.term.Since)
	r.Term, r.Won = t.number(sent), t.won
	if r.Term == 0 { // what is left of our own wait for a previous leader is to be waited out by whoever takes this over
		r.StandDownMs = milliseconds(t.counts.Sub(sent))
	}
	ear := e.ear.Load()
	r.Candidates = ear.candidates(e.instance, t.candidates, t.uncounted, t.term.Since)
	r.Levels = ear.levels(e.instance, t.levels, t.term.Since)
	return r
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
	before := e.seen.Swap(&l)
	e.announcer.leads(l)
	if l.Instance != e.instance && (before == nil || before.Instance != l.Instance || before.Name != l.Name) {
		e.log.Info("Leader seen", "leader", l.Name, "term", l.Term)
	}
}
