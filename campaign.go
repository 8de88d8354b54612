package election

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/notify"
	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/settings"
	"github.com/natscampaign/election/internal/timeutil"
)

const (
	// fallbackPoll is after how many TTLs on average a candidate campaigns though it is notified of renewals.
	fallbackPoll = 80
	// fallbackPollUnmarked is the same where expiries are not announced: there a forged renewal may hide that the leader is gone.
	fallbackPollUnmarked = 8
)

// campaign tries to win the key until it does, first at the given time, after so many campaigns lost in a row. It returns nil if ctx
// ended before, or with an error if the bucket turned out to be unsuitable.
//
// A campaign that has begun is carried through even if ctx ends meanwhile: a write may have been applied that only its sender can undo.
// The term that it wins then is released by lead.
func (r *run) campaign(ctx context.Context, due time.Time, lost int) (*activeTerm, error) {
	r.campaigning.Store(true)
	defer r.campaigning.Store(false)
	r.listener.Forget()
	for {
		var hinted bool
		due, hinted = r.wait(ctx, due, lost)
		if ctx.Err() != nil {
			return nil, nil
		}
		began := time.Now()
		r.watchdog.busy("campaigning")
		t, attempted, err := r.tryToWin(context.WithoutCancel(ctx), hinted, lost)
		if t != nil || err != nil {
			return t, err
		}
		if !attempted {
			if !hinted { // its turn to answer a vacancy comes later
				due = began.Add(r.info().Interval)
			}
			continue
		}
		lost++
		due = timeutil.Later(began.Add(r.nextCampaign(lost)), time.Now().Add(settings.MinPause))
	}
}

// wait waits for the next campaign, which is due at the given time, or for a hint that is reason to read the key before. It returns when
// the campaign is due after all: later than given if something held the candidate back meanwhile.
func (r *run) wait(ctx context.Context, due time.Time, lost int) (next time.Time, hinted bool) {
	info := r.info()
	poll := time.Duration(fallbackPoll)
	if info.MarkerTTL <= 0 {
		poll = fallbackPollUnmarked
	}
	fallback := time.Now().Add(info.Timing.TTL*poll/2 + timeutil.Random(info.Timing.TTL*poll))
	timer := time.NewTimer(0)
	defer timer.Stop()
	held := false
	for ctx.Err() == nil {
		changed := r.holds.wait()
		free := r.holds.none()
		if free && held {
			due, held = timeutil.Later(due, r.afterHold()), false
		}
		rely := lost >= notify.OpeningCampaigns && r.now.Load().source() != notify.None
		campaign := r.listener.NextCampaign(due, fallback, rely)
		now := time.Now()
		at := campaign
		switch {
		case !free:
			r.watchdog.expect("waiting until nothing holds it back", time.Time{})
			held, at = true, r.reloadDue()
			if !now.Before(at) {
				r.reloadBucket(ctx)
				continue
			}
		case !now.Before(campaign):
			return due, false
		default:
			r.watchdog.expect("waiting for its next campaign", campaign)
			if ask := r.preemptionDue(); !ask.IsZero() && ask.Before(at) {
				if !now.Before(ask) {
					r.preempt(ctx)
					continue
				}
				at = ask
			}
		}
		if stalled := r.listener.CheckStalled(); !stalled.IsZero() {
			at = timeutil.Earlier(at, stalled)
		}
		if read := r.readDue(); !read.IsZero() {
			if !now.Before(read) {
				return due, true
			}
			at = timeutil.Earlier(at, read)
		}
		timer.Reset(time.Until(at))
		select {
		case <-ctx.Done():
		case <-changed:
		case <-timer.C:
		case <-r.listener.News():
		}
	}
	return due, false
}

// afterHold returns when to campaign after the last hold was removed: it may have been removed for many candidates at once.
func (r *run) afterHold() time.Time {
	return time.Now().Add(timeutil.Random(r.info().Splay))
}

// tryToWin reads the key and, if it may be taken, writes over exactly what was read: by an update of a release, of a marker or of a late
// write of this candidate's own, or by creating the key where nothing is stored. It returns no term if it did not win, or cannot know,
// and whether it campaigned at all: it need not if only a hint had it read the key.
func (r *run) tryToWin(ctx context.Context, hinted bool, lost int) (t *activeTerm, campaigned bool, err error) {
	if !hinted {
		r.campaigned()
	}
	s, vacancy, err := r.look(ctx)
	if !r.holds.none() {
		return nil, false, nil
	}
	switch {
	case err != nil && !hinted: // reading may fail for good where writing does not
		if r.unanswered && !r.receivesReplies(ctx) {
			return nil, true, nil
		}
		_, predecessor := r.listener.State()
		t, err = r.contest(ctx, r.creation(predecessor), false)
		return t, true, err
	case err != nil:
		return nil, false, nil
	case s.Held() && s.Record.Instance != r.instance:
		if !r.listener.ShouldAnnounce(hinted, lost) {
			return nil, !hinted, nil
		}
		t, err = r.announce(ctx, s)
		return t, true, err
	case hinted && (r.listener.IsOwnVacancy(s) || s.Removal == kv.Gone && !vacancy):
		return nil, false, nil // until its next campaign is due
	case s.Vacant() && s.Removal != kv.Gone && (hinted || r.listener.Yields(s)):
		turn := r.listener.AnswerAt(s)
		if !time.Now().Before(turn) {
			break
		}
		if r.opts.order == notify.ByArrival && r.listener.ShouldAnnounce(hinted, lost) {
			t, err = r.announce(ctx, s)
		}
		r.listener.ReadBy(turn)
		return t, false, err
	}
	if hinted {
		r.campaigned()
	}
	if r.opts.order == notify.ByArrival { // before the win, so that the attempts of all who come from then on are seen
		r.listener.RecordAttempts(true)
	}
	if t, err = r.contest(ctx, r.acquisitionOver(s), true); t == nil {
		r.listener.RecordAttempts(false)
	}
	return t, true, err
}

// announce makes an attempt that is refused, unless what was read is gone meanwhile: those who record attempts see this candidate.
func (r *run) announce(ctx context.Context, s kv.State) (*activeTerm, error) {
	a := r.creation(s.Record)
	a.read = s.Read
	return r.contest(ctx, a, false)
}

// withdraw makes an attempt that is always refused, and that tells those who record attempts that this candidate, which announced itself,
// does not wait any more.
func (r *run) withdraw() {
	if r.bucket.Conn() == nil || !r.listener.Announced() {
		return
	}
	rec := r.record(time.Now())
	rec.Withdrawn = true
	r.log.Debug("Withdrawn", "answer", r.updateNever(context.Background(), rec))
}

// receivesReplies reports whether the server's replies arrive, by an attempt that is always refused. A candidate that neither reads the key nor
// receives the reply to its creation would hold the key without knowing, again and again, and nobody could lead.
func (r *run) receivesReplies(ctx context.Context) bool {
	r.watchdog.busy("asking whether replies arrive")
	err := r.updateNever(ctx, r.record(time.Now()))
	outcome := kv.Classify(err)
	r.writeAnswered(outcome)
	if r.unanswered = outcome == kv.Unknown; r.unanswered {
		r.requestFailed(err)
		r.log.Debug("Key not created, because no reply arrives", "error", kv.Describe(err))
	}
	return !r.unanswered
}

// updateNever makes an update that the server refuses whenever it arrives, and returns the answer.
func (r *run) updateNever(ctx context.Context, rec record.Record) error {
	ctx, cancel := context.WithTimeout(ctx, r.info().RequestTimeout())
	defer cancel()
	_, err := r.bucket.Update(ctx, r.key, r.encode(rec), neverRevision)
	return err
}

// neverRevision is a revision that no key reaches.
const neverRevision = 1 << 62

// campaigned reports a campaign.
func (r *run) campaigned() {
	r.calls.campaign(CandidateState)
	r.metrics.campaigned(CandidateState)
}

// reloadBucket loads the bucket's info for a candidate that is held back: nobody may report that an operator has resumed the election, or
// that the connection was closed.
func (r *run) reloadBucket(ctx context.Context) {
	r.reloaded = time.Now()
	if !r.holds.has(holdPausedByOperator) && !r.holds.has(holdBucketUnknown) && r.listener.Source() != notify.None {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, r.info().RequestTimeout())
	defer cancel()
	if _, err := r.loadBucket(ctx); kv.IsUnfit(err) {
		r.holds.set(holdBucketUnknown, false) // its next win ends the run with that error
	}
}

// reloadDue returns when reloadBucket is to be called.
func (r *run) reloadDue() time.Time {
	info := r.info()
	if r.holds.has(holdBucketUnknown) {
		return r.reloaded.Add(info.RequestTimeout())
	}
	return timeutil.Later(info.Read, r.reloaded).Add(info.Interval)
}

// look reads the key, and reports the leader. It returns whether a notification of a vacancy was the reason to read.
func (r *run) look(ctx context.Context) (s kv.State, vacancy bool, err error) {
	info := r.info()
	ctx, cancel := context.WithTimeout(ctx, r.readTimeout())
	defer cancel()
	vacancy, done := r.listener.BeginRead()
	s, err = r.readKey(ctx)
	done(s, err)
	switch {
	case err != nil:
		if !errors.Is(err, errUnreadable) {
			r.requestFailed(err)
		}
		r.log.Debug("Key not read", "error", err)
	case s.Held():
		r.requestSucceeded()
		r.sawLeader(leaderOf(s.Record, r.key, s.Revision, s.Written, info.Timing.TTL))
	default:
		r.requestSucceeded()
		r.calls.leads(Leader{})
	}
	if s.Record.BucketCreated.After(info.Created) { // the bucket was made again, as a record in it says
		served{r}.Refresh(ctx)
	}
	return s, vacancy, err
}

// contest makes the write that may win the key. If its outcome is unknown the key is read again: a write of this candidate's own that is
// found there is adopted by a fresh one. A write over a vacancy that fails is made again soon.
func (r *run) contest(ctx context.Context, a acquisition, vacancy bool) (*activeTerm, error) {
	for again := true; ; again = false {
		r.watchdog.busy("campaigning")
		call, cancel := context.WithTimeout(ctx, r.info().RequestTimeout())
		err := r.acquire(call, &a)
		cancel()
		outcome := kv.Classify(err)
		r.writeAnswered(outcome)
		switch outcome {
		case kv.Applied:
			r.listener.Won(a.revision)
			return r.newTerm(ctx, a)
		case kv.Refused:
			r.requestSucceeded()
			r.log.Debug("Campaign lost")
		default:
			r.requestFailed(err)
			r.log.Debug("Campaign failed", "outcome", kv.Failure(err), "error", kv.Describe(err))
		}
		r.unanswered = outcome == kv.Unknown
		r.givenUp = r.givenUp || r.unanswered
		if outcome == kv.Unknown && again {
			if s, _, err := r.look(ctx); err == nil && s.HeldBy(r.instance) {
				a = r.acquisitionOver(s)
				continue
			}
		}
		if vacancy {
			r.listener.AnswerFailed()
		}
		return nil, nil
	}
}

// acquisition is a write that wins the key.
type acquisition struct {
	over          uint64    // the revision that it is an update of; 0 if it creates the key
	read          time.Time // when the key was read; zero if it could not be
	reason        Reason
	removal       uint64        // the revision of the last removal that was notified before it was sent, if it creates the key
	removed       bool          // the key was free because somebody had removed it, as far as is known
	left          time.Duration // of the stand-down of the writer of what was taken over: a release, or a late write of this candidate's own
	bucketCreated time.Time     // when the bucket was created, by the record that was taken over
	named         bool          // the release that was taken over names this candidate
	queue         []string      // those that come after it in the queue that this release lists
	interval      time.Duration // from one renewal of the predecessor to the next; 0 if that is not known
	successors    []string      // names of candidates that the predecessor knew
	priorities    []int         // the highest of their priorities
	since         time.Time     // just before the write was sent
	written       record.Record // by it
	revision      uint64        // of the write
	acknowledged  time.Time
}

// creation returns the acquisition of a key where no record is to be written over, after the given predecessor.
func (r *run) creation(predecessor record.Record) acquisition {
	removed, inherited := r.listener.Past()
	a := acquisition{reason: ReasonVacant, removal: removed, removed: removed > 0, left: inherited}
	a.inherit(predecessor)
	return a
}

// acquisitionOver returns the acquisition of a key that was read to be vacant, or to hold a late write of this candidate's own.
func (r *run) acquisitionOver(s kv.State) acquisition {
	_, predecessor := r.listener.State()
	if s.Removal == kv.Gone {
		a := r.creation(predecessor)
		a.read = s.Read
		return a
	}
	// A release to which the history was rewound proves nothing: another leader may have followed it.
	a := acquisition{over: s.Revision, read: s.Read, reason: ReasonVacant, removed: s.Removal == kv.Removed || r.listener.IsRewound(s.Revision)}
	if s.Removal == kv.Kept {
		predecessor = s.Record
		a.bucketCreated = s.Record.BucketCreated
		if left, released := s.Record.IsRelease(); released {
			a.reason, a.left = ReasonReleased, left
			var place int
			place, a.named = s.Record.Place(r.name, r.instance)
			a.queue = s.Record.QueueAfter(place)
		} else {
			a.reason, a.left = ReasonReclaimed, time.Duration(s.Record.StandDownMs)*time.Millisecond
		}
	}
	a.inherit(predecessor)
	return a
}

// inherit takes over what the predecessor knew of the candidates.
func (a *acquisition) inherit(predecessor record.Record) {
	a.successors, a.priorities = predecessor.Successors, predecessor.Priorities
	a.interval = predecessor.Interval()
}

// acquire makes the write.
func (r *run) acquire(ctx context.Context, a *acquisition) (err error) {
	a.since = time.Now()
	rec := r.record(a.since)
	rec.Won, rec.Priorities, rec.Notified = string(a.reason), a.priorities, r.now.Load().source() != notify.None
	rec.StandDownMs = record.Milliseconds(a.standDown(r.info()))
	rec.Leads = a.named && rec.StandDownMs == 0 && !r.opts.PlainValue
	switch {
	case a.over > 0:
		a.revision, err = r.bucket.Update(ctx, r.key, r.encode(rec), a.over)
	case r.now.Load().unreadable, r.reads.suspected, r.bucket.Conn() != nil && !a.read.IsZero():
		// This is the first step of Create, which then reads what it is refused over, and writes over a marker that nobody has read.
		a.revision, err = r.bucket.Update(ctx, r.key, r.encode(rec), 0)
	default:
		a.revision, err = r.bucket.Create(ctx, r.key, r.encode(rec))
	}
	a.acknowledged = time.Now()
	if a.written = rec; rec.Leads {
		a.written.Term = a.revision
	}
	return err
}

// verifiedFor is for how long a release that was read proves what the update of it was written over: later the bucket may have been made
// again, or gone back to an earlier state, and the update may have hit another record that has the release's revision there. Leadership
// counts from such a win only once it is renewed.
const verifiedFor = 250 * time.Millisecond

// verified reports whether what was taken over proves that the bucket is still the one described by info.
func (a acquisition) verified(info *bucketInfo) bool {
	return a.reason == ReasonReleased && a.bucketCreated.Equal(info.Created) && a.acknowledged.Sub(a.read) < verifiedFor
}

// standDown returns how long the winner must wait in the bucket described by info. A release proves that its writer's work has ended,
// but only in the bucket that the writer led in: a release written for an earlier incarnation of the bucket proves nothing. What is left
// of another candidate's stand-down is never more than a lease may last. A leader whose key was removed may be partitioned, and then
// considers itself leader until its lease ends; so does a leader whose record was hit by a write that was meant for an earlier bucket. A
// late write of this candidate's own says what stand-down it had for such a cause. By default a predecessor whose interval was longer than this
// candidate's is given that time: it learns of its loss by its next renewal.
func (a acquisition) standDown(info *bucketInfo) time.Duration {
	longest := max(info.StandDown, info.Timing.TTL)
	usual := info.StandDown
	if info.DefaultStandDown {
		usual = max(usual, min(a.interval, info.Timing.TTL))
	}
	switch {
	case a.removed, a.reason != ReasonVacant && !a.bucketCreated.Equal(info.Created):
		return longest
	case a.reason == ReasonReleased:
		return min(a.left, longest)
	}
	return min(max(usual, a.left), longest)
}

// newTerm turns an acquisition into a term. The bucket's info is loaded again unless a release proves it: the bucket may have been
// deleted and made again, with another TTL, since the info was loaded. An acquisition on which this candidate cannot lead is abandoned.
func (r *run) newTerm(ctx context.Context, a acquisition) (*activeTerm, error) {
	r.watchdog.busy("checking the bucket of the key that it won")
	info := r.info()
	if info.Created.IsZero() || !a.verified(info) || r.bucket.Conn() == nil || info.Read.Before(r.listener.ConnectedAt()) {
		call, cancel := context.WithTimeout(ctx, info.RequestTimeout())
		defer cancel()
		fresh, err := r.loadBucket(call)
		if err != nil {
			r.reloaded = time.Now()
			r.holds.set(holdBucketUnknown, true) // others, who can lead, are to get the key
			r.abandon(ctx, a, "the bucket's info cannot be loaded", err)
			if kv.IsUnfit(err) {
				return nil, err
			}
			return nil, nil
		}
		info = fresh
		if removed, _ := r.listener.Past(); a.over == 0 && removed > a.removal && removed < a.revision {
			a.removed = true // which was notified only after the write was sent
		}
		if !r.listener.InBucket(info.Created) {
			r.listener.Remake()
		}
	}
	if r.holds.has(holdPausedByOperator) {
		r.abandon(ctx, a, "the election is paused", nil)
		return nil, nil
	}
	term := Term{Key: r.key, Name: r.name, Number: a.revision, BucketCreated: info.Created, Since: a.since.Round(0)}
	standDown := a.standDown(info)
	t := newActiveTerm(ctx, r.calls, term, info.Timing, a.since, a.acknowledged, standDown)
	t.owner = &r.config
	t.won, t.successors, t.priorities, t.queue = a.reason, a.successors, a.priorities, a.queue
	t.leadsAtOnce = a.written.Leads && standDown == 0 && a.verified(info) && !info.Created.IsZero() && r.listener.InBucket(info.Created)
	r.requestSucceeded()
	r.setWait(time.Until(t.next))
	r.listener.Wrote(a.revision, a.written)
	r.sawLeader(leaderOf(a.written, r.key, a.revision, a.since.Round(0), info.Timing.TTL))
	r.stateChanged(LeaderElectState, a.reason, t)
	return t, nil
}

// abandon releases an acquisition on which this candidate has not led, with all of its stand-down. Where a callback does not
// return soon the key is left to expire.
func (r *run) abandon(ctx context.Context, a acquisition, why string, cause error) {
	r.watchdog.busy("abandoning the key that it won")
	info := r.info()
	ctx, cancel := context.WithTimeout(ctx, info.RequestTimeout())
	defer cancel()
	if kv.IsUnfit(cause) { // where a release might never expire
		err := r.bucket.Delete(ctx, r.key, jetstream.LastRevision(a.revision))
		r.log.Warn("Key won, but not kept", "why", why, "cause", cause, "error", kv.Describe(err))
		return
	}
	err := waitFor(ctx, r.calls.quiet())
	var revision uint64
	if err == nil {
		rec := r.record(a.since)
		rec.Won, rec.Released, rec.StandDownMs = string(a.reason), time.Now().Round(0), record.Milliseconds(a.standDown(info))
		revision, err = r.bucket.Update(ctx, r.key, rec.Encode(), a.revision)
	}
	r.log.Warn("Key won, but not kept", "why", why, "cause", cause, "error", kv.Describe(err))
	if err == nil && r.plainCandidates() {
		r.deleteRelease(ctx, revision)
	}
}
