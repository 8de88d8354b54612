package group

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"slices"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	// maxInlineBytes is how long the keys of a presence may be in all. A longer list of keys is a record of its own, under its hash, which
	// members of the same keys share: presences stay small, however many keys there are.
	maxInlineBytes = 512
	// maxLists is how many different lists of keys the members of a group may have at a time. Members of further ones keep what the plan
	// assigns to them, until another list is out of use.
	maxLists = 16
	// hashBytes is how many bytes of a hash are used: too many to find two lists of one hash.
	hashBytes = 18
)

// list is the record of a list of keys: an object, as all records of a group are, which tells them from the bare names of leaders.
type list struct {
	Keys []string `json:"keys"`
}

// hashOf returns the hash by which a record is known.
func hashOf(value []byte) string {
	sum := sha256.Sum256(value)
	return base64.RawURLEncoding.EncodeToString(sum[:hashBytes])
}

// listOf returns how a presence says its keys: by themselves if they are few, and else by the hash of their list.
func listOf(keys []string) (inline []string, hash string) {
	if value := encode(list{keys}); len(value) > maxInlineBytes {
		return nil, hashOf(value)
	}
	return keys, ""
}

// listIn returns the list of keys in an entry under the key of the list of the given hash. It is whole only if it has that hash: then a member
// wrote it, or might have.
func listIn(entry jetstream.KeyValueEntry, hash string) (keys []string, whole bool) {
	var l list
	whole = entry.Operation() == jetstream.KeyValuePut && hashOf(entry.Value()) == hash && json.Unmarshal(entry.Value(), &l) == nil
	return ordered(l.Keys), whole
}

// receiveList takes in a list of keys.
func (v *view) receiveList(entry jetstream.KeyValueEntry, hash string) {
	if _, known := v.lists[hash]; known {
		return
	}
	keys, whole := listIn(entry, hash)
	if !whole || len(v.lists) >= maxLists && !v.dropLists() {
		return
	}
	v.lists[hash], v.changed = keys, true
}

// dropLists drops the lists that no member uses, and reports whether there was one.
func (v *view) dropLists() (dropped bool) {
	used := map[string]bool{v.self.List: true}
	for _, m := range v.members {
		used[m.List] = true
	}
	for hash := range v.lists {
		if !used[hash] {
			delete(v.lists, hash)
			dropped = true
		}
	}
	return dropped
}

// listed returns the presence with the keys of its list. A member whose list is not known yet counts as one that lists what the plan assigns to
// it: its keys do not move meanwhile.
func (v *view) listed(p presence) presence {
	if p.List == "" {
		return p
	}
	keys, known := v.lists[p.List]
	if !known {
		p.List, keys = "", v.plan.keysOf(p.Name)
	}
	p.Keys = keys
	return p
}

// writeMissingList writes the list of this member, if the plan in force was made by a member that did not know it.
func (r *run) writeMissingList(ctx context.Context) {
	if r.self.List == "" || r.plan.Number == 0 || slices.Contains(r.plan.Lists, r.self.List) {
		return
	}
	r.listFor = r.planHash
	r.writeList(ctx, r.self.List, r.lists[r.self.List])
}

// refreshLists writes the lists again that the plan was made by, so that they do not expire: whoever plans next needs them.
func (r *run) refreshLists(ctx context.Context) {
	for _, hash := range r.plan.Lists {
		if keys, known := r.lists[hash]; known {
			r.writeList(ctx, hash, keys)
		}
	}
}

// writeList stores a list under its hash.
func (r *run) writeList(ctx context.Context, hash string, keys []string) {
	call, cancel := r.request(ctx)
	defer cancel()
	if _, err := r.bucket.Put(call, r.listKey(hash), encode(list{keys})); err != nil {
		r.warn("List of keys not written", err)
	}
}
