package group_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"

	"github.com/natscampaign/election/group"
	"github.com/natscampaign/election/internal/drill/faultproxy"
)

var (
	churnTime  = flag.Duration("churn", 5*time.Minute, "for how long, on virtual time, members come and go")
	churnSeeds = flag.Uint64("seeds", 1, "how many times, each with a seed of its own")
	churnSize  = flag.Int("members", 8, "how many members there are at first; later up to half as many more")
	churnKeys  = flag.Int("keys", 64, "how many keys they share")
)

const (
	orderly = 20 * time.Millisecond // how long a key is without a leader at most as it is handed over
	cutOff  = ttl + crashed         // and after members come back that led it: their elections may campaign only once per interval
)

// churn is a group whose members join, leave, crash and are cut off by a seed, while strangers write under its keys.
type churn struct {
	*fleet
	chance  *rand.Rand
	keys    []string
	members []*member // that should be present
	joined  int
}

// outcome is what must come of a change.
type outcome struct {
	moves types.GomegaMatcher
	gap   time.Duration // the longest that a key may be without a leader
}

// changes are what may happen to a group of at least so many members, each as often as its weight says.
var changes = []struct {
	what          string
	weight, least int
	change        func(c *churn, before map[*member]int) outcome
}{
	{"a newcomer", 4, 0, func(c *churn, before map[*member]int) outcome {
		c.join()
		c.wait(time.Second)
		return c.moved(before, orderly)
	}},
	{"a member that leaves", 2, 4, func(c *churn, before map[*member]int) outcome {
		c.pick().leave()
		c.wait(time.Second)
		return c.moved(before, orderly)
	}},
	{"a member that crashes", 1, 4, func(c *churn, before map[*member]int) outcome {
		defer c.cut(1)()
		return c.moved(before, crashed)
	}},
	{"two members that crash", 1, 6, func(c *churn, before map[*member]int) outcome {
		defer c.cut(2)()
		return c.moved(before, crashed)
	}},
	{"a member that is cut off and comes back", 2, 4, func(c *churn, before map[*member]int) outcome {
		m := c.pick()
		m.link.Cut()
		c.wait(crashed)
		c.check("a member that is cut off", c.moved(before, crashed))
		c.members = append(c.members, m)
		before = c.loads()
		m.link.Heal()
		c.wait(ttl)
		return c.moved(before, orderly)
	}},
	{"two members that are cut off for a while", 2, 6, func(c *churn, _ map[*member]int) outcome {
		most := 2 * (c.share(0) + c.share(-1)) // one may be given keys of the other before it is missed as well
		m, n := c.pick(), c.pick()
		m.link.Cut()
		n.link.Cut()
		after(ttl/2 + time.Duration(c.chance.Int64N(int64(ttl)))) // they may be given up meanwhile, or not
		m.link.Heal()
		n.link.Heal()
		c.members = append(c.members, m, n)
		c.wait(cutOff)
		return outcome{BeNumerically("<=", most), cutOff}
	}},
	{"a member that is cut off for a moment", 1, 1, func(c *churn, _ map[*member]int) outcome {
		m := c.members[c.chance.IntN(len(c.members))]
		m.link.Cut()
		after(time.Duration(c.chance.Int64N(int64(time.Second))))
		m.link.Heal()
		c.wait(ttl)
		return outcome{BeZero(), 0}
	}},
	{"an outage of the server", 1, 1, func(c *churn, _ map[*member]int) outcome {
		fail := []func(*faultproxy.Link){(*faultproxy.Link).Cut, (*faultproxy.Link).Stall}[c.chance.IntN(2)]
		for _, m := range c.members {
			fail(m.link)
		}
		outage := time.Duration(c.chance.Int64N(int64(3 * ttl)))
		after(outage)
		for _, i := range c.chance.Perm(len(c.members)) {
			c.members[i].link.Heal()
			after(min(200*time.Millisecond, 2400*time.Millisecond/time.Duration(len(c.members)))) // all within a TTL
		}
		c.wait(cutOff)
		return outcome{BeZero(), outage + cutOff}
	}},
	{"strays", 2, 1, func(c *churn, _ map[*member]int) outcome {
		for range 20 {
			c.stray()
			after(time.Duration(c.chance.Int64N(int64(time.Second))))
		}
		return outcome{BeZero(), 0}
	}},
	{"a forged newcomer", 1, 1, func(c *churn, _ map[*member]int) outcome {
		c.forge("shards.members.nobody", map[string]any{"name": "nobody", "instance": "i", "keys": c.keys})
		c.wait(ttl + lateness + 2*time.Second)
		return outcome{BeNumerically("<=", c.share(1)), orderly}
	}},
	{"a forged member", 1, 4, func(c *churn, before map[*member]int) outcome {
		m := c.pick()
		c.forge("shards.members."+m.name, map[string]any{"name": m.name, "instance": "i", "keys": c.keys})
		c.Expect(m.end()).To(MatchError(group.ErrReplaced))
		c.wait(crashed)
		return c.moved(before, crashed)
	}},
	{"a forged plan", 1, 2, func(c *churn, before map[*member]int) outcome {
		s, a, b := c.members[0].Status(), c.members[0], c.members[1]
		s.Planned[a.name], s.Planned[b.name] = s.Planned[b.name], s.Planned[a.name]
		c.forge("shards.plan", map[string]any{"number": s.Plan + 1, "by": a.name, "keys": s.Planned})
		after(instant) // until it is received: a stray value may be stored over it
		c.wait(ttl / 2)
		return outcome{Equal(before[a] + before[b]), orderly}
	}},
}

func TestGroupLeadsEachKeyOnceEvenlyAndMovesNoneWithoutNeedWhateverHappens(t *testing.T) {
	length := *churnTime
	if testing.Short() {
		length = min(length, 20*time.Second)
	}
	for seed := range *churnSeeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				c := &churn{fleet: f, chance: rand.New(rand.NewPCG(seed, 64)), keys: keysOf(*churnKeys)}
				for range *churnSize {
					c.join()
				}
				after(standDown + time.Second)
				c.expectEven(c.keys, c.members)
				for begun := time.Now(); time.Since(begun) < length; {
					c.change()
				}
			})
		})
	}
}

// change makes one change and checks what comes of it.
func (c *churn) change() {
	c.Helper()
	var possible []int
	for i, kind := range changes {
		if len(c.members) >= kind.least && (len(c.members) < *churnSize*3/2 || kind.what != "a newcomer") {
			possible = append(possible, slices.Repeat([]int{i}, kind.weight)...)
		}
	}
	kind := changes[possible[c.chance.IntN(len(possible))]]
	c.journal.reset()
	c.check(kind.what, kind.change(c, c.loads()))
}

// check checks what came of a change.
func (c *churn) check(what string, o outcome) {
	c.Helper()
	c.expectEven(c.keys, c.members)
	_, moves, gap := c.journal.reset()
	c.Logf("%v: %s, %d members, %d moves, %v without a leader", time.Now().Format("04:05"), what, len(c.members), moves, gap)
	c.Expect(moves).To(o.moves, "%s, of %d", what, len(c.members))
	c.Expect(gap).To(BeNumerically("<=", o.gap), what)
	c.Expect(c.journal.twice).To(BeEmpty(), what)
}

// join adds a member.
func (c *churn) join() {
	c.members = append(c.members, c.member(fmt.Sprintf("m%02d", c.joined), "shards", c.keys).start())
	c.joined++
}

// pick removes one of the members that should be present.
func (c *churn) pick() *member {
	m := c.members[c.chance.IntN(len(c.members))]
	c.members = without(c.members, m)
	return m
}

// cut cuts n members off for good, and waits until the others lead. The function that it returns ends their processes.
func (c *churn) cut(n int) (end func()) {
	var gone []*member
	for range n {
		m := c.pick()
		m.link.Cut()
		gone = append(gone, m)
	}
	c.wait(crashed)
	return func() {
		for _, m := range gone {
			m.leave()
		}
	}
}

// wait waits, and more often than not a stranger writes something meanwhile that must change nothing.
func (c *churn) wait(d time.Duration) {
	c.Helper()
	first := time.Duration(c.chance.Int64N(int64(d)))
	if c.chance.IntN(4) > 0 {
		c.stray()
	}
	after(first)
	if c.chance.IntN(4) > 0 {
		c.stray()
	}
	after(d - first)
}

// stray has a stranger overwrite or delete the presence of a member, or overwrite the plan.
func (c *churn) stray() {
	c.Helper()
	if c.chance.IntN(2) == 0 {
		c.put("shards.plan", strayPlans[one(c, strayPlans)])
		return
	}
	strays[one(c, strays)](c.fleet, "shards.members."+c.members[c.chance.IntN(len(c.members))].name)
}

// one returns one of the keys of a map.
func one[V any](c *churn, m map[string]V) string {
	return slices.Sorted(maps.Keys(m))[c.chance.IntN(len(m))]
}

// forge writes a record.
func (f *fleet) forge(key string, record map[string]any) {
	f.Helper()
	b, err := json.Marshal(record)
	f.Expect(err).NotTo(HaveOccurred())
	f.put(key, string(b))
}

// loads returns how many keys each member leads.
func (c *churn) loads() map[*member]int {
	loads := map[*member]int{}
	for _, m := range c.members {
		loads[m] = len(m.Keys())
	}
	return loads
}

// share returns how many keys a member leads at most, if there were so many members more.
func (c *churn) share(more int) int {
	n := len(c.members) + more
	return (len(c.keys) + n - 1) / n
}

// moved is the outcome that as few keys moved as must, if each member led so many before.
func (c *churn) moved(before map[*member]int, gap time.Duration) outcome {
	low, high := len(c.keys)/len(c.members), c.share(0)
	kept, above, below := 0, 0, 0
	for _, m := range c.members {
		kept += before[m]
		above += max(0, before[m]-high)
		below += max(0, low-before[m])
	}
	orphans := len(c.keys) - kept
	return outcome{Equal(orphans + max(0, above, below-orphans)), gap}
}
