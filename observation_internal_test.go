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
			g.Expect(o.queue.take()).To(HaveLen(20_000), "each came and went once")
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
	g.Expect(o.queue.take()).To(HaveLen(2))
	o.see(e)
	g.Expect(o.queue.take()).To(BeEmpty())
}
