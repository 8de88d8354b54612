package election

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// lead holds the key until it is released or lost, and winds up. It says whether the run is finished, because the work
// returned while it led, and the work's error.
func (e *Election) lead(ctx context.Context, t *tenure, do func(context.Context, Term) error) (finished bool, err error) {
	e.tenure.Store(t)
	ear := e.ear.Load()
	ear.count(true)
	defer context.AfterFunc(ctx, func() { t.end(reasonStopped) })()

	e.serve(ctx, t, do)
	if t.led {
		e.losses.Add(1)
	}
	patience := time.Now().Add(t.releaseTimeout)
	e.moved(CandidateState, t.reason, t)
	t.outcome = e.windUp(ctx, t)
	t.expiry.Stop()
	e.mayArrive = e.mayArrive || len(t.pending) > 0
	if l := e.seen.Load(); l != nil && l.Instance == e.instance {
		e.seen.CompareAndSwap(l, nil)
	}
	e.tenure.Store(nil)
	ear.count(false)
	close(t.over)
	e.beat("waiting for callbacks and work to return", patience)
	<-e.announcer.silence()
	if t.work != nil {
		<-t.work.done
		if t.work.led {
			return true, t.work.err
		}
		if t.work.err != nil && !errors.Is(t.work.err, context.Canceled) {
			e.log.Warn("Work failed after its term had ended", "error", t.work.err)
		}
	}
	return false, nil
}

// serve renews the lease until leadership ends, and starts the work when leadership counts.
func (e *Election) serve(ctx context.Context, t *tenure, do func(context.Context, Term) error) {
	ear := e.ear.Load()
	timer := time.NewTimer(time.Until(t.next))
	defer timer.Stop()
	begun := false
	for {
		e.beat("waiting for its next renewal", t.next)
		next, look := t.next, ear.dueLook()
		if !look.IsZero() {
			next = earlier(next, look)
		}
		timer.Reset(time.Until(next))
		select {
		case <-t.ended:
			return
		case <-e.nudged: // there is something new to be told
			t.next = earlier(t.next, t.sent.Add(nudgeSpacing))
		case <-ear.news:
		case <-timer.C:
			if !look.IsZero() && !time.Now().Before(look) {
				e.verify(t)
				continue
			}
			if time.Now().Before(t.next) {
				continue
			}
			if e.renew(ctx, t); !begun && t.leads() {
				begun = true
				if do != nil {
					e.begin(t, do)
				}
				if e.opts.relinquish != nil {
					go e.relinquish(ctx, t, e.opts.relinquish)
				}
			}
		}
	}
}

// nudgeSpacing is the least time from one renewal to another that something new is the reason for.
const nudgeSpacing = 10 * minPause

// verify reads the key on account of a notification that somebody else wrote it. What is read may end the term; a notification alone
// may not.
func (e *Election) verify(t *tenure) {
	e.busy("reading the key")
	// The read keeps neither a renewal nor the end of leadership waiting.
	ctx, cancel := context.WithTimeout(t.ctx, min(tryTime(t.remaining()), max(time.Until(t.next), minTry)))
	defer cancel()
	s, found := e.lookAtOwn(ctx, t)
	switch {
	case found == ours:
		_ = e.recognise(context.WithoutCancel(ctx), t, s) // what is not recognised changes nothing
	case found != unclear:
		t.end(found.why())
	case s.removal == gone, s.held() && s.record.Instance != e.instance:
		t.unsure = true
		t.next = earlier(t.next, later(time.Now(), t.sent.Add(nudgeSpacing))) // the server's answer to a renewal tells
	}
}

// windUp waits until callbacks and work have returned, and then releases the key if it is still held. Until then it keeps
// the lease alive, so that nobody else leads meanwhile, but for no longer than the release timeout. The error says why
// the key was not released.
func (e *Election) windUp(ctx context.Context, t *tenure) error {
	if !t.reason.voluntary() {
		return fmt.Errorf("%w: the term had ended: %s", ErrNotLeader, t.reason)
	}
	silence, worked := e.announcer.silence(), t.work.returned()
	timeout := time.NewTimer(t.releaseTimeout)
	defer timeout.Stop()
	due := time.Now().Add(t.releaseTimeout)
	timer := time.NewTimer(time.Until(t.next))
	defer timer.Stop()
	for silence != nil || worked != nil {
		e.beat("waiting for callbacks and work to return", due)
		select {
		case <-silence:
			silence = nil
		case <-worked:
			worked = nil
		case <-timer.C:
			if t.holds() {
				e.renew(ctx, t)
				timer.Reset(time.Until(t.next))
			}
		case <-timeout.C:
			if over(silence) && over(worked) {
				return e.release(ctx, t)
			}
			e.log.Warn("Callbacks or work have not returned in time, the key is left to expire", "term", t.term.Number, "timeout", t.releaseTimeout)
			return fmt.Errorf("not released: callbacks or work have not returned within %v, the key expires by itself", t.releaseTimeout)
		}
	}
	return e.release(ctx, t)
}

// over says whether there is nothing left to wait for.
func over(wait <-chan struct{}) bool {
	select {
	case <-wait:
		return true
	default:
		return wait == nil
	}
}
