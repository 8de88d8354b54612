package sim

import (
	"context"
	"time"

	"github.com/natscampaign/election"
)

// standing is what a candidate says of itself.
type standing interface {
	State() election.State
	Term() (election.Term, bool)
	IsLeader() bool
}

// ledger is what the judge knows of one candidate: by what it was seen to write, to be told, and to say.
type ledger struct {
	name      string
	status    standing
	ttl       time.Duration
	lease     time.Duration // the TTL less the margin
	margin    time.Duration
	standDown time.Duration
	interval  time.Duration
	plain     bool
	unread    bool
	heard     func() (told *entry, at time.Time, before *entry) // the last that its watcher told it

	gaveBack time.Time // when it last released a win that it could not keep; it leaves the key to others for a TTL then

	crashed bool
	running bool
	quit    bool // whether its work returned by itself since it was started
	leaving bool // whether it was told to stop or resign, or its work returned, since it last won

	hold      *grip     // by its last win that was acknowledged
	revision  uint64    // of its last write that it knows to have been applied
	last      *write    // its last write that was applied
	read      *entry    // the record that it last read
	rewound   time.Time // when the history was rewound in which that write stood under the key; zero if it was not
	shown     time.Time // since when each of its renewals would prove that; zero if they would not
	refuted   time.Time // when it was given proof that it lost the key that it held last; zero if it was not
	displaced time.Time // when what it had written last ceased to stand under the key but by its own hand
	troubled  time.Time // until when something went wrong with its calls
	surveyed  time.Time // when it last asked for the bucket's state
	closed    time.Time // when its connection was closed for good; zero if it was not
	cut       time.Time // when a write of its own first failed for that; zero if none did

	held  *grip // as it was last seen to hold the key; nil if it did not
	term  election.Term
	leads bool // as it was last seen to lead, in that term

	callback   string // the one that runs
	won, lost  int    // how often OnWon was called and OnLost has returned
	wonBy      *grip  // in which OnWon was last called
	callbackAt time.Time
	working    int
	workTerm   election.Term
	valid      func() bool // says whether that is
	workCtx    context.Context
	lapsed     time.Time // when that was found to outlast the term; zero if it was not
}

// grip is a candidate's hold on the key, from one win on, as far as the bucket can tell.
type grip struct {
	win      *write
	counts   time.Time // leadership may count from the first renewal sent at this time or later
	knew     bool      // whether the winner was told that somebody had removed the key
	bound    time.Time // the lease's deadline
	prior    time.Time // what that was before the last renewal became known
	renewed  time.Time // when it did
	surveyed bool      // whether its bucket was looked at before that renewal was counted
	seen     bool      // whether its candidate was seen to hold the key
	over     bool      // whether it was seen to end, or a release was sent
	mayLead  bool      // whether a renewal is known from which leadership may count
}

// standDownOf and its like return what an option of the plan means on a bucket with the given TTL.
func (p *plan) standDownOf(ttl time.Duration) time.Duration {
	if p.standDown < 0 {
		return p.intervalOf(ttl)
	}
	return p.standDown
}

func (p *plan) intervalOf(ttl time.Duration) time.Duration {
	if p.interval < 0 {
		return ttl * 3 / 4
	}
	return p.interval
}

func (p *plan) marginOf(ttl time.Duration) time.Duration {
	if p.margin < 0 {
		return max(50*time.Millisecond, ttl/50)
	}
	return p.margin
}

// wins says whether a write that was applied won the key for its writer, rather than renewed what he held.
func (l *ledger) wins(q *write) bool {
	if l.plain {
		taken := l.held == nil && q.over != nil && q.over.write != nil && q.over.write.by != l // whatever its revision
		return q.create || q.expect != l.revision || l.hold == nil || l.hold.over || !q.sent.Before(l.hold.bound) || taken
	}
	return q.create || q.note.Since.Equal(q.sent)
}

// meant returns what the writer of an update took for that with the revision which it demands; nil if it knew none.
func (q *write) meant() *entry {
	for _, e := range []*entry{q.read, q.told} {
		if e != nil && e.revision == q.expect && !q.create {
			return e
		}
	}
	return nil
}

// renews says whether a write was made in the term that is held.
func (l *ledger) renews(q *write) bool {
	return l.hold != nil && !q.remove && q.note.Released.IsZero() && !l.wins(q) &&
		(l.plain || q.note.Since.Equal(l.hold.win.note.Since))
}

// required returns the stand-down that the contract asks of whoever won by q, and whether he was told of a removal.
func (l *ledger) required(q *write) (d time.Duration, knew bool) {
	over := q.over
	if meant := q.meant(); meant != nil && meant != over {
		return 0, false // the bucket was reset or rewound, and the revision that was meant hit by chance
	}
	if over != nil && over.write != nil && over.write.remove {
		switch {
		case q.told != over:
			return l.standDown, false
		case over.write.over.releases() && q.before == over.write.over:
			// That somebody deletes a release, mostly its writer, does not undo it.
		case over.op == kvDelete && q.toldAt.Before(q.sent):
			return max(l.standDown, l.ttl), !over.write.over.releases()
		default:
			return l.standDown, false
		}
		over = over.write.over
	}
	if !over.releases() {
		if over == nil || over.write == nil || over.write.by != l || l.plain {
			return l.standDown, false
		}
		owed, knew := over.write.owed, over.write.knew // a late write of its own
		if l.wins(over.write) {
			owed, knew = l.required(over.write)
		}
		return max(l.standDown, owed), knew
	}
	left := min(time.Duration(over.write.note.StandDownMs)*time.Millisecond, max(l.standDown, l.ttl))
	switch {
	case l.plain: // it does not say which bucket it takes this for
		return min(left, l.standDown), false
	case over.write.note.Bucket.Equal(q.note.Bucket), over.write.note.Bucket.Equal(q.bucket):
		return left, false // the winner took it for the same bucket, or finds that it is
	}
	return l.standDown, false // a release that was written in an earlier bucket vouches for nothing
}
