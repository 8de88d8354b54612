package group

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/timeutil"
	"github.com/natscampaign/election/internal/timing"
)

// Which keys a member lists: those that it was given, without those that it has given up, because it was assigned them and could not lead them. The
// planners assign them to members that list them.
//
// A key is given up after it has been unled for a while: assigned to this member, and led neither by it nor by another, as far as it knows. While this
// member's presence is not delivered either, or an operator has paused the election, no key is given up. A key is listed again once a while has
// passed and the server answers a write to it, at once if this member leads it after all, and also if no other member lists it: some member
// campaigns for each key, even if none is able to lead it.

const (
	// vacantHalves is for how many halves of a TTL a key is unled before it is given up. One that can be led is won within a TTL: no campaign waits
	// longer. What is won and does not count yet is not unled.
	vacantHalves = 3
	// unreadHalves is the same for a key that cannot be read, and was not led by this member before: another member may lead it.
	unreadHalves = 8
	// minGivenUp is for how many TTLs a key is given up at first. Each time is twice as long as the one before, up to maxGivenUp, until this
	// member leads the key.
	minGivenUp = 2
	maxGivenUp = time.Hour
)

// errNoReply is why a member does not ask the leader of a key to hand over.
var errNoReply = errors.New("the server does not answer writes to the key")

// ability is what this member knows of whether it can lead one key. It belongs to the loop.
type ability struct {
	unled    time.Time // when the key was last known not to be unled
	vacant   bool      // nobody else leads the key: this member led it last, or a read has found nobody
	stored   uint64    // the revision of the leader's record that was read last; 0 for none
	storedAt time.Time // when that revision was first read

	givenUp  bool      // this member does not list the key
	failures int       // how many times it has given the key up since it last led it
	tryAgain time.Time // when to try to list the key again; listed all the same, it is not given up before this
}

// listing is what a member knows of the keys that it lists.
type listing struct {
	relisted  bool   // they have changed since the presence was last made
	orphansOf string // the hash of the plan of which it was last found out whether it assigns keys that were given up to nobody
	listFor   string // the hash of the plan for which the list of the keys was written
}

// findLeader reads who leads a key for which this member campaigns.
func findLeader(ctx context.Context, a *assignment) (f answer) {
	if f.leader, f.err = a.election.Load().Leader(ctx); errors.Is(f.err, election.ErrNoLeader) {
		f.err = nil
	}
	f.unread = f.err != nil
	return f
}

// probe makes a write to a key that the server always refuses, to find out whether this member may write the key and is answered.
func (r *run) probe(ctx context.Context, a *assignment) error {
	call, cancel := r.request(ctx)
	defer cancel()
	_, err := r.bucket.Update(call, r.electionKey(a.key), []byte("{}"), record.NeverRevision)
	if kv.Classify(err) == kv.Refused {
		return nil
	}
	return fmt.Errorf("%w: %w", errNoReply, err)
}

// noteLed takes note that a key is not unled, if that is so.
func (r *run) noteLed(a *assignment, mine bool) {
	now, e := time.Now(), a.election.Load()
	switch {
	case !mine || e == nil:
		a.unled, a.vacant = now, false
	case e.IsLeader():
		a.unled, a.vacant, a.failures = now, true, 0
		r.listAgain(a)
	case e.State() == election.LeaderElectState:
		a.unled = now
	}
}

// unledAt returns when a key has been unled for so long that it is read: another member may lead it.
func (r *run) unledAt(a *assignment) time.Time { return a.unled.Add(vacantHalves * r.ttl / 2) }

// lookUp reads who leads a key that seems to be unled.
func (r *run) lookUp(a *assignment) {
	if a.election.Load().Status().Paused {
		a.unled = time.Now()
		r.actBy(r.unledAt(a))
		return
	}
	r.ask(a, findLeader)
}

// noteFound takes in what a read of an assigned key has found. A record of another that has stood for a TTL is nobody's lease.
func (r *run) noteFound(a *assignment, f answer) {
	r.noteLed(a, true) // it may have been won meanwhile
	now, l := time.Now(), f.leader
	if l.Revision != a.stored || l.Name == "" {
		a.stored, a.storedAt = l.Revision, now
	}
	switch {
	case f.unread:
	case l.Name == "" || l.Instance == a.election.Load().Status().Instance || now.Sub(a.storedAt) > r.ttl+timing.ExpiryLateness:
		a.vacant = true
	default:
		a.unled, a.vacant = now, false
	}
	if now.Before(r.unledAt(a)) || !a.vacant && now.Sub(a.unled) < unreadHalves*r.ttl/2 {
		return
	}
	r.giveUp(a)
}

// giveUp has this member list a key no more. If it leads no key at all it lists none: it would be assigned others in place of the one.
func (r *run) giveUp(a *assignment) {
	if a.givenUp || r.ending || time.Now().Before(a.tryAgain) || len(r.plan.Keys) < 2 {
		return
	}
	r.log.Warn("Key given up, because this member cannot lead it", "key", a.key, "unled", time.Since(a.unled).Round(time.Millisecond), "error", a.election.Load().Status().LastError)
	leads := false
	for _, other := range r.assignments {
		e := other.election.Load()
		leads = leads || e != nil && (e.IsLeader() || e.State() == election.LeaderElectState)
	}
	for _, other := range r.assignments {
		if !other.givenUp && (other == a || !leads) {
			other.givenUp, other.tryAgain = true, time.Now().Add(min(minGivenUp*r.ttl<<min(other.failures, 16), maxGivenUp))
			other.failures++
		}
	}
	r.relisted = true
}

// listAgain has this member list a key again, if it has given it up.
func (r *run) listAgain(a *assignment) {
	if a.givenUp {
		a.givenUp, r.relisted = false, true
	}
}

// relist lists keys again that were given up and that this member may be able to lead, or nobody is.
func (r *run) relist() {
	first := r.firstGivenUp()
	if first != nil && r.orphansOf != r.planHash {
		r.orphansOf = r.planHash
		r.adoptOrphans()
		first = r.firstGivenUp()
	}
	if first != nil && r.isDue(first.tryAgain) {
		r.ask(first, r.tryWrite)
	}
	if r.relisted {
		r.relisted = false
		listed := r.setKeys()
		r.log.Info("Keys listed", "keys", listed, "given-up", len(r.keys)-listed)
		r.presenceDue = time.Now()
	}
}

// adoptOrphans lists the keys again that the plan in force assigns to nobody: no other member lists them.
func (r *run) adoptOrphans() {
	assigned := r.plan.assigned()
	for key, a := range r.assignments {
		if a.givenUp && !assigned[key] {
			r.listAgain(a)
		}
	}
}

// firstGivenUp returns the key that was given up which is to be tried again first; nil if there is none.
func (r *run) firstGivenUp() (first *assignment) {
	for _, key := range r.keys {
		if a := r.assignments[key]; a.givenUp && (first == nil || a.tryAgain.Before(first.tryAgain)) {
			first = a
		}
	}
	return first
}

// tryWrite finds out whether a key that was given up can be written.
func (r *run) tryWrite(ctx context.Context, a *assignment) answer {
	return answer{tried: true, err: r.probe(ctx, a)}
}

// writeTried takes in whether a key that was given up can be written. If so, all keys whose time has come are listed again: what kept this member
// from leading has probably ended for all of them.
func (r *run) writeTried(a *assignment, err error) {
	now := time.Now()
	if err != nil {
		a.tryAgain = timeutil.Later(a.tryAgain, now.Add(r.ttl/presencesPerTTL))
		return
	}
	for _, a := range r.assignments {
		if a.givenUp && !now.Before(a.tryAgain) {
			r.listAgain(a)
		}
	}
}

// setKeys has the presence list the keys that this member was given and has not given up, and returns how many they are.
func (r *run) setKeys() int {
	keys := slices.DeleteFunc(slices.Clone(r.keys), func(key string) bool { return r.assignments[key].givenUp })
	r.self.Keys, r.self.List = listOf(keys)
	if r.self.List != "" {
		r.lists[r.self.List] = keys
	}
	return len(keys)
}
