package sim

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/natscampaign/election/internal/model"
	"github.com/natscampaign/election/internal/replay"
	"github.com/natscampaign/election/internal/sim/judge"
)

// following is what a number of replays came to.
type following struct {
	sync.Mutex
	steps, widest int
	made          judge.Tally
}

// TestSchedulesFollowTheModel plays schedules and asks of each step of the library whether the model in spec/election.pml has it.
func TestSchedulesFollowTheModel(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes much time: not with -short")
	}
	all := &following{made: judge.Tally{}}
	n, ok := playAll(t, 300, all.follow)
	fmt.Printf("sim: %d schedules replayed, %d events, at most %d states of a candidate at once\n%v", n, all.steps, all.widest, all.made)
	if ok && n >= 10000 {
		all.expectAll(t)
	}
}

// follow replays a schedule, and returns what the model does not have.
func (a *following) follow(r *Result) (problem string) {
	f := replay.Follow(r.Trace)
	a.Lock()
	defer a.Unlock()
	a.steps, a.widest = a.steps+f.Steps, max(a.widest, f.Widest)
	a.made.Add(f.Transitions)
	if f.Event < 0 {
		return ""
	}
	return fmt.Sprintf("seed %d\n%s\n%srun only this schedule with: go test ./internal/sim -run Follow -args -schedules 1 -seed %d",
		r.Seed, r.Trace.Text(f.Event, 60), f.Problem, r.Seed)
}

// notReplayed are the transitions that no trace has, and why.
var notReplayed = map[string]string{
	"Renew":      "every request takes time: RenewAndFreeze and ReceiveRenewal",
	"Freeze":     "a process that stops while it waits for nothing is one in which time passes",
	"LateLost":   "what is lost is not seen",
	"ForgetCopy": "likewise",
	"Leap":       "revisions are those of the bucket",
	"NewRound":   "faults are not counted",
}

// expectAll expects every transition of the model to have been made.
func (a *following) expectAll(t *testing.T) {
	for _, name := range model.Names() {
		if made := a.made[name] > 0; made == (notReplayed[name] != "" || strings.HasPrefix(name, "Tick")) { // time is that of the trace
			t.Errorf("transition %s was made: %v", name, made)
		}
	}
}
