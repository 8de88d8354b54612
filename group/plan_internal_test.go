package group

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/natscampaign/election/internal/test/natstest"

	. "github.com/onsi/gomega"
)

func membersOf(keys []string, names ...string) (present []presence) {
	for _, name := range names {
		present = append(present, presence{Name: name, Keys: keys})
	}
	return present
}

func keysOf(n int) (keys []string) {
	for i := range n {
		keys = append(keys, fmt.Sprintf("k%04d", i))
	}
	return keys
}

// moved returns how many keys next assigns to another member than p does.
func moved(p, next plan) (n int) {
	for name, keys := range p.Keys {
		for _, key := range keys {
			if !slices.Contains(next.Keys[name], key) {
				n++
			}
		}
	}
	return n
}

func TestPlanIsEvenAndMovesAsFewKeysAsPossible(t *testing.T) {
	natstest.SkipIfShort(t)
	g := NewWithT(t)
	chance := rand.New(rand.NewPCG(1, 2))
	for range 60 {
		keys := keysOf(1 + chance.IntN(100))
		var p plan
		for range 20 {
			var names []string
			for i := range 12 {
				if chance.IntN(2) == 0 {
					names = append(names, fmt.Sprint("m", i))
				}
			}
			if len(names) == 0 {
				continue
			}
			next := p.next("x", membersOf(keys, names...))
			low, high := len(keys)/len(names), (len(keys)+len(names)-1)/len(names)
			kept, above, below, all := 0, 0, 0, []string{}
			for _, name := range names {
				before := len(p.Keys[name])
				kept, above, below = kept+before, above+max(0, before-high), below+max(0, low-before)
				g.Expect(len(next.Keys[name])).To(And(BeNumerically(">=", low), BeNumerically("<=", high)))
				all = append(all, next.Keys[name]...)
			}
			g.Expect(slices.Sorted(slices.Values(all))).To(Equal(keys))
			if p.Number > 0 {
				orphans := len(keys) - kept
				g.Expect(moved(p, next)).To(Equal(orphans + max(0, above, below-orphans)))
			}
			g.Expect(next.Number).To(Equal(p.Number + 1))
			g.Expect(next.next("x", membersOf(keys, names...)).same(next)).To(BeTrue(), "a plan that fits is its own next")
			p = next
		}
	}
}

func TestKeyIsAssignedOnlyToMembersThatListIt(t *testing.T) {
	g := NewWithT(t)
	old, young := []string{"a", "b", "c", "d"}, []string{"c", "d", "e", "f"}
	p := plan{}.next("x", append(membersOf(old, "one"), membersOf(young, "two")...))
	g.Expect(p.Keys["one"]).To(ContainElements("a", "b"))
	g.Expect(p.Keys["two"]).To(ContainElements("e", "f"))
	g.Expect(len(p.Keys["one"])).To(Equal(3))
	p = p.next("x", membersOf(young, "one", "two"))
	g.Expect(append(slices.Clone(p.Keys["one"]), p.Keys["two"]...)).To(ConsistOf("c", "d", "e", "f"))
	g.Expect(p.Keys["one"]).To(HaveLen(2))
}

func TestNumberAfterTheHighestIsOne(t *testing.T) {
	g := NewWithT(t)
	g.Expect(plan{Number: maxPlanNumber - 1}.next("x", nil).Number).To(BeEquivalentTo(maxPlanNumber))
	g.Expect(plan{Number: maxPlanNumber}.next("x", nil).Number).To(BeEquivalentTo(1))
}

func TestInvalidPlanIsCorrected(t *testing.T) {
	g := NewWithT(t)
	p := plan{Number: 7, Keys: map[string][]string{"a": {"k0000", "k0000", "what"}, "b": {"k0000", "k0001"}}}
	next := p.next("x", membersOf(keysOf(3), "a", "b"))
	g.Expect(append(next.Keys["a"], next.Keys["b"]...)).To(ConsistOf("k0000", "k0001", "k0002"))
	g.Expect(plan{}.next("x", nil).Keys).To(BeEmpty())
}

func TestMemberWhoseListIsNotKnownCountsAsListingWhatThePlanAssignsToIt(t *testing.T) {
	g := NewWithT(t)
	value := encode(list{keysOf(3)})
	v := view{group: &Group{group: "g"}, ttl: time.Minute, planner: true, lists: map[string][]string{}}
	v.begin()
	v.receive(stored{key: "g.plan", value: encode(plan{Number: 1, By: "a", Keys: map[string][]string{"a": {"k0000", "k0001"}, "b": {"k0002"}}})})
	for _, name := range []string{"a", "b"} {
		v.receive(stored{key: "g.members." + name, value: encode(presence{Name: name, Instance: name, List: hashOf(value)})})
	}
	v.completed()
	next := v.plan.next("a", v.present())
	g.Expect(next.Keys).To(Equal(v.plan.Keys))
	g.Expect(next.Lists).To(BeEmpty(), "so that the members write it")
	v.receive(stored{key: "g.lists." + hashOf(value), value: encode(list{keysOf(2)})})
	g.Expect(v.plan.next("a", v.present()).Lists).To(BeEmpty(), "not by its hash")
	v.receive(stored{key: "g.lists." + hashOf(value), value: value})
	next = v.plan.next("a", v.present())
	g.Expect(next.Keys).To(Equal(v.plan.Keys))
	g.Expect(next.Lists).To(Equal([]string{hashOf(value)}))
}

func TestListsInUseAreKeptAndOthersAreBounded(t *testing.T) {
	g := NewWithT(t)
	v := view{group: &Group{group: "g"}, ttl: time.Minute, planner: true, lists: map[string][]string{}}
	v.begin()
	for i := range 2 * maxLists {
		value := encode(list{[]string{fmt.Sprint(i)}})
		v.receive(stored{key: "g.lists." + hashOf(value), value: value})
		if i < 3 {
			v.receive(stored{key: "g.members.m" + fmt.Sprint(i), value: encode(presence{Name: "m" + fmt.Sprint(i), Instance: "i", List: hashOf(value)})})
		}
	}
	g.Expect(len(v.lists)).To(BeNumerically("<=", maxLists))
	for i, m := range v.present() {
		g.Expect(m.Keys).To(Equal([]string{fmt.Sprint(i)}))
	}
}

func TestUnsortedKeysAreAssignedOnceOrToNobody(t *testing.T) {
	g := NewWithT(t)
	g.Expect(plan{}.next("m", []presence{{Name: "x", Keys: []string{"z", "y"}}}).Keys).To(HaveKey("x"))
	g.Expect(ordered([]string{"z", "y", "z"})).To(Equal([]string{"y", "z"}))
}

func BenchmarkNextPlan(b *testing.B) {
	keys := keysOf(5000)
	var names []string
	for i := range 100 {
		names = append(names, fmt.Sprint("m", i))
	}
	p := plan{}.next("x", membersOf(keys, names...))
	for b.Loop() {
		p.next("x", membersOf(keys, names[1:]...))
	}
}

func TestPlanThatWaitsForAPresenceIsDueOnceTheWatcherDelivers(t *testing.T) {
	g := NewWithT(t)
	r := newRun(t.Context(), &Group{name: "a", group: "g"}, nil)
	r.ttl = time.Minute
	r.begin()
	presence := stored{key: "g.members.a", value: encode(r.self)}
	g.Expect(r.update(presence, true)).To(Succeed())
	r.presenceRevision, r.presenceSeen, r.changed = presence.Revision(), time.Now(), false
	g.Expect(r.update(presence, true)).To(Succeed())
	g.Expect(r.changed).To(BeFalse())
	r.forgot = time.Now()
	g.Expect(r.update(presence, true)).To(Succeed())
	g.Expect(r.changed).To(BeTrue())
	r.changed = false
	g.Expect(r.update(presence, true)).To(Succeed())
	g.Expect(r.changed).To(BeFalse())
}
