package session

import (
	"crypto/sha256"
	"strings"
	"time"

	"github.com/natscampaign/election/internal/core"
	"github.com/natscampaign/election/internal/record"
)

// The keys of a bucket for sessions.
const (
	sessionPrefix = "s."
	claimPrefix   = "c."
	settledKey    = "settled"
)

// SessionKey returns the key of a session.
func SessionKey(id string) string { return sessionPrefix + id }

// ClaimKey returns the key under which the claim of a key is stored.
func ClaimKey(key string) string { return claimPrefix + key }

// SessionOf returns the id of the session that is stored under a key.
func SessionOf(key string) (id string, is bool) { return strings.CutPrefix(key, sessionPrefix) }

// ClaimOf returns the key whose claim is stored under a key.
func ClaimOf(key string) (claimed string, is bool) { return strings.CutPrefix(key, claimPrefix) }

// newRecord returns a record of this session, of a term or session that began at the given time.
func (s *Session) newRecord(since time.Time) record.Record {
	return record.Record{Name: s.Name, Instance: s.id, Attempt: s.NewID(), Since: since.Round(0), BucketCreated: s.created}
}

// sessionRecord returns the record that a renewal writes.
func (s *Session) sessionRecord() record.Record {
	r := s.newRecord(s.opened)
	r.Host, r.PID = s.Host, s.PID
	r.LeaseMs, r.IntervalMs = s.Timing.LeaseTime().Milliseconds(), s.Timing.Interval.Milliseconds()
	r.Commitment = s.secret.Commitment()
	return r
}

// claimSecret returns the secret of a claim. It follows from that of the session, so that the session can release a claim of which it remembers nothing
// but what is stored.
func (s *Session) claimSecret(attempt string) (secret record.Secret) {
	hash := sha256.New()
	_, _ = hash.Write(s.secret[:])
	_, _ = hash.Write([]byte(attempt))
	copy(secret[:], hash.Sum(nil))
	return secret
}

// claimRecord returns the record by which the session takes a claim. wait is for how long its leadership does not count.
func (s *Session) claimRecord(now time.Time, wait time.Duration, won core.Reason) record.Record {
	r := s.newRecord(now)
	r.StandDownMs, r.Won = record.Milliseconds(wait), string(won)
	r.Commitment = s.claimSecret(r.Attempt).Commitment()
	return r
}

// claimRelease returns the release of the claim of a term that this session took with the given attempt. It names the term if leadership has counted, and 0 if
// not, for people.
func (s *Session) claimRelease(now, since time.Time, term uint64, attempt string, wait time.Duration, why core.Reason) record.Record {
	r := s.newRecord(since)
	r.Secret = s.claimSecret(attempt)
	r.Commitment = r.Secret.Commitment()
	r.Term, r.Released, r.Reason, r.StandDownMs = term, now.Round(0), string(why), record.Milliseconds(wait)
	return r
}
