package election

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"
)

// told is an entry that a watcher tells.
type told struct {
	jetstream.KeyValueEntry
	key       string
	value     string
	revision  uint64
	created   time.Time
	operation jetstream.KeyValueOp
}

func (e told) Key() string                     { return e.key }
func (e told) Value() []byte                   { return []byte(e.value) }
func (e told) Revision() uint64                { return e.revision }
func (e told) Created() time.Time              { return e.created }
func (e told) Operation() jetstream.KeyValueOp { return e.operation }

func TestObservationForgetsTheKeysThatNobodyHolds(t *testing.T) {
	const released = `{"name":"a","instance":"i","attempt":"i.2","released":"2026-01-01T00:00:00Z"}`
	for name, end := range map[string]func(o *observation, e told){
		"deleted":  func(o *observation, e told) { e.operation = jetstream.KeyValueDelete; o.see(e) },
		"expired":  func(o *observation, e told) { e.operation = jetstream.KeyValuePurge; o.see(e) },
		"released": func(o *observation, e told) { e.value = released; o.see(e) },
		"unannounced": func(o *observation, _ told) {
			for _, s := range o.sights {
				s.told = false // as for a new watcher
			}
			o.missing()
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			o := &observation{ttl: time.Minute, sights: map[string]*sight{}, queue: newQueue(), told: true}
			now := time.Now()
			for i := range 10_000 {
				e := told{key: fmt.Sprint("k", i), value: "a", revision: uint64(2*i + 1), created: now}
				o.see(e)
				e.revision++
				end(o, e)
				end(o, e) // it is told again
			}
			g.Expect(len(o.sights)).To(BeZero())
			told := map[string]EventKind{}
			for e, ok := o.queue.next(); ok; e, ok = o.queue.next() {
				told[e.Key] = e.Kind
			}
			g.Expect(told).NotTo(BeEmpty())
			for key, kind := range told {
				g.Expect(kind).To(BeElementOf(Released, Expired, Evicted), key)
			}
		})
	}
}

func TestHolderWhoIsGoneIsNotToldAgainByAWatcherThatLagsBehind(t *testing.T) {
	g := NewWithT(t)
	o := &observation{ttl: time.Minute, sights: map[string]*sight{}, queue: newQueue(), told: true}
	e := told{key: "k", value: "a", revision: 1, created: time.Now()}
	o.see(e)
	o.sights["k"].told = false
	o.missing()
	g.Expect(kinds(o.queue)).To(Equal([]EventKind{Elected, Evicted}))
	o.see(e)
	g.Expect(kinds(o.queue)).To(BeEmpty())
}

// kinds takes all that waits.
func kinds(q *queue) (all []EventKind) {
	for e, ok := q.next(); ok; e, ok = q.next() {
		all = append(all, e.Kind)
	}
	return all
}

// full returns a queue whose reader has fallen behind: the key k is held in the eyes of the reader.
func full() *queue {
	q := newQueue()
	q.push(Event{Kind: Leading, Key: "k"})
	for range maxWaiting - 1 {
		q.push(Event{Kind: Renewed, Key: "k"})
	}
	return q
}

func TestEventsThatWaitBehindManyOthersAreTheLatestOfEachKey(t *testing.T) {
	for name, tc := range map[string]struct {
		pushed []EventKind
		told   []EventKind
	}{
		"changes":                         {[]EventKind{Released, Elected, Leading, Expired}, []EventKind{Expired}},
		"a win and renewals":              {[]EventKind{Evicted, Elected, Renewed, Renewed}, []EventKind{Elected}},
		"leadership and renewals":         {[]EventKind{Evicted, Elected, Renewed, Leading, Renewed}, []EventKind{Leading}},
		"renewals alone":                  {[]EventKind{Renewed, Renewed}, []EventKind{Renewed}},
		"renewals, and then an end":       {[]EventKind{Renewed, Released}, []EventKind{Released}},
		"an end of what the reader knows": {[]EventKind{Expired}, []EventKind{Expired}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			q := full()
			for i, kind := range tc.pushed {
				q.push(Event{Kind: kind, Key: "k", Leader: Leader{Revision: uint64(i + 1)}})
			}
			for range maxWaiting {
				_, ok := q.next()
				g.Expect(ok).To(BeTrue())
			}
			var last Event
			for _, kind := range tc.told {
				e, ok := q.next()
				g.Expect(ok).To(BeTrue())
				g.Expect(e.Kind).To(Equal(kind))
				last = e
			}
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
	g.Expect(len(q.events) + q.late.Len() + len(q.byKey)).To(Equal(maxWaiting))
	q.push(Event{Kind: Elected, Key: "last"})
	g.Expect(kinds(q)).To(HaveLen(maxWaiting + 1))
	g.Expect(q.held).To(HaveLen(2))
}

func TestReaderThatCatchesUpIsToldEveryChangeInOrderAgain(t *testing.T) {
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
