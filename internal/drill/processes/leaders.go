package processes

import (
	"maps"
	"sync"
	"time"

	"github.com/natscampaign/election/internal/drill/history"
)

// Leaders has the terms that candidates report at present. A candidate whose process is stopped reports nothing, so its
// last report remains.
type Leaders struct {
	mu       sync.Mutex
	Reported []map[string]ReportedTerm        // by index of the candidate, then by key; the key is empty for candidates without sessions
	OnTerm   func(candidate int, term uint64) // called when a candidate without a session reports that it leads a term
}

// ReportedTerm is a term in which a candidate considers itself leader.
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
		l.Reported[candidate][e.Key] = ReportedTerm{e.Term, e.At}
		if e.Key == "" {
			l.OnTerm(candidate, e.Term)
		}
	case history.Doubts:
		delete(l.Reported[candidate], e.Key)
	case history.Stopped:
		clear(l.Reported[candidate])
	}
}

// Latest returns the index of the candidate that reports most keys and, of several, the latest term; -1 if no candidate reports one.
func (l *Leaders) Latest() (candidate int, latest ReportedTerm) {
	l.mu.Lock()
	defer l.mu.Unlock()
	candidate, most := -1, 0
	for i, keys := range l.Reported {
		var own ReportedTerm
		for _, r := range keys {
			if r.Term > own.Term {
				own = r
			}
		}
		if len(keys) > most || len(keys) == most && own.Term > latest.Term {
			candidate, most, latest = i, len(keys), own
		}
	}
	return candidate, latest
}

// Since returns since when candidates report all keys; all is false if there is a key that none reports.
func (l *Leaders) Since(keys []string) (since time.Duration, all bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, key := range keys {
		var latest ReportedTerm
		for _, reported := range l.Reported {
			if r := reported[key]; r.Term > latest.Term {
				latest = r
			}
		}
		if latest.Term == 0 {
			return 0, false
		}
		since = max(since, latest.Since)
	}
	return since, true
}

// Of returns the terms that a candidate reports, by key.
func (l *Leaders) Of(candidate int) map[string]ReportedTerm {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.Reported[candidate])
}
