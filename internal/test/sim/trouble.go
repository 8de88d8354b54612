package sim

import "time"

// A faultKind is one way in which a bucket, a link or a process misbehaves for a while.
type faultKind int

const (
	lateRequest          faultKind = iota // writes arrive late, maybe long after their senders gave up
	lostRequest                           // requests never arrive
	lateReply                             // replies come late
	lostReply                             // requests are carried out, their replies are lost
	transientConflict                     // writes are refused with 10164, as if another write were in flight
	noStream                              // the stream has no leader: an error after half a second
	noQuorum                              // writes are applied when the fault ends; until then others get 10164
	staleRead                             // reads return an earlier state of the key
	renewalAtExpiry                       // a renewal arrives just before the expiry, is acknowledged, and then deleted by the expiry
	linkCut                               // no message passes; calls fail at once
	linkCutBuffered                       // no message passes; calls are sent when the link is back
	processFrozen                         // the process is stopped: its calls, replies, notifications, callbacks and work wait
	notificationMissed                    // watchers miss notifications
	notificationLate                      // watchers deliver notifications late
	watcherStalled                        // watchers deliver nothing more, without an error
	watcherEnded                          // watchers end
	serverRestart                         // requests fail, and watchers have stalled afterwards
	readFails                             // reads of the key get no answer or an error
	statusFails                           // requests for the state of the bucket get no answer or an error
	notificationForged                    // watchers deliver notifications that the bucket never sent; see forgery.go
	notificationReplayed                  // watchers deliver old notifications again
	numFaultKinds
)

// originalFaults is how many kinds of fault the first scripts had; originalActs likewise. See script.addLaterKinds.
const (
	originalFaults = readFails
	originalActs   = actReadsFail
)

var faultNames = [numFaultKinds]string{
	"late request", "lost request", "late reply", "lost reply", "transient conflict", "no stream leader", "no quorum",
	"stale read", "renewal at expiry", "link cut", "link cut, buffered", "process frozen", "notification missed",
	"notification late", "watcher stalled", "watcher ended", "server restart", "read fails", "status fails",
	"notification forged", "notification replayed",
}

func (k faultKind) String() string { return faultNames[k] }

// fault spoils the requests of its victim for some time.
type fault struct {
	kind   faultKind
	start  time.Duration // since the round began
	length time.Duration
	victim int           // a slot, or one of the constants below
	chance float64       // the probability that the fault hits a request
	delay  time.Duration // the longest delay of what comes late
}

const (
	holder   = -1 // the candidate that holds the key when the fault begins
	everyone = -2
)

// An actKind is something that a candidate, an operator, a stranger or the server does in one instant.
type actKind int

const (
	actStart         actKind = iota // starts a candidate: a new one, or the present one after its context ended
	actStop                         // calls Shutdown
	actCancel                       // ends the context of Start or Run
	actCrash                        // ends a process without a release
	actResign                       // calls Resign
	actDelete                       // an operator deletes the key
	actPurge                        // an operator purges the key
	actForeignRecord                // a stranger writes a record under the key
	actBareName                     // a stranger writes a bare name under the key
	actForeignCreate                // a stranger creates the key, as a Choria candidate does, if it is free
	actRecreate                     // the bucket is deleted and recreated
	actResetSequence                // the bucket loses its content and its sequence, but keeps its creation time
	actClock                        // the server's clock steps
	actRate                         // the server's clock changes its rate
	actReadsFail                    // reads of the key fail for good, for one candidate
	actStatusFails                  // requests for the state of the bucket fail for good, for one candidate
	actClose                        // the connection of one candidate is closed for good
	actRewind                       // the bucket goes back to an earlier state, without a notification
	actRelease                      // a stranger stores a release of the leader's term, without its secret
	actCopy                         // a stranger stores an earlier record again, as a program does that echoes what it is sent
	actClone                        // a candidate starts that is a copy of another
	actCreated                      // the server reports another creation time of the same bucket
	actTTL                          // an operator changes the TTL of the bucket
	actTransfer                     // an operator has a candidate hand over to another
	actPause                        // an operator pauses the election
	actResume                       // an operator resumes it
	actIntrude                      // somebody announces a write before it makes it, see intruder.go
	actNever                        // a stranger stores something that never expires
	actOverlong                     // a stranger stores a record that states an endless lease
	actGone                         // an operator has a candidate hand over to one that crashes
	numActKinds
)

var actNames = [numActKinds]string{
	"start", "stop", "cancel", "crash", "resign", "delete", "purge", "foreign record", "bare name", "foreign create",
	"bucket recreated", "sequence reset", "clock step", "clock rate", "reads fail for good", "status fails for good",
	"connection closed", "history rewound", "release forged in the bucket", "record stored again", "candidate cloned",
	"creation time changed", "TTL changed", "transfer on request", "paused by an operator", "resumed by an operator", "write announced before it is made", "record that never expires", "endless lease", "transfer to one that is gone",
}

func (k actKind) String() string { return actNames[k] }

// hitsCandidate reports whether such an act happens to one candidate, rather than to the bucket.
func (k actKind) hitsCandidate() bool {
	return k <= actResign || k >= actReadsFail && k <= actClose || k == actClone || k == actTransfer || k == actGone
}

// act is something that happens at a time of the round.
type act struct {
	kind          actKind
	at            time.Duration
	slot          int           // of the candidate, if the act hits one; may be holder
	step          time.Duration // of the server's clock
	rate          float64       // of the server's clock from now on, less 1
	back          time.Duration // how far history is rewound
	stallsWatches bool          // whether the rewind stalls all watchers
	ttl           time.Duration // of the bucket from now on
	draw          uint64        // what a stranger stores
	untold        uint64        // the slots whose candidates are not told of the TTL, one bit each
}
