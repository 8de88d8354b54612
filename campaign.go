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
	e.ear.Load().forget()
	e.ear.Load().lookAgain(time.Now())
	for {
		var prompted bool
		due, prompted = e.await(ctx, due, lost)
		if ctx.Err() != nil {
			return nil, nil
		}
		began := time.Now()
		e.busy("campaigning")
		t, attempted, err := e.tryToWin(context.WithoutCancel(ctx), prompted, lost)
		if t != nil || err != nil {
			return t, err
		}
		if !attempted {
			if !prompted { // it leaves a release to the candidate that this names, until its turn comes
				due = began.Add(e.facts.Load().interval)
			}
			continue
		}
		lost++
		e.countWatchers(ctx, lost, prompted)
		due = began.Add(e.nextCampaign(lost))
		if soonest := time.Now().Add(minPause); due.Before(soonest) {
			due = soonest
		}
	}
}

// countWatchers looks how many watch the bucket, which is about how many candidates are notified of a vacancy if a leader
// cannot count them. It does so with the campaigns that are made in any case, and not before all that started together do.
func (e *Election) countWatchers(ctx context.Context, lost int, prompted bool) {
	ear := e.ear.Load()
	if prompted || lost < openingCampaigns || ear.hub.inUse() != sourceWatch {
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

// tryToWin reads the key and, if it may be taken, writes over exactly what was read: by an update of a release, of a marker or
// of a late write of this candidate's own, or by creating the key where nothing is stored. It returns no tenure if it did not
// win, or does not know, and whether it campaigned at all: it need not if it was prompted to read the key.
func (e *Election) tryToWin(ctx context.Context, prompted bool, lost int) (t *tenure, campaigned bool, err error) {
	if !prompted {
		e.campaigned()
	}
	if e.unsurveyed {
		if err := e.surveyAgain(ctx); err != nil {
			return nil, !prompted, unfit(err)
		}
		e.unsurveyed = false
	}
	s, notified, err := e.look(ctx)
	if !e.gate.open() {
		return nil, false, nil
	}
	switch {
	case err != nil && !prompted: // reading may fail for good where writing does not
		_, predecessor := e.ear.Load().state()
		t, err = e.contest(ctx, e.creation(predecessor), false)
		return t, true, err
	case err != nil:
		return nil, false, nil
	case s.held() && s.record.Instance != e.instance:
		if prompted || !e.ear.Load().announces(lost) {
			return nil, !prompted, nil
		}
		t, err = e.contest(ctx, e.creation(s.record), false) // so that the leader gets to know of this candidate
		return t, true, err
	case prompted && (e.ear.Load().wasOwn(s) || s.removal == gone && !notified):
		return nil, false, nil // until its next campaign is due
	case s.vacant() && s.removal != gone && (prompted || e.opts.fair || s.record.headStart(e.name) > 0):
		if turn := e.ear.Load().answerAt(s); time.Now().Before(turn) {
			e.ear.Load().lookAgain(turn)
			return nil, false, nil
		}
	}
	if prompted {
		e.campaigned()
	}
	t, err = e.contest(ctx, e.winOver(s), true)
	return t, true, err
}

// campaigned makes a campaign known.
func (e *Election) campaigned() {
	e.announcer.campaign(CandidateState)
	e.metrics.campaigned(CandidateState)
}

// surveyAgain reads the facts of the bucket, which could not be read when the key was won last. Until they can, this candidate does
// not campaign: it could not lead, and would keep the key from others.
func (e *Election) surveyAgain(ctx context.Context) error {
	f := e.facts.Load()
	ctx, cancel := context.WithTimeout(ctx, f.try())
	defer cancel()
	_, err := e.inspect(ctx)
	if err != nil {
		e.log.Debug("Not campaigning: the bucket cannot be looked at", "error", err)
		e.ear.Load().holdBack(time.Now().Add(f.interval))
	}
	return err
}

// unfit returns err if it says that the bucket, or an option on this bucket, is wrong.
func unfit(err error) error {
	if errors.Is(err, ErrBucketUnsuitable) || errors.Is(err, ErrInvalidOption) {
		return err
	}
	return nil
}

// look reads the key, and makes known who holds it. It says whether a notification of a vacancy was the reason.
func (e *Election) look(ctx context.Context) (s keyState, notified bool, err error) {
	f := e.facts.Load()
	patience := f.try()
	if !e.blind.answered { // it may not be permitted, and then nobody answers
		patience = min(patience, max(f.ttl/20, readyTrips*f.took))
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	notified, done := e.ear.Load().looking()
	s, err = e.readKey(ctx)
	done(s, err)
	switch {
	case err != nil:
		if !errors.Is(err, errUnreadable) {
			e.failed(err)
		}
		e.log.Debug("Key not read", "error", err)
	case s.held():
		e.lastError.Store(nil)
		e.saw(s.record.leader(e.key, s.revision, s.written, f.ttl))
	default:
		e.lastError.Store(nil)
		e.announcer.leads(Leader{})
	}
	if s.record.Bucket.After(f.created) {
		e.bucketMayBeNew(ctx)
	}
	return s, notified, err
}

// bucketMayBeNew looks whether the bucket was made again, as a record in it says. The source of notifications is then made again too.
func (e *Election) bucketMayBeNew(ctx context.Context) {
	f, err := e.inspect(ctx)
	if h := e.ear.Load().hub; err == nil && !h.knows(f.created) {
		signal(h.remake)
	}
}

// contest makes the write that may win the key. If it is not known what became of the write the key is read again: a write of this
// candidate's own that is found there is taken over by a fresh one. A write over a vacancy that came to nothing is made again soon.
func (e *Election) contest(ctx context.Context, w win, vacancy bool) (*tenure, error) {
	ear := e.ear.Load()
	for again := true; ; again = false {
		e.busy("campaigning")
		call, cancel := context.WithTimeout(ctx, e.facts.Load().try())
		err := e.write(call, &w)
		cancel()
		result := classify(err)
		if result == applied || result == refused {
			e.wroteBlindly()
		}
		switch result {
		case applied:
			return e.take(ctx, w)
		case refused:
			e.lastError.Store(nil)
			e.log.Debug("Campaign lost")
		default:
			e.failed(err)
			e.log.Debug("Campaign failed", "outcome", failure(err), "error", err)
		}
		e.mayArrive = e.mayArrive || result == unknown
		if result == unknown && again {
			if s, _, err := e.look(ctx); err == nil && s.held() && s.record.Instance == e.instance {
				w = e.winOver(s)
				continue
			}
		}
		if vacancy {
			ear.answerFailed()
		}
		return nil, nil
	}
}

// win is a write that wins the key.
type win struct {
	over         uint64    // the revision that it is an update of; 0 if it creates the key
	read         time.Time // when that revision was read
	reason       reason
	removal      uint64        // the revision of the last removal that was notified before it was sent, if it creates the key
	removed      bool          // whether the key was free because somebody had removed it, as far as is known
	left         time.Duration // of the stand-down of whoever wrote what was taken over: a release, or a late write of this candidate's own
	bucket       time.Time     // when the bucket was created, in the words of the record that was taken over
	interval     time.Duration // from one renewal of the predecessor to the next; 0 if that is not known
	candidates   int           // how many stood in the predecessor's eyes; 0 if that is not known
	uncounted    bool          // whether there was a predecessor, who had not counted them
	heirs        []string      // names of some that stood
	levels       []int         // the highest of their priorities
	revision     uint64        // what comes next is known once it was written
	since        time.Time     // just before it was sent
	acknowledged time.Time
}

// creation returns the win of a key where no record is to be written over, after the given predecessor.
func (e *Election) creation(predecessor record) win {
	ear := e.ear.Load()
	removed, owed := ear.past()
	w := win{reason: reasonVacant, removal: removed, removed: removed > 0, left: owed}
	w.follow(predecessor)
	return w
}

// winOver returns the win of a key that was read to be vacant, or to hold a late write of this candidate's own.
func (e *Election) winOver(s keyState) win {
	_, predecessor := e.ear.Load().state()
	if s.removal == gone {
		return e.creation(predecessor)
	}
	// A release that the history went back to proves nothing: another leader may have followed it.
	w := win{over: s.revision, read: s.read, reason: reasonVacant, removed: s.removal == removed || e.ear.Load().rewound(s.revision)}
	if s.removal == kept {
		predecessor = s.record
		w.bucket = s.record.Bucket
		if left, released := s.record.released(); released {
			w.reason, w.left = reasonReleased, left
		} else {
			w.reason, w.left = reasonReclaimed, time.Duration(s.record.StandDownMs)*time.Millisecond
		}
	}
	w.follow(predecessor)
	return w
}

// follow takes over from the predecessor how many stand, and who.
func (w *win) follow(predecessor record) {
	w.candidates = predecessor.Candidates
	w.uncounted = predecessor.Name != "" && predecessor.Candidates == 0
	w.heirs, w.levels = predecessor.Heirs, predecessor.Levels
	w.interval = predecessor.interval()
}

// write writes the record that wins the key.
func (e *Election) write(ctx context.Context, w *win) (err error) {
	w.since = time.Now()
	r := e.record(w.since)
	r.Won, r.Candidates, r.Levels, r.Hears = w.reason, w.candidates, w.levels, e.notifiedBy() != sourceNone
	r.StandDownMs = milliseconds(w.standDown(e.facts.Load()))
	switch {
	case w.over > 0:
		w.revision, err = e.bucket.Update(ctx, e.key, e.encode(r), w.over)
	case e.unreadable.Load(), e.blind.suspected: // Create would read what it is refused over
		w.revision, err = e.bucket.Update(ctx, e.key, e.encode(r), 0)
	default:
		w.revision, err = e.bucket.Create(ctx, e.key, e.encode(r))
	}
	w.acknowledged = time.Now()
	return err
}

// verifiedFor is for how long the release that was read tells which bucket is written to: later this may have been made again, and
// the update of the release have hit what has its revision there.
const verifiedFor = 250 * time.Millisecond

// verified says whether what was taken over proves that the bucket is still the one known by f.
func (w win) verified(f *facts) bool {
	return w.reason == reasonReleased && w.bucket.Equal(f.created) && w.acknowledged.Sub(w.read) < verifiedFor
}

// standDown returns how long the winner must wait in a bucket that is known by f. A release proves that its writer's work has
// ended, but only in the bucket that this led in: a release written for an earlier incarnation of the bucket proves nothing.
// What is left of another's stand-down is never more than a lease may last. A leader whose key was removed may be partitioned,
// and then considers itself leader until its lease ends; so does a leader whose record was hit by a write that was meant for an
// earlier bucket. A late write of this candidate's own tells what it owed for such a cause. By default a predecessor whose interval was
// longer than this candidate's is given that time: it learns of its loss by its next renewal.
func (w win) standDown(f *facts) time.Duration {
	longest := max(f.standDown, f.ttl)
	usual := f.standDown
	if f.standDownByDefault {
		usual = max(usual, min(w.interval, f.ttl))
	}
	switch {
	case w.removed, w.reason != reasonVacant && !w.bucket.Equal(f.created):
		return longest
	case w.reason == reasonReleased:
		return min(w.left, longest)
	}
	return min(max(usual, w.left), longest)
}

// take turns a win into a tenure. The bucket's facts are read again unless a release proves them: it may have been
// deleted and made again, with another TTL, since they were read. A win on which this candidate cannot lead is abandoned.
func (e *Election) take(ctx context.Context, w win) (*tenure, error) {
	e.busy("taking the key that it won")
	f := e.facts.Load()
	ear := e.ear.Load()
	if f.created.IsZero() || !w.verified(f) || e.opts.conn() == nil || !ear.hub.pauseKnown.Load() {
		call, cancel := context.WithTimeout(ctx, f.try())
		defer cancel()
		fresh, err := e.inspect(call)
		if err != nil {
			e.unsurveyed = true
			ear.holdBack(time.Now().Add(f.ttl)) // so that others get the key, whatever becomes of the release
			e.abandon(ctx, w, "the bucket cannot be looked at", err)
			return nil, unfit(err)
		}
		if e.gate.shut(shutByOperator) {
			e.abandon(ctx, w, "the election is paused", nil)
			return nil, nil
		}
		f = fresh
		if r, _ := ear.past(); w.over == 0 && r > w.removal && r < w.revision {
			w.removed = true // which was notified only after it was sent
		}
		if !ear.hub.knows(f.created) {
			signal(ear.hub.remake)
		}
	}
	term := Term{Key: e.key, Name: e.name, Number: w.revision, Bucket: f.created, Since: w.since.Round(0)}
	t := newTenure(ctx, &e.announcer, term, f.timing, w.since, w.acknowledged, w.standDown(f))
	e.lastError.Store(nil)
	e.wait.Store(int64(time.Until(t.next)))
	t.won, t.candidates, t.uncounted, t.heirs, t.levels = w.reason, w.candidates, w.uncounted, w.heirs, w.levels
	r := e.record(w.since)
	ear.wrote(w.revision, r)
	e.saw(r.leader(e.key, w.revision, w.since.Round(0), f.ttl))
	e.moved(LeaderElectState, w.reason, t)
	return t, nil
}

// abandon releases a win on which nobody has led, with all of the stand-down that it owed. Where a callback does not return soon the key
// is left to expire.
func (e *Election) abandon(ctx context.Context, w win, why string, cause error) {
	e.busy("giving up the key that it won")
	f := e.facts.Load()
	ctx, cancel := context.WithTimeout(ctx, f.try())
	defer cancel()
	if unfit(cause) != nil { // where a release might never expire
		e.log.Warn("Key won, but not kept", "why", why, "cause", cause, "error", e.bucket.Delete(ctx, e.key, jetstream.LastRevision(w.revision)))
		return
	}
	select {
	case <-e.announcer.silence():
	case <-ctx.Done():
	}
	r := e.record(w.since)
	r.Won, r.Released, r.StandDownMs = w.reason, time.Now().Round(0), milliseconds(w.standDown(f))
	var revision uint64
	err := ctx.Err()
	if err == nil {
		revision, err = e.bucket.Update(ctx, e.key, r.encode(), w.revision)
	}
	e.log.Warn("Key won, but not kept", "why", why, "cause", cause, "error", err)
	if err == nil && (e.opts.plain || !f.markers) {
		e.deleteRelease(ctx, revision)
	}
}

// record returns the record to be written next, in a term that was won at the given time.
func (e *Election) record(since time.Time) record {
	return record{
		Name: e.name, Instance: e.instance, Attempt: e.attempt(), Started: *e.started.Load(), Since: since.Round(0), Bucket: e.facts.Load().created,
		Host: e.host, PID: e.pid, Priority: e.opts.priority, Metadata: *e.metadata.Load(), IntervalMs: milliseconds(e.facts.Load().interval),
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
