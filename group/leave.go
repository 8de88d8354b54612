package group

import (
	"errors"
	"time"
)

// leavePatience is how long a member that leaves waits for the others to ask for what it leads, while nobody does.
const leavePatience = 5 * time.Second

// leave winds the run up, whatever ended it. What is led is handed over first to others, if there are any, and what they do
// not ask for is released.
func (r *run) leave(err error) {
	r.done = true
	others := len(r.there()) > 1
	if !errors.Is(err, ErrReplaced) && r.farewell() && others {
		r.handOver()
	}
	for _, s := range r.seats {
		if s.unask != nil {
			s.unask()
		}
		if s.election.Load() != nil && !s.stopping {
			r.stop(s)
		}
	}
	for r.standing() > 0 {
		<-r.wake
	}
}

// handOver waits until the others have taken over what is led, and stands for nothing else.
func (r *run) handOver() {
	patience := time.Now().Add(leavePatience)
	timer := time.NewTimer(leavePatience)
	defer timer.Stop()
	for led := len(r.seats) + 1; ; {
		next, leading, standing := patience, 0, 0
		for _, s := range r.seats {
			if r.collect(s); s.election.Load() == nil || s.stopping {
				continue
			}
			standing++
			if next = earlier(next, r.unwanted(s)); s.leads() {
				leading++
			}
		}
		if standing == 0 {
			return
		}
		if leading < led {
			led, patience = leading, time.Now().Add(leavePatience)
		} else if !time.Now().Before(patience) {
			r.log.Warn("Nobody asks for what is led, releasing it", "keys", leading)
			return
		}
		timer.Reset(time.Until(next))
		select {
		case <-timer.C:
		case <-r.wake:
		}
	}
}

// standing returns at how many seats an election has not ended, or an answer is waited for.
func (r *run) standing() (n int) {
	for _, s := range r.seats {
		if r.collect(s); s.election.Load() != nil || s.unask != nil {
			n++
		}
	}
	return n
}
