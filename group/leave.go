package group

import (
	"errors"
	"slices"
	"time"

	"github.com/natscampaign/election/internal/timeutil"
)

// leaveTimeout is how long a member that leaves waits for requests to hand over while none comes.
const leaveTimeout = 5 * time.Second

// leave ends the run, for whatever reason. Other members take over the keys that they list first; the rest is released.
func (r *run) leave(err error) {
	r.ending = true
	if !errors.Is(err, ErrReplaced) && r.announceLeaving() {
		r.handOver()
	}
	for _, a := range r.assignments {
		a.cancelRequest()
		if a.election.Load() != nil {
			a.stop()
		}
	}
	for r.unfinished() > 0 {
		<-r.wake
	}
}

// handOver waits until the others have taken over the keys that this member leads and one of them lists, and stops all other campaigns.
// Members may leave meanwhile as well.
func (r *run) handOver() {
	deadline := time.Now().Add(leaveTimeout)
	for fewest := len(r.assignments) + 1; ; {
		others := slices.DeleteFunc(r.present(), func(m presence) bool { return m.Name == r.name })
		next, leading, running := deadline, 0, 0
		for _, a := range r.assignments {
			listed := func(m presence) bool { return m.lists(a.key) }
			if r.collect(a); !a.running() || a.leads() && !slices.ContainsFunc(others, listed) {
				continue
			}
			running++
			if next = timeutil.Earlier(next, r.withdraw(a)); a.leads() {
				leading++
			}
		}
		switch {
		case running == 0:
			return
		case leading < fewest:
			fewest, deadline = leading, time.Now().Add(leaveTimeout)
		case !time.Now().Before(deadline):
			r.log.Warn("No other member asks for the keys, releasing them", "keys", leading)
			return
		}
		select {
		case <-time.After(time.Until(next)):
		case <-r.wake:
		case entry, ok := <-r.updates:
			_ = r.update(entry, ok) // a member that leaves is not replaced
		}
	}
}

// unfinished returns for how many assignments an election has not ended, or an answer is awaited.
func (r *run) unfinished() (n int) {
	for _, a := range r.assignments {
		if r.collect(a); a.election.Load() != nil || a.cancel != nil {
			n++
		}
	}
	return n
}
