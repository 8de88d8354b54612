package processes

import "time"

// The names that a drill uses on its servers.
const (
	Key     = "drill"
	Bucket  = "ELECTION_DRILL"
	Stream  = "ELECTION_DRILL_WORK"
	Subject = "drill.work"
)

// ReconnectWait is the delay before a client reconnects. It is short because a drill has few clients, which cannot overload the
// servers.
const ReconnectWait = 100 * time.Millisecond
