package sessions

import (
	"fmt"
	"slices"

	"github.com/natscampaign/election/internal/session"
	"github.com/natscampaign/election/internal/test/schedules"
)

func nameOf(s session.Step) string           { return "session: " + s.String() }
func nameOfClaim(s session.ClaimStep) string { return "claim: " + s.String() }

// steps says of each step of a session, and of a claim, which may follow.
var steps = slices.Concat(
	schedules.TableOf(session.Steps(), nameOf, session.Step.Follow),
	schedules.TableOf(session.ClaimSteps(), nameOfClaim, session.ClaimStep.Follow),
)

// stepped is called at each step of the session of a process.
func (p *process) stepped(from, to session.Step) {
	p.w.moved(p.name, schedules.Move{From: nameOf(from), To: nameOf(to)})
}

// claimStepped is called at each step of a claim of a process.
func (p *process) claimStepped(c *session.Claim, from, to session.ClaimStep) {
	p.w.moved(p.candidateOf(c).name(), schedules.Move{From: nameOfClaim(from), To: nameOfClaim(to)})
}

// moved judges a move, and takes note of which steps all sessions and claims are in.
func (w *world) moved(name string, m schedules.Move) {
	w.note(name, m.To)
	if !w.coverage.Moved(m) {
		w.fail("step", name, fmt.Sprintf("%v, which the table of steps does not know", m))
	}
	var all []byte
	for _, p := range w.processes {
		if p.crashed {
			continue
		}
		all = append(all, 'A'+byte(p.session.Step()))
		for _, c := range p.candidates {
			all = append(all, 'a'+byte(c.claim.Step()))
		}
	}
	w.coverage.Reached(all)
}
