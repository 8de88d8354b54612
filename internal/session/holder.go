package session

import (
	"time"

	"github.com/natscampaign/election/internal/record"
)

// Stored is what is stored under a key, as a reader of the bucket finds it.
type Stored struct {
	Record   record.Record
	Revision uint64
	Written  time.Time // by the server's clock
}

// Holder returns the record of who leads a key, as far as the records of its claim and of the session that the claim names say, and false if nobody does.
// Its Term is 0 while leadership does not count. It is for people: only a session itself knows whether its lease lasts.
func Holder(claim, owner Stored, now time.Time) (r record.Record, leads bool) {
	r = claim.Record
	s := &owner.Record
	switch {
	case claim.Revision == 0 || owner.Revision == 0, r.Instance == "" || r.Instance != s.Instance:
		return r, false
	case !r.Released.IsZero(), !s.Released.IsZero(), s.ClosedBy != "":
		return r, false
	}
	r.Host, r.PID, r.LeaseMs, r.IntervalMs, r.Started = s.Host, s.PID, s.LeaseMs, s.IntervalMs, s.Since
	r.Term = 0 // whatever somebody wrote
	if wait := time.Duration(r.StandDownMs) * time.Millisecond; !now.Before(claim.Written.Add(wait)) {
		r.Term, r.Led = claim.Revision, r.Since.Add(wait)
	}
	return r, true
}
