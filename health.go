package election

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/natscampaign/election/internal/core"
	"github.com/natscampaign/election/internal/timeutil"
	"github.com/natscampaign/election/internal/timing"
)

const (
	// maxRelapses is how often a relapse doubles the number of checks that must succeed.
	maxRelapses = 3

	minHealthInterval = 100 * time.Millisecond
	maxHealthInterval = 10 * time.Second
)

// health is what the health checks of a candidate have shown: it counts as healthy once a check has succeeded, and as unhealthy after a
// number of failures in a row. To be healthy again takes as many successes, and twice as many with each relapse that follows soon.
type health struct {
	check     func(context.Context) error
	threshold int

	healthy   bool
	failures  int // in a row
	successes int // in a row
	relapses  int

	hung <-chan error // receives the result of a check that did not return in time; nil if there is none
}

// needed returns how many checks in a row must succeed until the candidate counts as healthy.
func (h *health) needed() int {
	if h.relapses == 0 {
		return 1
	}
	return h.threshold << (h.relapses - 1)
}

// add adds the result of a check, and reports whether the verdict has changed.
func (h *health) add(err error) (changed bool) {
	if err != nil {
		h.failures, h.successes = h.failures+1, 0
		if !h.healthy || h.failures < h.threshold {
			return false
		}
		h.healthy, h.relapses = false, min(h.relapses+1, maxRelapses+1)
		return true
	}
	h.failures, h.successes = 0, h.successes+1
	switch {
	case !h.healthy:
		h.healthy = h.successes >= h.needed()
		return h.healthy
	case h.successes > h.threshold<<(maxRelapses+1):
		h.relapses = min(h.relapses, 1)
	}
	return false
}

// startHealthChecks starts to check; the function that it returns ends that.
func (r *run) startHealthChecks(ctx context.Context) func() {
	ctx, cancel := context.WithCancel(ctx)
	r.tell(core.Hold{Why: core.NotHealthy, On: true})
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.runHealthChecks(ctx)
	}()
	return func() {
		cancel()
		<-done
		r.tell(core.Hold{Why: core.NotHealthy})
		r.setUnhealthy("")
	}
}

// runHealthChecks checks until ctx ends. While the candidate is unhealthy it does not campaign, and if it leads it resigns.
func (r *run) runHealthChecks(ctx context.Context) {
	h := &health{check: r.opts.Health, threshold: r.opts.HealthThreshold}
	for ctx.Err() == nil {
		bucket, began := r.status().Bucket, time.Now()
		interval := min(max(bucket.Interval/4, minHealthInterval), maxHealthInterval)
		limit := min(max(timing.DefaultInterval(bucket.TTL)/4, interval), maxHealthInterval) // whatever the interval is
		err := h.run(ctx, limit)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			r.log.Debug("Health check failed", "error", err)
			r.setUnhealthy(err.Error())
		} else if h.healthy || h.successes+1 >= h.needed() {
			r.setUnhealthy("")
		}
		if h.add(err) {
			r.tell(core.Hold{Why: core.NotHealthy, On: !h.healthy})
			if h.healthy {
				r.log.Info("Healthy")
			} else {
				r.log.Warn("Unhealthy", "error", err)
			}
		}
		if t := r.term.Load(); t != nil && !h.healthy {
			r.end(t, core.Unhealthy)
		}
		timeutil.Sleep(ctx, time.Until(began.Add(interval)))
	}
}

// setUnhealthy publishes why the last health checks failed; "" if they did not.
func (r *run) setUnhealthy(why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unhealthy = why
}

// run runs one check, unless the last one has not returned yet.
func (h *health) run(ctx context.Context, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	late := fmt.Errorf("the check has not returned within %v", timeout)
	result := h.hung
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
		if err == nil && (h.hung != nil || ctx.Err() != nil) {
			err = late
		}
		h.hung = nil
		return err
	case <-ctx.Done():
		h.hung = result
		return late
	}
}
