package election

import (
	"fmt"
	"time"

	"github.com/natscampaign/election/internal/core"
	"github.com/natscampaign/election/internal/lease"
)

// view is all that others see of an election, at one instant.
type view struct {
	status    core.Status
	term      *activeTerm // nil while the key is not held
	lease     *core.Lease // of the term, as what follows
	led       time.Time   // since when leadership counts, or did; zero before
	ended     bool        // leadership has
	why       Reason      // it ended
	leader    *Leader
	running   bool
	progress  progress
	unhealthy string
	failure   string
	requests  requests
}

// moment is how an election stands at one instant. A Status, and all gauges of a scrape, are of one moment, so that nothing in them
// contradicts the rest.
type moment struct {
	state     State
	term      Term          // zero unless the key is held
	leads     time.Time     // since when leadership counts; zero unless it does
	left      time.Duration // of the lease; 0 unless the key is held
	leaseTime time.Duration // how long a lease is; 0 until the bucket was reached
	wait      time.Duration // from the last campaign or renewal to the next
	expires   time.Time     // when the lease ends; zero unless the key is held
	source    string        // of notifications; empty before and after a run
	paused    bool          // Pause, or an operator, keeps it from campaigning
	healthy   bool          // its health check passes, and its loop makes progress
	standby   bool          // it would take over if the leader went
	next      bool          // it is the one that takes over, as the leader says
}

// at returns how the election stands at now.
func (v *view) at(now time.Time) moment {
	stuck := v.stuck(now) != ""
	m := moment{
		state: UnknownState, wait: v.status.UntilNext, source: v.status.Source, leaseTime: v.status.Bucket.LeaseTime(),
		paused:  v.status.Holds&(core.Paused|core.PausedByOperator) != 0,
		healthy: v.status.Holds&core.NotHealthy == 0 && !stuck,
		standby: v.running && v.status.Standby && !v.requests.lastFailed && !stuck,
		next:    v.running && v.status.Next && !stuck,
	}
	if v.running {
		m.state = CandidateState
	}
	if v.term != nil {
		m.leaseTime = v.lease.Timing.LeaseTime()
		if left := v.lease.Left(now, lease.SinceBoot); left > 0 {
			m.state, m.term, m.left, m.expires = State(v.lease.State), v.term.public, left, v.lease.Ends(now, lease.SinceBoot)
		}
		if m.state == LeaderState {
			m.leads = v.led
		}
	}
	return m
}

// stuck says why the candidate makes no progress any more, or goes on although it has lost its lease; "" while all is well.
func (v *view) stuck(now time.Time) string {
	switch {
	case v.failure != "":
		return v.failure
	case !v.running:
		return ""
	}
	if t := v.term; t != nil && !(v.ended && v.why.voluntary()) {
		if late := -v.lease.Left(now, lease.SinceBoot); late > overdueAfter {
			return fmt.Sprintf("the lease of term %d ran out %v ago, and it still has not stood down", t.public.Number, late.Round(time.Millisecond))
		}
	}
	return v.progress.stuck(now)
}
