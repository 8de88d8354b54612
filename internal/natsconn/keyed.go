package natsconn

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go"
)

// MaxExact is how many keys have a subscription each. More have one together, which also receives what is about the keys of other processes:
// where many processes share many keys, most of them must have fewer.
const MaxExact = 256

// unshared is how many keys have the whole of MaxBytes each. More share what these have.
const unshared = 8

// Keyed receives the messages about the keys that this process uses, and about no other key as long as these are few: a server can then
// permit single keys. More than [MaxExact] keys share one subscription to all keys that begin with the tokens that they have in common.
// Its methods may be called by several goroutines.
type Keyed struct {
	Conn     *nats.Conn
	Subject  func(key string) string // the subject of a key; the key may have wildcards
	Handle   nats.MsgHandler         // not called concurrently for one subscription
	MaxBytes int                     // how many bytes of messages may wait in a subscription, see unshared; the client drops what comes beyond that
	Dropped  func()                  // is called before the first message that is handled after others were dropped; nil: nothing is
	Wide     bool                    // there is one subscription for all keys, however few

	// Queue is the queue group of the subscriptions to single keys; empty for none. A consumer delivers to a subject while there is a plain
	// subscription to that very subject: a queue group whose name nobody knows does not have the server put heartbeats there.
	Queue string

	exact sync.Map                    // the subscriptions to single keys, by their subjects
	wide  atomic.Pointer[[]*keyedSub] // the others, the oldest first, all younger than any to a single key; never changed in place

	mu      sync.Mutex
	keys    map[string]int // how many users each key has
	shares  int            // by how much the limits of the subscriptions to single keys are divided
	pattern string         // of the widest subscription; empty while each key has its own
}

// keyedSub is a subscription to a pattern.
type keyedSub struct{ *nats.Subscription }

// Add subscribes to a key, if nobody has. Each call needs a call of Remove, whatever it returns.
func (k *Keyed) Add(key string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.keys == nil {
		k.keys = map[string]int{}
	}
	k.keys[key]++
	switch {
	case k.keys[key] > 1:
		return nil
	case k.pattern != "":
		return k.widen(common(k.pattern, key))
	case k.Wide || len(k.keys) > MaxExact:
		pattern := common(key, key)
		for other := range k.keys {
			pattern = common(pattern, other)
		}
		return k.widen(pattern)
	}
	return k.narrow(key)
}

// Remove ends the subscription to a key with the last of its users. What all keys share ends with the last key.
func (k *Keyed) Remove(key string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.keys[key]--; k.keys[key] > 0 {
		return
	}
	delete(k.keys, key)
	if sub, found := k.exact.LoadAndDelete(k.Subject(key)); found {
		_ = sub.(*nats.Subscription).Unsubscribe()
		k.divide()
	}
	if len(k.keys) == 0 {
		k.end()
	}
}

// Close ends all subscriptions. Nothing may be added afterwards.
func (k *Keyed) Close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.exact.Range(func(subject, sub any) bool {
		_ = sub.(*nats.Subscription).Unsubscribe()
		k.exact.Delete(subject)
		return true
	})
	k.end()
}

// end ends the subscriptions that several keys share.
func (k *Keyed) end() {
	for _, sub := range k.shared() {
		_ = sub.Unsubscribe()
	}
	k.wide.Store(nil)
	k.pattern = ""
}

// Pending returns how many messages wait to be handled.
func (k *Keyed) Pending() (n int) {
	count := func(sub *nats.Subscription) {
		if waiting, _, err := sub.Pending(); err == nil {
			n += waiting
		}
	}
	k.exact.Range(func(_, sub any) bool {
		count(sub.(*nats.Subscription))
		return true
	})
	for _, sub := range k.shared() {
		count(sub.Subscription)
	}
	return n
}

// widen adds a subscription to a pattern. The narrower ones stay: a message that the server sends before it knows of the wider one comes by them
// alone.
func (k *Keyed) widen(pattern string) error {
	if pattern == k.pattern {
		return nil
	}
	added := &keyedSub{}
	sub, err := k.subscribe(pattern, "", k.MaxBytes, func(m *nats.Msg) {
		if _, exact := k.exact.Load(m.Subject); exact {
			return
		}
		for _, older := range k.shared() {
			if older == added {
				break
			}
			if covers(older.Subject, m.Subject) {
				return
			}
		}
		k.Handle(m)
	})
	if err != nil {
		return err
	}
	added.Subscription = sub
	all := append(slices.Clone(k.shared()), added)
	k.wide.Store(&all)
	k.pattern = pattern
	return nil
}

// narrow adds a subscription to a single key.
func (k *Keyed) narrow(key string) error {
	k.divide()
	sub, err := k.subscribe(key, k.Queue, k.MaxBytes/k.shares, k.Handle)
	if err == nil {
		k.exact.Store(k.Subject(key), sub)
	}
	return err
}

// divide keeps what may wait for all single keys within what unshared keys may have: who floods many keys fills no more memory than who floods few.
func (k *Keyed) divide() {
	shares := max(1, (len(k.keys)+unshared-1)/unshared)
	if shares == k.shares {
		return
	}
	k.shares = shares
	k.exact.Range(func(_, sub any) bool {
		_ = sub.(*nats.Subscription).SetPendingLimits(-1, k.MaxBytes/shares)
		return true
	})
}

// subscribe makes a subscription. A message that arrives by several is handled once, by the oldest that covers it.
func (k *Keyed) subscribe(key, queue string, maxBytes int, handle nats.MsgHandler) (*nats.Subscription, error) {
	dropped := 0
	sub, err := k.Conn.QueueSubscribe(k.Subject(key), queue, func(m *nats.Msg) {
		if n, err := m.Sub.Dropped(); k.Dropped != nil && err == nil && n > dropped {
			dropped = n
			k.Dropped()
		}
		handle(m)
	})
	if err == nil {
		_ = sub.SetPendingLimits(-1, maxBytes)
	}
	return sub, err
}

// shared returns the subscriptions that several keys share, the oldest first.
func (k *Keyed) shared() []*keyedSub {
	if all := k.wide.Load(); all != nil {
		return *all
	}
	return nil
}

// covers reports whether a subscription to a subject, which may have wildcards, receives what is sent to another.
func covers(pattern, subject string) bool {
	for pattern != ">" {
		p, restOfPattern, more := strings.Cut(pattern, ".")
		t, restOfSubject, moreTokens := strings.Cut(subject, ".")
		if p != "*" && p != t || more != moreTokens {
			return false
		}
		if !more {
			return true
		}
		pattern, subject = restOfPattern, restOfSubject
	}
	return true
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
