package group

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"
)

// plan says who is to lead which key. It is one record, and each but the first is made from the one before.
type plan struct {
	Number uint64              `json:"number"` // one more than that of the plan before
	By     string              `json:"by"`     // the member that made it
	Keys   map[string][]string `json:"keys"`   // by member, sorted; one for each that was there
}

// presence is what a member says of itself.
type presence struct {
	Name     string    `json:"name"`
	Instance string    `json:"instance"` // unique per run
	Since    time.Time `json:"since"`    // when it joined, by its own clock
	Host     string    `json:"host,omitempty"`
	PID      int       `json:"pid,omitempty"`
	Keys     []string  `json:"keys"` // that it can lead, sorted
}

// encode returns the bytes of a plan or presence. Nothing in them can fail to encode.
func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("group: record does not encode: " + err.Error())
	}
	return b
}

// ordered returns keys in the order in which a plan or a presence has them, each once: somebody else may have written any.
func ordered(keys []string) []string {
	slices.Sort(keys)
	return slices.Compact(keys)
}

// lists says whether the member can lead the key.
func (p presence) lists(key string) bool {
	_, found := slices.BinarySearch(p.Keys, key)
	return found
}

// share is what a plan in the making gives to one member.
type share struct {
	presence
	keys []string
}

// gives returns the keys that the plan gives to a member.
func (p plan) gives(name string) []string { return p.Keys[name] }

// same says whether two plans give the same to the same.
func (p plan) same(other plan) bool {
	return maps.EqualFunc(p.Keys, other.Keys, slices.Equal)
}

// next returns the plan for those that are there: they keep what p gives them, keys without a member go to those that
// have the fewest, and then keys move one by one from a member to another that has at least two less. So no key moves
// without need, and where all list the same keys the spread is even. From the same p and members comes the same plan.
func (p plan) next(by string, there []presence) plan {
	shares := make([]*share, len(there))
	for i, m := range there {
		shares[i] = &share{presence: m}
	}
	slices.SortFunc(shares, func(a, b *share) int { return strings.Compare(a.Name, b.Name) })
	given := map[string]bool{}
	for _, s := range shares {
		for _, key := range p.gives(s.Name) {
			if s.lists(key) && !given[key] {
				given[key] = true
				s.keys = append(s.keys, key)
			}
		}
	}
	for _, key := range orphans(shares, given) {
		var to *share
		for _, s := range shares {
			if s.lists(key) && (to == nil || len(s.keys) < len(to.keys)) {
				to = s
			}
		}
		if to != nil {
			to.keys = append(to.keys, key)
		}
	}
	for even(shares) {
	}
	next := plan{Number: p.Number + 1, By: by, Keys: make(map[string][]string, len(shares))}
	for _, s := range shares {
		next.Keys[s.Name] = append([]string{}, slices.Sorted(slices.Values(s.keys))...)
	}
	return next
}

// orphans returns the keys that somebody lists and nobody was given, sorted.
func orphans(shares []*share, given map[string]bool) []string {
	free := map[string]bool{}
	for _, s := range shares {
		for _, key := range s.Keys {
			if !given[key] {
				free[key] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(free))
}

// even moves one key from the fullest share that can spare one to the emptiest that can take it, and says whether there
// was one to move.
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
