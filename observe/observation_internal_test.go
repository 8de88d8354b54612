package observe

import (
	"fmt"
	"testing"
	"time"

	"github.com/natscampaign/election/internal/test/natstest"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
)

// update is an update of a watcher.
type update struct {
	jetstream.KeyValueEntry
	key       string
	value     string
	revision  uint64
	created   time.Time
	operation jetstream.KeyValueOp
	delta     uint64
}

func (u update) Key() string                     { return u.key }
func (u update) Value() []byte                   { return []byte(u.value) }
func (u update) Revision() uint64                { return u.revision }
func (u update) Created() time.Time              { return u.created }
func (u update) Operation() jetstream.KeyValueOp { return u.operation }

func (u update) Delta() uint64 { return u.delta }

// begun returns an observation that has reported the current state.
func begun() *observation {
	return &observation{ttl: time.Minute, keys: map[string]*keyState{}, queue: newQueue(), current: true}
}

// A reader found it: while two keys are read of which one is renewed, the client passes on nil before the other has come.
func TestAllThatIsStoredHasComeOnlyWhenNothingIsOnItsWay(t *testing.T) {
	for name, updates := range map[string][]jetstream.KeyValueEntry{
		"nothing is stored":          {nil},
		"nothing changes":            {update{delta: 1}, update{}, nil},
		"a key is renewed meanwhile": {update{delta: 1}, update{delta: 1}, nil, update{}},
	} {
		t.Run(name, func(t *testing.T) {
			g, w := NewWithT(t), &watcher{}
			for i, u := range updates {
				g.Expect(w.each(u, func(jetstream.KeyValueEntry) {})).To(Equal(i == len(updates)-1))
			}
			g.Expect(w.each(update{}, func(jetstream.KeyValueEntry) {})).To(BeFalse(), "it has come before")
		})
	}
}

func TestObservationForgetsTheKeysThatNobodyHolds(t *testing.T) {
	natstest.SkipIfShort(t)
	const released = `{"name":"a","instance":"i","attempt":"i.2","released":"2026-01-01T00:00:00Z"}`
	for name, end := range map[string]func(o *observation, u update){
		"deleted":  func(o *observation, u update) { u.operation = jetstream.KeyValueDelete; o.update(u) },
		"expired":  func(o *observation, u update) { u.operation = jetstream.KeyValuePurge; o.update(u) },
		"released": func(o *observation, u update) { u.value = released; o.update(u) },
		"missing": func(o *observation, _ update) {
			for _, k := range o.keys {
				k.seen = false // as for a new watcher
			}
			o.reportMissing()
		},
	} {
		t.Run(name, func(t *testing.T) {
			g, o, now := NewWithT(t), begun(), time.Now()
			for i := range 10_000 {
				u := update{key: fmt.Sprint("k", i), value: "a", revision: uint64(2*i + 1), created: now}
				o.update(u)
				u.revision++
				end(o, u)
				end(o, u) // a watcher repeats it
			}
			g.Expect(o.keys).To(BeEmpty())
			last := map[string]EventKind{}
			for e, ok := o.queue.next(); ok; e, ok = o.queue.next() {
				last[e.Key] = e.Kind
			}
			g.Expect(last).NotTo(BeEmpty())
			for key, kind := range last {
				g.Expect(kind).To(BeElementOf(Released, Expired, Evicted), key)
			}
		})
	}
}

func TestHolderThatIsGoneIsNotReportedAgainByAWatcherThatLagsBehind(t *testing.T) {
	g, o := NewWithT(t), begun()
	u := update{key: "k", value: "a", revision: 1, created: time.Now()}
	o.update(u)
	o.keys["k"].seen = false
	o.reportMissing()
	g.Expect(kinds(o.queue)).To(Equal([]EventKind{Elected, Evicted}))
	o.update(u)
	g.Expect(kinds(o.queue)).To(BeEmpty())
}

func TestEventsByWhatIsStoredAfterALeadersRecord(t *testing.T) {
	const (
		a       = `{"name":"a","instance":"a1","attempt":"a1.1","term":1,"since":"2026-01-01T00:00:00Z"`
		b       = `{"name":"b","instance":"b1","attempt":"b1.1","since":"2026-01-01T00:01:00Z"`
		release = `,"released":"2026-01-01T00:02:00Z"}`
	)
	late := time.Minute // the TTL
	for name, c := range map[string]struct {
		before string
		next   update
		after  time.Duration
		kinds  []EventKind
	}{
		"renewed":                        {a + "}", update{value: a + "}"}, 0, []EventKind{Renewed}},
		"released":                       {a + "}", update{value: a + release}, 0, []EventKind{Released}},
		"deleted":                        {a + "}", update{operation: jetstream.KeyValueDelete}, 0, []EventKind{Evicted}},
		"deleted late":                   {a + "}", update{operation: jetstream.KeyValueDelete}, late, []EventKind{Evicted}},
		"purged":                         {a + "}", update{operation: jetstream.KeyValuePurge}, late - 1, []EventKind{Evicted}},
		"expired":                        {a + "}", update{operation: jetstream.KeyValuePurge}, late, []EventKind{Expired}},
		"overwritten":                    {a + "}", update{value: b + "}"}, late - 1, []EventKind{Evicted, Elected}},
		"overwritten by a leader":        {a + "}", update{value: b + `,"term":2}`}, 0, []EventKind{Evicted, Elected, Leading}},
		"expired and won":                {a + "}", update{value: b + "}"}, late, []EventKind{Expired, Elected}},
		"released and won":               {a + "}", update{value: b + `,"won":"released"}`}, late, []EventKind{Released, Elected}},
		"overwritten, and then released": {a + "}", update{value: b + release}, 0, []EventKind{Evicted}},
		"a bare name, renewed":           {"a", update{value: "a"}, 0, []EventKind{Leading}},
		"a bare name, deleted":           {"a", update{operation: jetstream.KeyValueDelete}, 0, []EventKind{Released}},
		"a bare name, released":          {"a", update{value: a + release}, 0, []EventKind{Released}},
		"a bare name, expired":           {"a", update{operation: jetstream.KeyValuePurge}, late, []EventKind{Expired}},
		"a bare name, overwritten":       {"a", update{value: "b"}, 0, []EventKind{Evicted, Elected}},
	} {
		t.Run(name, func(t *testing.T) {
			g, o, now := NewWithT(t), begun(), time.Now()
			o.update(update{key: "k", value: c.before, revision: 1, created: now})
			g.Expect(kinds(o.queue)).NotTo(BeEmpty())
			c.next.key, c.next.revision, c.next.created = "k", 2, now.Add(c.after)
			o.update(c.next)
			g.Expect(kinds(o.queue)).To(Equal(c.kinds))
		})
	}
}

// kinds removes and returns all that waits.
func kinds(q *queue) (all []EventKind) {
	for e, ok := q.next(); ok; e, ok = q.next() {
		all = append(all, e.Kind)
	}
	return all
}

// full returns a queue whose reader has fallen behind, and for whom the key k is held.
func full() *queue {
	q := newQueue()
	q.push(Event{Kind: Leading, Key: "k"})
	for range maxInOrder - 1 {
		q.push(Event{Kind: Renewed, Key: "k"})
	}
	return q
}

func TestEventsThatWaitBehindManyOthersAreTheLatestOfEachKey(t *testing.T) {
	for name, tc := range map[string]struct {
		pushed    []EventKind
		delivered EventKind
	}{
		"changes":                         {[]EventKind{Released, Elected, Leading, Expired}, Expired},
		"a win and renewals":              {[]EventKind{Evicted, Elected, Renewed, Renewed}, Elected},
		"leadership and renewals":         {[]EventKind{Evicted, Elected, Renewed, Leading, Renewed}, Leading},
		"renewals alone":                  {[]EventKind{Renewed, Renewed}, Renewed},
		"renewals, and then an end":       {[]EventKind{Renewed, Released}, Released},
		"an end of what the reader knows": {[]EventKind{Expired}, Expired},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			q := full()
			for i, kind := range tc.pushed {
				q.push(Event{Kind: kind, Key: "k", Leader: election.Leader{Revision: uint64(i + 1)}})
			}
			for range maxInOrder {
				_, ok := q.next()
				g.Expect(ok).To(BeTrue())
			}
			last, ok := q.next()
			g.Expect(ok).To(BeTrue())
			g.Expect(last.Kind).To(Equal(tc.delivered))
			g.Expect(last.Leader.Revision).To(BeEquivalentTo(len(tc.pushed)), "the latest there is to know")
			g.Expect(kinds(q)).To(BeEmpty())
		})
	}
}

func TestKeysThatComeAndGoWhileNobodyReadsTakeNoMemory(t *testing.T) {
	g := NewWithT(t)
	q := full()
	for i := range 10_000 {
		key := fmt.Sprint("k", i)
		for _, kind := range []EventKind{Elected, Renewed, Leading, Evicted} {
			q.push(Event{Kind: kind, Key: key})
		}
	}
	g.Expect(len(q.events) + len(q.late)).To(Equal(maxInOrder))
	q.push(Event{Kind: Elected, Key: "last"})
	g.Expect(kinds(q)).To(HaveLen(maxInOrder + 1))
	g.Expect(q.held).To(HaveLen(2))
}

func TestReaderThatCatchesUpReceivesEveryChangeInOrderAgain(t *testing.T) {
	g := NewWithT(t)
	q := full()
	for range 3 {
		q.push(Event{Kind: Released, Key: "k"})
		q.push(Event{Kind: Elected, Key: "k"})
	}
	_, _ = q.next() // which makes room
	q.push(Event{Kind: Leading, Key: "k"})
	q.push(Event{Kind: Released, Key: "k"})
	all := kinds(q)
	g.Expect(all[len(all)-2:]).To(Equal([]EventKind{Elected, Released}))
	for _, kind := range []EventKind{Elected, Leading, Released} {
		q.push(Event{Kind: kind, Key: "k"})
	}
	g.Expect(kinds(q)).To(Equal([]EventKind{Elected, Leading, Released}))
}
