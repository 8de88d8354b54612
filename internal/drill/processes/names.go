package processes

import "time"

// The names that a drill uses on its servers.
const (
	Key     = "drill"
	Bucket  = "ELECTION_DRILL"
	Stream  = "ELECTION_DRILL_WORK"
	Subject = "drill.work"
)

// SubjectOfKey returns the subject of the records of a session's key, or of the only key, which is empty, if there are no sessions.
func SubjectOfKey(key string) string {
	if key == "" {
		return Subject
	}
	return Subject + "." + key
}

// ReconnectWait is the delay before a client reconnects. It is short because a drill has few clients, which cannot overload the
// servers.
const ReconnectWait = 100 * time.Millisecond
