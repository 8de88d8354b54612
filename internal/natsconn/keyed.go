package natsconn

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go"
)

// MaxExact is how many keys have a subscription each. More have one together.
const MaxExact = 8

// Keyed receives the messages about the keys that this process uses, and about no other key as long as these are few: a server can then
// permit single keys. More than [MaxExact] keys share one subscription to all keys that begin with the tokens that they have in common.
// Its methods may be called by several goroutines.
type Keyed struct {
	Conn     *nats.Conn
	Subject  func(key string) string // the subject of a key; the key may have wildcards
	Handle   nats.MsgHandler         // not called concurrently for one subscription
	MaxBytes int                     // how many bytes of messages may wait in each subscription; the client drops what comes beyond that
	Wide     bool                    // there is one subscription for all keys, however few

	// Queue is the queue group of the subscriptions to single keys; empty for none. A consumer delivers to a subject while there is a plain
	// subscription to that very subject: a queue group whose name nobody knows does not have the server put heartbeats there.
	Queue string

	all atomic.Pointer[nats.Subscription] // the subscription for all keys; nil while each key has its own

	mu      sync.Mutex
	keys    map[string]int // how many users each key has
	each    map[string]*nats.Subscription
	pattern string // of the subscription for all keys
}

// Add subscribes to a key, if nobody has. Each call needs a call of Remove, whatever it returns.
func (k *Keyed) Add(key string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.keys == nil {
		k.keys, k.each = map[string]int{}, map[string]*nats.Subscription{}
	}
	k.keys[key]++
	switch {
	case k.keys[key] > 1:
		return nil
	case k.all.Load() != nil:
		return k.widen(common(k.pattern, key))
	case k.Wide || len(k.keys) > MaxExact:
		pattern := common(key, key)
		for other := range k.keys {
			pattern = common(pattern, other)
		}
		return k.widen(pattern)
	}
	sub, err := k.subscribe(key, k.Queue, func(m *nats.Msg) {
		if k.all.Load() == nil {
			k.Handle(m)
		}
	})
	if err == nil {
		k.each[key] = sub
	}
	return err
}

// Remove ends the subscription to a key with the last of its users. What all keys share ends with the last key.
func (k *Keyed) Remove(key string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.keys[key]--; k.keys[key] > 0 {
		return
	}
	delete(k.keys, key)
	if sub := k.each[key]; sub != nil {
		_ = sub.Unsubscribe()
		delete(k.each, key)
	}
	if len(k.keys) == 0 {
		if all := k.all.Swap(nil); all != nil {
			_ = all.Unsubscribe()
		}
		k.pattern = ""
	}
}

// widen has one subscription to a pattern take the place of those that there are. A message that arrives by both is handled once: each
// subscription handles only what arrives while it is the one in use. The caller holds mu.
func (k *Keyed) widen(pattern string) error {
	if pattern == k.pattern {
		return nil
	}
	sub, err := k.subscribe(pattern, "", func(m *nats.Msg) {
		if k.all.Load() == m.Sub {
			k.Handle(m)
		}
	})
	if err != nil {
		return err
	}
	before := k.all.Swap(sub)
	k.pattern = pattern
	if before != nil {
		_ = before.Unsubscribe()
	}
	for key, one := range k.each {
		_ = one.Unsubscribe()
		delete(k.each, key)
	}
	return nil
}

func (k *Keyed) subscribe(pattern, queue string, handle nats.MsgHandler) (*nats.Subscription, error) {
	sub, err := k.Conn.QueueSubscribe(k.Subject(pattern), queue, handle)
	if err == nil {
		_ = sub.SetPendingLimits(-1, k.MaxBytes)
	}
	return sub, err
}

// common returns the pattern of all keys that begin with the tokens which two keys, or patterns, have in common before their last token.
func common(a, b string) string {
	parts, others := strings.Split(a, "."), strings.Split(b, ".")
	parts, others = parts[:len(parts)-1], others[:len(others)-1]
	n := 0
	for n < min(len(parts), len(others)) && parts[n] == others[n] {
		n++
	}
	return strings.Join(append(slices.Clone(parts[:n]), ">"), ".")
}
