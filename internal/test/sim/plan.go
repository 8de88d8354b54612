package sim

import (
	"time"

	"github.com/natscampaign/election/internal/core"
	"github.com/natscampaign/election/internal/test/virtual"
	"github.com/natscampaign/election/internal/timing"
)

// plan is the configuration and the behaviour of one candidate.
type plan struct {
	name           string
	standDown      time.Duration // negative: the library's default, as for the next four
	interval       time.Duration
	margin         time.Duration
	splay          time.Duration
	releaseTimeout time.Duration
	backoff        time.Duration // 0: none

	plain, noWatch, noRead    bool       // writes bare names; may not watch; may not read
	hasWork                   bool       // calls Run with work, instead of Start
	connected, direct         bool       // it knows its connection; its releases are deletions
	drift, unslewed           int64      // by how many millionths its clock runs faster, and the one that is never slewed
	onlySlewed                bool       // it has no clock that is never slewed
	order                     core.Order // whom its releases name
	priority                  int
	preempts                  bool          // it asks a leader of lower priority to hand over
	onWon, onLost, onCampaign time.Duration // how long callbacks take
	panics                    bool          // in callbacks and work, now and then
	workLingers               time.Duration // how long work goes on after its context ended
	workReturns               time.Duration // after which work returns by itself; 0 for never
	startsLater               bool
}

// standDownOf, intervalOf and marginOf return what an option of the plan means on a bucket with the given TTL.
func (p *plan) standDownOf(ttl time.Duration) time.Duration {
	if p.standDown < 0 {
		return p.intervalOf(ttl)
	}
	return p.standDown
}

func (p *plan) intervalOf(ttl time.Duration) time.Duration {
	if p.interval < 0 {
		return ttl * 3 / 4
	}
	return p.interval
}

func (p *plan) marginOf(ttl time.Duration) time.Duration {
	if p.margin < 0 {
		return timing.DefaultMargin(ttl)
	}
	return p.margin
}

// newPlan decides the configuration of a candidate.
func (s *script) newPlan(r *virtual.Dice, i int) plan {
	p := plan{
		name:      string(rune('a' + i)),
		standDown: -1, interval: -1, margin: -1, splay: -1, releaseTimeout: -1,
		plain:       r.Chance(0.08),
		noWatch:     r.Chance(0.15),
		noRead:      r.Chance(0.05),
		hasWork:     r.Chance(0.4),
		panics:      r.Chance(0.05),
		startsLater: i > 1 && r.Chance(0.3),
	}
	if r.Chance(0.4) {
		p.standDown = virtual.Pick(r, 0, 20*time.Millisecond, s.ttl/4, s.ttl/2, s.ttl)
	}
	if r.Chance(0.3) {
		p.interval = virtual.Pick(r, s.ttl/3, s.ttl/2)
	}
	if r.Chance(0.2) {
		p.margin = virtual.Pick(r, 0, s.ttl/20, s.ttl/10)
	}
	if r.Chance(0.5) {
		p.splay = 0
	}
	if r.Chance(0.3) {
		p.releaseTimeout = virtual.Pick(r, 0, s.ttl/4, 2*s.ttl)
	}
	if r.Chance(0.2) {
		p.backoff = virtual.Pick(r, 0, s.ttl/8, s.ttl/2, 2*s.ttl)
	}
	slow := func() time.Duration {
		if r.Chance(0.75) {
			return 0
		}
		return virtual.Pick(r, time.Millisecond, r.UpTo(s.ttl/4), r.UpTo(2*s.ttl))
	}
	p.onWon, p.onLost, p.workLingers = slow(), slow(), slow()
	if r.Chance(0.1) {
		p.onCampaign = r.UpTo(s.ttl / 2)
	}
	if r.Chance(0.15) {
		p.workReturns = r.UpTo(3 * s.ttl)
	}
	return p
}
