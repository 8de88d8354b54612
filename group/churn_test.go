package group_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
)

// churn is a group whose members join and leave by a seed.
type churn struct {
	*fleet
	chance  *rand.Rand
	keys    []string
	members []*member // that should be present
	all     []*member
}

func TestMembersThatJoinAndLeaveLeadEachKeyOnceEvenlyAndMoveNoneWithoutNeed(t *testing.T) {
	seeds, length := uint64(2), 5*time.Minute
	if testing.Short() {
		seeds, length = 1, time.Minute
	}
	for seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				c := &churn{fleet: f, chance: rand.New(rand.NewPCG(seed, 64)), keys: keysOf(64)}
				for range 8 {
					c.join()
				}
				defer c.sample()()
				after(standDown + time.Second)
				c.expectEven(c.keys, c.members)
				for begun, last := time.Now(), ""; time.Since(begun) < length; {
					last = c.change(last)
				}
			})
		})
	}
}

// change makes one change, or none, and checks the result.
func (c *churn) change(last string) string {
	c.Helper()
	before := c.loads()
	c.journal.reset()
	var what string
	var wait time.Duration
	switch n := c.chance.IntN(10); {
	case n < 3 && len(c.members) < 12:
		what, wait = "a newcomer", ttl/10
		c.join()
	case n < 5 && len(c.members) > 3:
		what, wait = "a member that leaves", ttl/10
		m := c.pick()
		m.leave()
	case n < 7 && len(c.members) > 3:
		what, wait = "a member that crashes", crashed
		c.pick().link.Cut()
	case n < 9 && len(c.members) > 5:
		what, wait = "two members that crash", crashed
		c.pick().link.Cut()
		c.pick().link.Cut()
	default:
		what, wait = "nobody", 2*ttl
	}
	after(wait)
	c.expectEven(c.keys, c.members)
	_, moves, gap := c.journal.reset()
	c.Expect(moves).To(Equal(c.needed(before)), "%s, after %s, of %d", what, last, len(c.members))
	if wait < ttl {
		c.Expect(gap).To(BeNumerically("<", 10*time.Millisecond), what)
	}
	c.Logf("%v: %s, %d members, %d moves, %v without a leader", time.Now().Format("04:05"), what, len(c.members), moves, gap)
	for _, m := range c.all {
		if !m.ended && !c.present(m) { // its process ends
			m.leave()
		}
	}
	return what
}

// join adds a member.
func (c *churn) join() {
	m := c.member(fmt.Sprintf("m%02d", len(c.all)), "shards", c.keys).start()
	c.members, c.all = append(c.members, m), append(c.all, m)
}

// pick removes one of the members that should be present.
func (c *churn) pick() *member {
	m := c.members[c.chance.IntN(len(c.members))]
	c.members = without(c.members, m)
	return m
}

func (c *churn) present(m *member) bool {
	for _, other := range c.members {
		if m == other {
			return true
		}
	}
	return false
}

// loads returns how many keys each member leads.
func (c *churn) loads() map[*member]int {
	loads := map[*member]int{}
	for _, m := range c.members {
		loads[m] = len(m.Keys())
	}
	return loads
}

// needed returns how many keys must move at least, if each member led so many before.
func (c *churn) needed(before map[*member]int) int {
	low, high := len(c.keys)/len(c.members), (len(c.keys)+len(c.members)-1)/len(c.members)
	kept, above, below := 0, 0, 0
	for _, m := range c.members {
		kept += before[m]
		above += max(0, before[m]-high)
		below += max(0, low-before[m])
	}
	orphans := len(c.keys) - kept
	return orphans + max(0, above, below-orphans)
}

// sample checks again and again that no key is led twice, until the function that it returns is called.
func (c *churn) sample() (stop func()) {
	done := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		ticker := time.NewTicker(23 * time.Millisecond)
		defer ticker.Stop()
		leaders := map[string]string{}
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
			}
			c.journal.mu.Lock()
			all := c.journal.all
			c.journal.mu.Unlock()
			clear(leaders)
			for _, m := range all {
				for _, key := range m.Keys() {
					if other, led := leaders[key]; led {
						c.Errorf("%s leads %s, and so does %s", m.name, key, other)
					}
					leaders[key] = m.name
				}
			}
		}
	})
	return func() {
		close(done)
		running.Wait()
		synctest.Wait()
		c.Expect(c.journal.twice).To(BeEmpty())
	}
}
