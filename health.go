package election

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	// healthThreshold is how many checks in a row must fail by default.
	healthThreshold = 3
	// maxRelapses is how often a relapse doubles the number of checks that must succeed.
	maxRelapses = 3

	minHealthPause = 100 * time.Millisecond
	maxHealthPause = 10 * time.Second
)

// health is what an election knows of its own: a candidate counts as healthy once a check has succeeded, and as unhealthy
// after a number of failures in a row. To be healthy again takes as many successes, and twice as many with each relapse
// that follows soon: who is well now and then is not.
type health struct {
	check     func(context.Context) error
	threshold int

	well     bool
	failures int // in a row
	good     int // likewise
	relapses int
}

// needed returns how many checks in a row must succeed until the candidate counts as healthy.
func (h *health) needed() int {
	if h.relapses == 0 {
		return 1
	}
	return h.threshold << (h.relapses - 1)
}

// take takes in the result of a check, and says whether the verdict has changed.
func (h *health) take(err error) (changed bool) {
	if err != nil {
		h.failures, h.good = h.failures+1, 0
		if !h.well || h.failures < h.threshold {
			return false
		}
		h.well, h.relapses = false, min(h.relapses+1, maxRelapses+1)
		return true
	}
	h.failures, h.good = 0, h.good+1
	switch {
	case !h.well:
		h.well = h.good >= h.needed()
		return h.well
	case h.good > h.threshold<<(maxRelapses+1):
		h.relapses = min(h.relapses, 1)
	}
	return false
}

// attend starts to check; the function that it returns ends that.
func (e *Election) attend(ctx context.Context) func() {
	ctx, cancel := context.WithCancel(ctx)
	e.gate.set(shutByHealth, true)
	done := make(chan struct{})
	go func() {
		defer close(done)
		e.mu.Lock()
		e.current.health = goroutine()
		e.mu.Unlock()
		e.watchHealth(ctx)
	}()
	return func() {
		cancel()
		<-done
		e.gate.set(shutByHealth, false)
	}
}

// watchHealth checks until ctx ends. While the candidate is unhealthy it does not campaign, and if it leads it hands over.
func (e *Election) watchHealth(ctx context.Context) {
	h := &health{check: e.opts.health, threshold: or(e.opts.threshold, healthThreshold)}
	every := min(max(e.facts.Load().interval/4, minHealthPause), maxHealthPause)
	var hung <-chan error // a check that did not return in time
	for ctx.Err() == nil {
		began := time.Now()
		err := h.once(ctx, every, &hung)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			e.log.Debug("Health check failed", "error", err)
			text := err.Error()
			e.illness.Store(&text)
		} else if h.well || h.good+1 >= h.needed() {
			e.illness.Store(nil)
		}
		if h.take(err) {
			e.gate.set(shutByHealth, !h.well)
			if h.well {
				e.log.Info("Healthy")
			} else {
				e.log.Warn("Unhealthy", "error", err)
			}
		}
		if t := e.tenure.Load(); t != nil && e.gate.shut(shutByHealth) {
			t.end(reasonUnhealthy)
		}
		pause(ctx, time.Until(began.Add(every)))
	}
}

// once makes one check, unless the last one has not returned yet.
func (h *health) once(ctx context.Context, patience time.Duration, hung *<-chan error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	late := fmt.Errorf("the check has not returned within %v", patience)
	result := *hung
	if result == nil {
		c := make(chan error, 1)
		result = c
		go func() {
			err := errors.New("the check ended its goroutine")
			defer func() {
				if p := recover(); p != nil {
					err = fmt.Errorf("the check panicked: %v", p)
				}
				c <- err
			}()
			err = h.check(ctx)
		}()
	}
	select {
	case err := <-result:
		if err == nil && (*hung != nil || ctx.Err() != nil) {
			err = late
		}
		*hung = nil
		return err
	case <-ctx.Done():
		*hung = result
		return late
	}
}
