package election

import (
	"context"
	"errors"
	"time"

	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/notify"
	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/settings"
	"github.com/natscampaign/election/internal/timeutil"
)

const (
	// fallbackPoll is after how many TTLs on average a candidate campaigns though it is notified of renewals.
	fallbackPoll = 80
	// fallbackPollUnmarked is the same where expiries are not announced, because there a forged renewal may hide that the leader is gone,
	// and for a candidate whose last write failed, which shows that until a write is answered.
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
	r.stored.refused = nil // the bucket may take larger records by now
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
	if info.markerTTL <= 0 || r.writeFailed() {
		poll = fallbackPollUnmarked
	}
	fallback := time.Now().Add(info.TTL*poll/2 + timeutil.Random(info.TTL*poll))
	held, paused := false, false
	for ctx.Err() == nil {
		free := r.holds.none()
		switch now := time.Now(); {
		case !free || !held:
		case paused && !r.listener.Held(): // an operator had all candidates wait: they answer as they do a vacancy
			due, held, paused = now.Add(timeutil.Random(r.info().Spread())), false, false
		default: // the hold may have been removed for many candidates at once
			due, held, paused = timeutil.Later(due, now.Add(timeutil.Random(r.info().Splay))), false, false
		}
		rely := lost >= notify.OpeningCampaigns && r.now.Load().source() != notify.None
		campaign := r.listener.NextCampaign(due, fallback, rely)
		now := time.Now()
		at := campaign
		switch {
		case !free:
			r.watchdog.expect("waiting until nothing holds it back", time.Time{})
			held, at = true, r.reloadDue()
			paused = paused || r.holds.has(holdPausedByOperator)
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
		if overdue := r.listener.RenewalOverdue(); !overdue.IsZero() {
			if !now.Before(overdue) {
				r.listener.RenewalMissed()
				r.suspectConnection()
				continue
			}
			at = timeutil.Earlier(at, overdue)
		}
		if stalled := r.listener.CheckStalled(); !stalled.IsZero() {
			at = timeutil.Earlier(at, stalled)
		}
		if read := r.readDue(); !read.IsZero() && !r.holds.has(holdBucketUnusable) {
			if !now.Before(read) {
				return due, true
			}
			at = timeutil.Earlier(at, read)
		}
		r.sleep(ctx, at)
	}
	return due, false
}

// tryToWin reads the key and, if it may be taken, writes over exactly what was read: by an update of a release, of a marker or of a late
// write of this candidate's own, or by creating the key where nothing is stored. It returns no term if it did not win, or cannot know,
// and whether it campaigned at all: it need not if only a hint had it read the key.
func (r *run) tryToWin(ctx context.Context, hinted bool, lost int) (t *activeTerm, campaigned bool, err error) {
	if !hinted {
		r.campaigned(CandidateState)
	}
	s, vacancy, err := r.look(ctx)
	if !errors.Is(err, errUnreadable) && kv.Failure(err) == kv.FailedNoStream {
		r.requestWentWrong(ctx, err)
	} else if err == nil && r.listener.Outlived() { // the bucket's TTL may be another by now, or none
		r.checkBucket(ctx)
	}
	if !r.holds.none() {
		return nil, false, nil
	}
	own := s.HeldBy(r.instanceID())
	if own && r.doubt.foreign(s) {
		return nil, true, errCloned
	}
	switch {
	case own && !r.doubt.own(s):
		return nil, !hinted, nil
	case err != nil && !hinted: // reading may fail for good where writing does not
		if r.unanswered && !r.receivesReplies(ctx) {
			r.requestWentWrong(ctx, err)
			return nil, true, nil
		}
		predecessor, _ := r.listener.Holder()
		t, err = r.contest(ctx, r.creation(predecessor, time.Time{}), false)
		return t, true, err
	case err != nil:
		return nil, false, nil
	case s.Held() && !own:
		if r.writeFailed() { // the leader may not have seen its attempt
			lost = 0
		}
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
		r.campaigned(CandidateState)
	}
	if r.opts.order == notify.ByArrival { // before the win, so that the attempts of all who come from then on are seen
		r.listener.RecordAttempts(true)
	}
	if t, err = r.contest(ctx, r.acquisitionOver(s), true); t == nil {
		r.listener.RecordAttempts(false)
	}
	return t, true, err
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
			r.requestFailed(readRequest, err)
		}
		r.log.Debug("Key not read", "error", err)
	case s.Held():
		r.sawLeader(leaderOf(s.Record, r.key, s.Revision, s.Written, info.TTL))
	default:
		r.calls.leads(Leader{})
	}
	if s.Record.Bucket().After(info.created) { // the bucket was made again, as a record in it says, or the server reports another time
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
			r.doubt.applied(a.written, a.revision, nil)
			r.listener.Won(a.revision)
			return r.newTerm(ctx, a)
		case kv.Refused:
			r.requestSucceeded(writeRequest)
			r.log.Debug("Campaign lost")
		default:
			log := r.log.Debug
			if kv.Failure(err) == kv.FailedOtherwise && !r.writeFailed() { // the first in a row for which the server has a reason, such as a full account
				log = r.log.Warn
			}
			r.requestFailed(writeRequest, err)
			log("Campaign failed", "reason", kv.Failure(err), "error", kv.Describe(err))
		}
		if r.unanswered = outcome == kv.Unknown; r.unanswered {
			r.doubt.add(a.written, a.since, nil)
		}
		if r.unanswered && again {
			if s, _, err := r.look(ctx); err == nil && s.HeldBy(r.instanceID()) {
				if r.doubt.foreign(s) {
					return nil, errCloned
				}
				if r.doubt.own(s) {
					a = r.acquisitionOver(s)
					continue
				}
			}
		}
		r.requestWentWrong(ctx, err)
		if vacancy {
			r.listener.AnswerFailed()
		}
		return nil, nil
	}
}

// acquire makes the write, without the metadata that is set if the record is too large with it.
func (r *run) acquire(ctx context.Context, a *acquisition) (err error) {
	for {
		if err = r.tryToAcquire(ctx, a); !kv.IsTooLarge(err) || !r.shrinkMetadata(a.written, err) {
			return err
		}
	}
}

func (r *run) tryToAcquire(ctx context.Context, a *acquisition) (err error) {
	a.since = time.Now()
	rec := r.record(a.since)
	rec.Won, rec.Priorities, rec.Notified = string(a.reason), a.priorities, r.now.Load().source() != notify.None
	rec.StandDownMs = record.Milliseconds(a.standDown(r.info()))
	if r.secret == (record.Secret{}) {
		r.secret = record.NewSecret()
	}
	rec.Commitment, rec.Predecessors = r.secret.Commitment(), a.predecessors
	rec.Leads = a.named && rec.StandDownMs == 0 && !r.opts.PlainValue
	switch {
	case a.over > 0:
		a.revision, err = r.bucket.Update(ctx, r.key, r.encode(rec), a.over)
	case r.now.Load().unreadable, r.reads.suspected, r.seesMarkers(*a):
		// This is the first step of Create, which then reads what it is refused over, and writes over a marker that nobody has read.
		a.revision, err = r.bucket.Update(ctx, r.key, r.encode(rec), 0)
	default:
		a.revision, err = r.bucket.Create(ctx, r.key, r.encode(rec))
	}
	a.acknowledged = time.Now()
	if err == nil {
		r.metadataStored(rec)
	}
	if a.written = rec; rec.Leads {
		a.written.Term = a.revision
	}
	return err
}

// newTerm turns an acquisition into a term. The bucket's info is loaded again unless a release proves it: the bucket may have been
// deleted and made again, with another TTL, since the info was loaded. An acquisition on which this candidate cannot lead is abandoned.
func (r *run) newTerm(ctx context.Context, a acquisition) (*activeTerm, error) {
	r.watchdog.busy("checking the bucket of the key that it won")
	info := r.info()
	if info.created.IsZero() || !a.verified(info) || r.bucket.Conn() == nil || info.read.Before(r.listener.ConnectedAt()) {
		call, cancel := context.WithTimeout(ctx, info.RequestTimeout())
		defer cancel()
		if _, err := r.loadBucket(call); err != nil {
			r.reloaded = time.Now()
			r.holds.set(holdBucketUnusable, true) // others, who can lead, are to get the key
			r.abandon(ctx, a, "the bucket's info cannot be loaded", err)
			return nil, nil
		}
		info = r.info()
		if removed, _ := r.listener.Past(); a.over == 0 && removed > a.removal && removed < a.revision {
			a.removed = true // which was notified only after the write was sent
		}
		if !r.listener.InBucket(info.created) {
			r.listener.Remake()
		}
	}
	if r.holds.has(holdPausedByOperator) {
		r.abandon(ctx, a, "the election is paused", nil)
		return nil, nil
	}
	term := Term{Key: r.key, Name: r.name, Number: a.revision, BucketCreated: info.created, Since: a.since.Round(0)}
	standDown := a.standDown(info)
	t := newActiveTerm(ctx, &r.config, r.calls, term, &info.Timing, a.written.Lease(), a.since, a.acknowledged, standDown)
	t.secret, t.predecessors, t.reconnects = r.secret, a.predecessors, r.reconnects()
	t.won, t.successors, t.priorities, t.queue = a.reason, a.successors, a.priorities, a.queue
	t.leadsAtOnce = a.written.Leads && standDown == 0 && a.verified(info) && !info.created.IsZero() && r.listener.InBucket(info.created)
	r.requestSucceeded(writeRequest)
	r.setWait(time.Until(t.next))
	r.listener.Wrote(a.revision, a.written)
	r.sawLeader(leaderOf(a.written, r.key, a.revision, a.since.Round(0), info.TTL))
	r.stateChanged(LeaderElectState, a.reason, t)
	return t, nil
}
