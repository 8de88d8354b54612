package kv

import (
	"strings"
	"time"
)

// PausedPrefix begins the names of the metadata of the stream behind the bucket that pause an election: unlike a key, metadata does not
// expire, and every candidate that reads the bucket's info reads it.
const PausedPrefix = "election.paused."

// Pause says since when an operator has paused an election, and which operator, by that operator's own account.
type Pause struct {
	Since time.Time // zero if the metadata does not say
	By    string    // empty if the metadata does not say
}

// String returns the value of the metadata that pauses an election: the time, and after a space the operator.
func (p Pause) String() string {
	return strings.TrimSpace(p.Since.UTC().Format(time.RFC3339) + " " + p.By)
}

// parsePause reads the value of the metadata that pauses an election. Any value does pause it.
func parsePause(value string) Pause {
	since, by, _ := strings.Cut(value, " ")
	at, err := time.Parse(time.RFC3339, since)
	if err != nil {
		return Pause{}
	}
	return Pause{at, by}
}
