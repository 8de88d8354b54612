package processes

import (
	"sync"
	"time"

	"github.com/natscampaign/election/internal/drill/history"
)

// Leaders has the terms that candidates report at present. A candidate whose process is stopped reports nothing, so its
// last report remains.
type Leaders struct {
	mu       sync.Mutex
	Reported []ReportedTerm                   // by index of the candidate
	OnTerm   func(candidate int, term uint64) // called when a candidate reports that it leads a term
}

// ReportedTerm is a term in which a candidate considers itself leader. The term is 0 if there is none.
type ReportedTerm struct {
	Term  uint64
	Since time.Duration
}

// update applies an event of a candidate.
func (l *Leaders) update(candidate int, e history.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch e.What {
	case history.Believes:
		l.Reported[candidate] = ReportedTerm{e.Term, e.At}
		l.OnTerm(candidate, e.Term)
	case history.Doubts, history.Stopped:
		l.Reported[candidate] = ReportedTerm{}
	}
}

// Latest returns the index of the candidate that reports the latest term; -1 if no candidate reports one.
func (l *Leaders) Latest() (candidate int, latest ReportedTerm) {
	l.mu.Lock()
	defer l.mu.Unlock()
	candidate = -1
	for i, r := range l.Reported {
		if r.Term > latest.Term {
			candidate, latest = i, r
		}
	}
	return candidate, latest
}
