package processes

import "time"

// The names of what a drill makes on its servers.
const (
	Key     = "drill"
	Bucket  = "ELECTION_DRILL"
	Stream  = "ELECTION_DRILL_WORK"
	Subject = "drill.work"
)

// ReconnectWait is how long a connection that was lost waits before it tries again: a drill has no fleet to spare the server from.
const ReconnectWait = 100 * time.Millisecond
