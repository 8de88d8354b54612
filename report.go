package election

import (
	"context"
	"log/slog"
	"time"

	"github.com/natscampaign/election/internal/core"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/settings"
)

// report reports an event of the candidate: it logs and counts, keeps what others ask for, and does what the candidate asks for besides requests. The events
// of the loop are reported in their order. Those of notices are reported beside the loop's: they are lines of the log, and requests to look at a
// source or the connection. The caller does not hold the election's mutex.
func (r *run) report(e *core.Event) {
	switch e.Kind {
	case core.Logged:
		r.logged(e.Level, e.Message, e.Attrs)
	case core.Campaigned:
		r.metrics.campaigned(State(e.State))
	case core.StateChanged:
		r.stateChanged(State(e.State), Reason(e.Reason), e.Term)
	case core.KeyNotReleased:
		r.keyNotReleased(e)
	case core.TermOver:
		r.termOver(e.Term)
	case core.LeaderSeen:
		if e.Record != nil {
			r.sawLeader(r.holder(e))
		}
	case core.Renewed:
		r.metrics.renewed(e.Took)
	case core.RenewalFailed:
		r.metrics.renewalFailed(kv.Failure(e.Err))
		r.logged(e.Level, "Renewal failed", []any{"term", e.Term.Number, "reason", kv.Failure(e.Err), "left", e.Left.Round(time.Millisecond), "error", e.Err})
	case core.RecordAttempts:
		r.notifications().ReceiveAttempts(e.On)
	case core.Remake:
		r.notifications().Remake()
	case core.SourceStalled:
		r.notifications().SourceStalled()
	case core.Suspect:
		r.suspectConnection()
	case core.MetadataStored:
		r.noteRequest(metadataRequest, e.Err)
	}
}

// logged writes a line of the log.
func (r *run) logged(level core.Level, message string, attrs []any) {
	for i, a := range attrs {
		if err, ok := a.(error); ok {
			attrs[i] = kv.Describe(err)
		}
	}
	r.log.Log(context.Background(), [...]slog.Level{core.Debug: slog.LevelDebug, core.Info: slog.LevelInfo, core.Warn: slog.LevelWarn}[level], message, attrs...)
}

// stateChanged reports a change of state to the log and the metrics.
func (r *run) stateChanged(to State, why Reason, t *core.Term) {
	r.metrics.stateChanged(to, why)
	attrs := []any{"state", to, "reason", string(why)}
	if t != nil {
		attrs = append(attrs, "term", t.Number)
	}
	if to == LeaderElectState && !t.AtOnce { // say for what it waits: nothing else is logged until then
		attrs = append(attrs, "stand-down", t.StandDown.Round(time.Millisecond), "leads-at", t.LeadsFrom.UTC().Round(time.Millisecond))
		if t.StandDown > 0 {
			attrs = append(attrs, "unless", "the key is lost before", "because", t.Because)
		}
	}
	r.log.Info("State changed", attrs...)
}

// holder returns the holder of the key that was seen; the zero Holder is nobody.
func (r *run) holder(seen *core.Event) *settings.Holder {
	if seen.Record == nil {
		return &settings.Holder{}
	}
	return &settings.Holder{Record: *seen.Record, Key: r.key, Revision: seen.Revision, Written: seen.Written, TTL: seen.TTL}
}

// sawLeader remembers the holder of the key, and logs it if it is another than before.
func (r *run) sawLeader(h *settings.Holder) {
	l := leaderOf(h)
	r.mu.Lock()
	before := r.leader
	r.leader = &l
	r.mu.Unlock()
	if l.Instance != r.instanceID() && (before == nil || before.Instance != l.Instance || before.Name != l.Name || before.Term == 0 && l.Term != 0) {
		attrs := []any{"leader", l.Name}
		switch {
		case l.Term != 0: // a leader-elect, or a bare name, has none
			attrs = append(attrs, "term", l.Term)
		case h.StandDownMs > 0:
			attrs = append(attrs, "state", LeaderElectState, "leads-within", time.Duration(h.StandDownMs)*time.Millisecond)
		}
		r.log.Info("Leader seen", attrs...)
	}
}

// keyNotReleased logs why the key was not released. It says that the key is left to expire only if this candidate may still hold the key.
func (r *run) keyNotReleased(e *core.Event) {
	term, err := slog.Uint64("term", e.Term.Number), slog.Any("error", kv.Describe(e.Ending.Err))
	switch e.Ending.How {
	case core.NotConfirmed:
		r.log.Warn("Release not confirmed, the key is released or expires", term, err)
	case core.NotReleased:
		r.log.Warn("Key not released, it is left to expire", term, err)
	case core.WorkGoesOn:
		r.log.Warn("Callbacks or work have not returned in time, the key is left to expire", term, "timeout", e.Term.Lease.Timing.ReleaseTimeout)
	default:
		r.log.Warn("Key not released, it was lost before", term, "error", outcomeOf(r.latestTerm(), e.Term, e.Ending))
	}
}

// latestTerm returns the term that was won last.
func (r *run) latestTerm() Term {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.latest.public
}

// termOver is called when the key was released or given up.
func (r *run) termOver(t *core.Term) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a := r.latest; a != nil && a.Core == t {
		a.outcome = outcomeOf(a.public, t, t.Outcome)
		a.over.Close()
	}
}
