package look

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natscampaign/election/admin"
	"github.com/natscampaign/election/internal/cli/terminal"
	"github.com/natscampaign/election/internal/control"
	"github.com/natscampaign/election/internal/kv"
)

const (
	// standbysTimeout is how long CountStandbys and ConfirmAlone each take at most. What they do not find out in that time stays unknown.
	standbysTimeout = 3 * time.Second
	// farTimeout is how long ConfirmAlone waits for a standby that is far away. Ask waits only until the answers pause.
	farTimeout = time.Second
)

// Standbys returns the names of the candidates that would take over an election from its holder, sorted and printable. It is not known unless
// such a candidate answers, or the holder does: then there may be candidates that do not answer. It is not known for locks either, which need
// no standby.
func (a Answers) Standbys(h *Holder) (names []string, known bool) {
	for _, c := range a.Candidates {
		switch {
		case c.Standby == nil:
		case *c.Standby:
			names, known = append(names, terminal.Printable(c.Name)), true
		case terminal.Printable(c.Instance) == h.Instance:
			known = true
		}
	}
	slices.Sort(names)
	return names, known
}

// setStandbys sets the standbys of a holder by the answers of the candidates, unless these do not tell.
func (h *Holder) setStandbys(a Answers) {
	if names, known := a.Standbys(h); known {
		n := len(names)
		h.Standbys, h.standbys = &n, names
	}
}

// IsAlone reports whether nobody would take over from the holder, as far as is known. While an election is paused nobody is meant to.
func (h *Holder) IsAlone() bool { return h.Standbys != nil && *h.Standbys == 0 && !h.Paused }

// SetStandbys sets the standbys of each holder by the answers of the candidates.
func SetStandbys(holders []Holder, answers map[string]Answers) {
	for i := range holders {
		holders[i].setStandbys(answers[holders[i].Key])
	}
}

// CountStandbys asks the candidates of each holder's election, and sets its standbys. A user that may not ask for the first election is taken
// for one that may not ask at all, and CountStandbys reports that: each refusal is an error in the log of the server.
func (v *View) CountStandbys(ctx context.Context, holders []Holder) (refused bool) {
	ctx, cancel := context.WithTimeout(ctx, standbysTimeout)
	defer cancel()
	var keys []string
	for _, h := range holders {
		keys = append(keys, h.Key)
	}
	if len(keys) == 0 {
		return false
	}
	answers := v.Ask(ctx, keys[:1])
	if errors.Is(answers[keys[0]].Err, nats.ErrPermissionViolation) {
		return true
	}
	SetStandbys(holders[:1], answers)
	SetStandbys(holders[1:], v.Ask(ctx, keys[1:]))
	return false
}

// ConfirmAlone asks once more for standbys of the holders that have none by the answers so far, and waits a second for answers from far away.
func (v *View) ConfirmAlone(ctx context.Context, holders []Holder) {
	ctx, cancel := context.WithTimeout(ctx, standbysTimeout)
	defer cancel()
	var alone []*Holder
	for i := range holders {
		if h := &holders[i]; h.IsAlone() {
			alone = append(alone, h)
		}
	}
	client := control.Client{Bucket: kv.With(v.Bucket, nil), Created: v.info.Created}
	kv.Together(len(alone), claimRequests, func(i int) {
		h := alone[i]
		var found Answers // what was found counts, however the request ended
		_ = client.CandidatesWithin(ctx, h.Key, farTimeout, func(c control.Candidate, _ time.Time) (enough bool) {
			found.Candidates = append(found.Candidates, admin.Candidate{Name: c.Name, Instance: c.Instance, Standby: c.Standby})
			return c.Standby != nil && *c.Standby
		})
		h.setStandbys(found)
	})
}
