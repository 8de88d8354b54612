package sim

import (
	"github.com/natscampaign/election/internal/core"
	"github.com/natscampaign/election/internal/test/schedules"
)

// steps says of each step of a candidate which may follow.
var steps = schedules.TableOf(core.Steps(), core.Step.WithRole, core.Step.Follow)

// stepped is called at each step of a candidate. A step that is not among those that may follow is a fault of the table in package core, or of a role.
func (c *candidate) stepped(from, to core.Step) {
	w, move := c.w, schedules.Move{From: from.WithRole(), To: to.WithRole()}
	w.note(c.name, move.To)
	if !w.coverage.Moved(move) {
		w.judge.Fail(w.Now, "step", c.name, "%v, which the table of steps does not know", move)
	}
	all := make([]byte, 0, len(w.candidates))
	for _, other := range w.candidates {
		if !other.crashed {
			all = append(all, 'A'+byte(other.core.Step()))
		}
	}
	w.coverage.Reached(all)
}
