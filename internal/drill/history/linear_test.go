package history

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/test/linear"
)

// TestBeliefsPassOnlyIfTheyAreALinearizableHistoryOfALock compares the check of a drill, which also measures, with one that knows nothing but
// what a lock is.
func TestBeliefsPassOnlyIfTheyAreALinearizableHistoryOfALock(t *testing.T) {
	g := NewWithT(t)
	r := rand.New(rand.NewPCG(1, 2))
	passed := 0
	for range 2000 {
		run := &Run{Timing: timing, To: at(100), Beliefs: randomBeliefs(r)}
		f := run.Check()
		ok := len(f.Overlaps)+len(f.Disorder) == 0
		g.Expect(ok).To(Equal(lockHistory(run.Beliefs).Linearizable()), "%+v", run.Beliefs)
		if ok {
			passed++
		}
	}
	g.Expect(passed).To(And(BeNumerically(">", 200), BeNumerically("<", 1800)))
}

// randomBeliefs returns the beliefs of some candidates, of which few overlap or are out of order.
func randomBeliefs(r *rand.Rand) (all []Belief) {
	now := 0.0
	for term := uint64(1); term <= 6; term++ {
		from := now + r.Float64()
		if r.IntN(12) == 0 {
			from -= 1.5
		}
		now = from + 2*r.Float64() + 0.01
		b := belief(fmt.Sprint("candidate ", term), term, from+10, now+10)
		if r.IntN(20) == 0 {
			b.Token = "a"
		}
		all = append(all, b)
	}
	return all
}

// lockHistory returns beliefs as the history of a lock.
func lockHistory(beliefs []Belief) *linear.Locks {
	type edge struct {
		Belief
		ends bool
	}
	var edges []edge
	for _, b := range beliefs {
		edges = append(edges, edge{b, false}, edge{b, true})
	}
	time := func(e edge) int64 {
		if e.ends {
			return int64(e.To)
		}
		return int64(e.From)
	}
	slices.SortStableFunc(edges, func(a, b edge) int { return cmp.Compare(time(a), time(b)) })
	l := &linear.Locks{}
	for i, e := range edges {
		if e.ends {
			l.Ended(i, l.Call(), 0, e.Token)
		} else {
			l.Acquired(i, l.Call(), 0, e.Token)
		}
	}
	return l
}
