package drill

import (
	"strings"
	"time"
)

// failoverKind is a kind of failover that a drill rehearses.
type failoverKind int

const (
	firstElection failoverKind = iota
	handover
	crash
	eviction
	failoverKinds int = iota
)

// String returns the name of the kind in tables and messages.
func (k failoverKind) String() string {
	return [...]string{"first election", "handover", "crash", "eviction"}[k]
}

// name returns the name of the kind in the JSON output.
func (k failoverKind) name() string { return strings.ReplaceAll(k.String(), " ", "-") }

// textOf returns a name of the JSON output as it is in messages.
func textOf(name string) string { return strings.ReplaceAll(name, "-", " ") }

// description returns the name of the kind and its fault, for the table of the report.
func (k failoverKind) description() string {
	return k.String() + " (" + [...]string{"no leader yet", "leader stops", "leader's link is cut", "key is deleted"}[k] + ")"
}

// Times that a failover may take in addition to what follows from the TTL.
const (
	maxExpiryDelay = 500 * time.Millisecond // a busy server expires a key late by up to this much
	slack          = 2 * time.Second        // for requests in flight and busy machines
)

// campaignInterval returns the time between two campaigns of a candidate with default options. The default stand-down is as long.
func campaignInterval(ttl time.Duration) time.Duration { return ttl * 3 / 4 }

// bound returns the maximum duration of a failover of this kind with default options. After a handover the new leader does not stand
// down. All other kinds have the bound of a crash: on a busy machine a leader-elect may lose its lease before it leads, and then the next
// candidate waits until the key has expired.
func (k failoverKind) bound(ttl time.Duration) time.Duration {
	interval := campaignInterval(ttl)
	if k == handover {
		return interval + slack
	}
	standDown := interval
	return ttl + maxExpiryDelay + interval + standDown + slack
}

// failover is one measured failover: a fault, and its outcome. All times are on the sampler's clock.
type failover struct {
	kind      failoverKind
	round     int
	candidate int           // the candidate that the fault hits; in a first election the candidate that campaigns first
	faultAt   time.Duration // when the drill injected the fault
	ledAt     time.Duration // when the next leader led; 0 if no candidate led in time
	leader    int           // the next leader
}

// led says whether a candidate led in time.
func (f failover) led() bool { return f.ledAt > 0 }

// duration returns the time from the fault until the next leader led.
func (f failover) duration() time.Duration { return f.ledAt - f.faultAt }
