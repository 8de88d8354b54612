package core

import (
	"time"

	"github.com/natscampaign/election/internal/lease"
	"github.com/natscampaign/election/internal/record"
)

// Rules are what never changes while a candidate campaigns: who it is, and what its options say.
type Rules struct {
	BucketName, Name, Instance, Host string
	ReadSubject                      string // to which a candidate must be permitted to publish, so as to read the key
	PID                              int
	Priority                         int
	Order                            Order
	Plain                            bool // its records are its bare name
	Preempts                         bool // it asks a leader of lower priority to hand over
	HasBackoff                       bool // the time from one campaign to the next is asked for, see [AskBackoff]
	Connected                        bool // the connection of the bucket is known, so that the markers of removals are read
	Direct                           bool // the key may be written by a message of this package's own making, so that a deletion carries the release

	// Asked for the target of a transfer just before the release that names it: the target may be gone by then. The zero Successor has this candidate
	// campaign again at once. Nil: the target stays.
	Target func(record.Successor) record.Successor

	*World
}

// World is what a candidate needs besides answers and notifications: clocks, random numbers, ids. A simulator has its own.
type World struct {
	Random    func(time.Duration) time.Duration // from 0 to just below the given time
	NewID     func() string                     // see record.NewID
	NewSecret func() record.Secret              // see record.NewSecret
	Clocks    func() lease.Reading              // see lease.Read
	Boot      lease.Clock                       // see lease.SinceBoot
	Slewed    lease.Clock                       // see lease.Slewed
	Started   lease.Reading                     // older than every write of this process
	Seed      uint64                            // makes the hashes of this process unpredictable
	Stepped   func(from, to Step)               // called at each step, if it is set; for tests
}

// Order says which candidates a release names, besides the target of a transfer.
type Order uint8

// The orders.
const (
	ByRank    Order = iota // candidates of the highest priority, and among these first the one that was seen last
	ByArrival              // all that wait, in the order in which they came
	ByChance               // nobody
)
