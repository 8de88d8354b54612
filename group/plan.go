package group

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election/internal/record"
)

// maxPlanNumber is the highest number of a plan, which every reader of JSON still reads exactly. No group makes so many plans, but anybody
// who may write the bucket can write one with that number.
const maxPlanNumber uint64 = 1 << 53

// plan assigns keys to members. It is one record, and each plan but the first is made from the one before.
type plan struct {
	Number uint64              `json:"number"`         // one more than that of the plan before, or 1 after the highest
	By     string              `json:"by"`             // the member that made it
	Keys   map[string][]string `json:"keys"`           // by member, sorted; an entry for each member that was present, and for By
	Order  []string            `json:"order"`          // the members that were present, the one that has been present longest first
	Lists  []string            `json:"lists"`          // the hashes of the lists of keys that By knew, sorted; see lists.go
	Full   bool                `json:"full,omitempty"` // members were present that it has no room for
}

// presence is the record of a member. It says the keys that the member can lead, or the hash of their list: see able.go, lists.go. It has the fields of a
// term's record by which a witness recognises a term, and a witness releases it like one: then the member has died.
type presence struct {
	Name     string    `json:"name"`
	Instance string    `json:"instance"` // unique per run
	Attempt  string    `json:"attempt"`  // unique per write
	Since    time.Time `json:"since"`    // when it joined, by its own clock
	Host     string    `json:"host,omitempty"`
	PID      int       `json:"pid,omitempty"`
	Keys     []string  `json:"keys,omitempty"` // sorted
	List     string    `json:"list,omitempty"`
	Left     bool      `json:"left,omitempty"`

	Commitment record.Commitment `json:"commitment,omitzero"` // to a secret that only the member and its witness know; none without a witness
	Secret     record.Secret     `json:"secret,omitzero"`     // in the release of a witness
}

// planIn returns the plan in an entry under the key of the plan. It is whole only if its number is possible and it has an entry for the
// member that made it, which was present. A plan that is not whole is not followed.
func planIn(entry jetstream.KeyValueEntry) (p plan, whole bool) {
	whole = entry.Operation() == jetstream.KeyValuePut && json.Unmarshal(entry.Value(), &p) == nil && p.Number > 0 && p.Number <= maxPlanNumber
	for name, keys := range p.Keys {
		p.Keys[name] = ordered(keys)
	}
	_, planned := p.Keys[p.By]
	return p, whole && planned
}

// presenceIn returns the presence in an entry under the key of a member. Anybody who may write the bucket can write or delete that entry, so
// the presence is whole only if it names that member and a run of it. A release is whole only if it opens its commitment.
func presenceIn(entry jetstream.KeyValueEntry, name string) (p presence, whole bool) {
	whole = entry.Operation() == jetstream.KeyValuePut && json.Unmarshal(entry.Value(), &p) == nil && p.Name == name && p.Instance != ""
	if p.died() {
		p.Left = true
		whole = whole && p.Commitment.OpenedBy(p.Secret)
	}
	return p, whole
}

// died reports whether a witness has released the presence.
func (p presence) died() bool { return p.Secret != record.Secret{} }

// encode returns the bytes of a plan or presence. Nothing in them can fail to encode.
func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("group: record does not encode: " + err.Error())
	}
	return b
}

// ordered returns keys sorted, each once: any client may have written the record.
func ordered(keys []string) []string {
	slices.Sort(keys)
	return slices.Compact(keys)
}

// lists reports whether the member can lead the key.
func (p presence) lists(key string) bool {
	_, found := slices.BinarySearch(p.Keys, key)
	return found
}

// share is what a plan in the making assigns to one member.
type share struct {
	presence
	keys []string
}

// keysOf returns the keys that the plan assigns to a member.
func (p plan) keysOf(name string) []string { return p.Keys[name] }

// ownerOf returns the member to which the plan assigns a key; "" if there is none.
func (p plan) ownerOf(key string) string {
	for name, keys := range p.Keys {
		if _, found := slices.BinarySearch(keys, key); found {
			return name
		}
	}
	return ""
}

// assigned returns the keys that the plan assigns to members.
func (p plan) assigned() map[string]bool {
	assigned := map[string]bool{}
	for _, keys := range p.Keys {
		for _, key := range keys {
			assigned[key] = true
		}
	}
	return assigned
}

// same reports whether two plans assign the same keys to the same members, by the same lists.
func (p plan) same(other plan) bool {
	return maps.EqualFunc(p.Keys, other.Keys, slices.Equal) && slices.Equal(p.Lists, other.Lists) && p.Full == other.Full
}

// next returns the plan for the members that are present. They keep what p assigns to them, keys without a member go to the members with
// the fewest, and then keys move one by one from a member to another that has at least two fewer. So no key moves without need, and where
// all list the same keys the spread is even. The same p and members make the same plan.
func (p plan) next(by string, present []presence) plan {
	shares, order := make([]*share, len(present)), make([]string, len(present))
	for i, m := range present {
		shares[i], order[i] = &share{presence: m}, m.Name
	}
	slices.SortFunc(shares, func(a, b *share) int { return strings.Compare(a.Name, b.Name) })
	free, lists := map[string]bool{}, map[string]bool{} // the keys that a present member lists; the hashes of their lists, which members share
	for _, s := range shares {
		if s.List != "" && lists[s.List] {
			continue
		}
		if s.List != "" {
			lists[s.List] = true
		}
		for _, key := range s.Keys {
			free[key] = true
		}
	}
	for _, s := range shares {
		for _, key := range p.keysOf(s.Name) {
			if s.lists(key) && free[key] {
				delete(free, key)
				s.keys = append(s.keys, key)
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(free)) {
		var to *share
		for _, s := range shares {
			if (to == nil || len(s.keys) < len(to.keys)) && s.lists(key) {
				to = s
			}
		}
		if to != nil { // nil if the only member that lists the key did not sort its list
			to.keys = append(to.keys, key)
		}
	}
	for even(shares) {
	}
	next := plan{Number: p.Number%maxPlanNumber + 1, By: by, Keys: make(map[string][]string, len(shares)), Order: order, Lists: slices.Sorted(maps.Keys(lists))}
	for _, s := range shares {
		next.Keys[s.Name] = append([]string{}, slices.Sorted(slices.Values(s.keys))...)
	}
	return next
}

// even moves one key from the fullest share that can spare one to the emptiest that can take it, and reports whether it moved one.
func even(shares []*share) bool {
	slices.SortFunc(shares, func(a, b *share) int {
		return cmp.Or(cmp.Compare(len(a.keys), len(b.keys)), strings.Compare(a.Name, b.Name))
	})
	for _, from := range slices.Backward(shares) {
		for _, to := range shares {
			if len(from.keys)-len(to.keys) < 2 {
				break
			}
			for i, key := range slices.Backward(from.keys) {
				if to.lists(key) {
					from.keys = slices.Delete(from.keys, i, i+1)
					to.keys = append(to.keys, key)
					return true
				}
			}
		}
	}
	return false
}
