package group

import (
	"errors"
	"time"

	"github.com/natscampaign/election/internal/timeutil"
)

// leaveTimeout is how long a member that leaves waits for requests to hand over while none comes.
const leaveTimeout = 5 * time.Second

// leave ends the run, for whatever reason. If there are other members they take over first; keys that they do not ask for are released.
func (r *run) leave(err error) {
	r.ending = true
	others := len(r.present()) > 1
	if !errors.Is(err, ErrReplaced) && r.announceLeaving() && others {
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

// handOver waits until the others have taken over the keys that this member leads, and stops all other campaigns.
func (r *run) handOver() {
	deadline := time.Now().Add(leaveTimeout)
	for fewest := len(r.assignments) + 1; ; {
		next, leading, running := deadline, 0, 0
		for _, a := range r.assignments {
			if r.collect(a); !a.running() {
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
