package group

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// stored is an entry of the bucket.
type stored struct {
	jetstream.KeyValueEntry
	key   string
	value []byte
}

func (e stored) Key() string                     { return e.key }
func (e stored) Value() []byte                   { return e.value }
func (e stored) Revision() uint64                { return 1 }
func (e stored) Operation() jetstream.KeyValueOp { return jetstream.KeyValuePut }

// FuzzView plans from records that any client may have written under the keys of a group.
func FuzzView(f *testing.F) {
	const member = `{"name":"a","instance":"i","since":"2026-01-01T00:00:00Z","keys":["k","l"]}`
	for _, records := range [][3]string{
		{member, `{"name":"b","instance":"j","keys":["l","m"]}`, `{"number":3,"by":"a","keys":{"a":["k"],"b":["l","m"],"c":["k","n"]}}`},
		{`{"name":"a","instance":"i","keys":["z","y"]}`, `{"name":"b","instance":"j","keys":["x","x",""]}`, `{"keys":{"":["b","a"],"c":null}}`},
		{member, `{"name":"c"}`, `{"number":18446744073709551615,"keys":{"c":["n","m","n"],"a":["k","k","what"]}}`},
		{"", "null", "[]"},
	} {
		f.Add([]byte(records[0]), []byte(records[1]), []byte(records[2]))
	}
	f.Fuzz(func(t *testing.T, a, b, planned []byte) {
		v := view{group: &Group{group: "g"}, ttl: time.Minute, planner: true, lists: map[string][]string{}}
		v.begin()
		v.receive(stored{key: "g.members.a", value: a})
		v.receive(stored{key: "g.members.b", value: b})
		v.receive(stored{key: "g.plan", value: planned})
		v.completed()
		present := v.present()
		next := v.plan.next("a", present)
		if len(next.Keys) != len(present) {
			t.Errorf("a plan for %d of %d", len(next.Keys), len(present))
		}
		given := map[string]int{}
		for _, m := range present {
			for _, key := range next.keysOf(m.Name) {
				given[key]++
				if !m.lists(key) {
					t.Errorf("%q does not list %q", m.Name, key)
				}
			}
		}
		for _, m := range present {
			for _, key := range m.Keys {
				if given[key] != 1 {
					t.Errorf("%q was given to %d", key, given[key])
				}
			}
		}
		if !next.next("a", present).same(next) {
			t.Errorf("a plan that does not fit: %v", next.Keys)
		}
	})
}
