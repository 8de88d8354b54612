package linear

import (
	"testing"

	. "github.com/onsi/gomega"
)

func TestALockWithOneHolderAtATimeIsLinearizable(t *testing.T) {
	g, l := NewWithT(t), &Locks{}
	waits := l.Call()
	l.Acquired(1, l.Call(), 0, "a")
	ends := l.Call()
	l.Acquired(2, waits, 0, "b") // while the release of the first is under way
	l.Ended(1, ends, 0, "a")
	l.Acquired(1, l.Call(), 1, "a") // of another lock
	g.Expect(l.Linearizable()).To(BeTrue())
}

func TestTwoHoldersAtOnceAreFound(t *testing.T) {
	g, l := NewWithT(t), &Locks{}
	l.Acquired(1, l.Call(), 0, "a")
	l.Acquired(2, l.Call(), 0, "b")
	l.Ended(1, l.Call(), 0, "a")
	l.Ended(2, l.Call(), 0, "b")
	g.Expect(l.Linearizable()).To(BeFalse())
}

func TestATokenThatDoesNotGrowIsFound(t *testing.T) {
	g, l := NewWithT(t), &Locks{}
	for range 2 {
		l.Acquired(1, l.Call(), 0, "a")
		l.Ended(1, l.Call(), 0, "a")
	}
	g.Expect(l.Linearizable()).To(BeFalse())
}

func TestUpdatesOverWhatWasReadAreLinearizable(t *testing.T) {
	g, v := NewWithT(t), &Values{}
	slow := v.Call()
	v.Stored(1, v.Call(), "k", 0, 1)
	v.Unknown(3, v.Call(), "k", 1, 3)
	v.Unknown(3, v.Call(), "k", 1, 4)
	v.Read(2, slow, "k", 0) // before the first update took effect
	v.Read(2, v.Call(), "k", 3)
	g.Expect(v.Linearizable()).To(BeFalse(), "4 was not stored")
	v.Settle("k", []int{1, 3})
	g.Expect(v.Linearizable()).To(BeTrue())
}

func TestALostUpdateIsFound(t *testing.T) {
	g, v := NewWithT(t), &Values{}
	v.Stored(1, v.Call(), "k", 0, 1)
	v.Stored(2, v.Call(), "k", 1, 2)
	v.Stored(1, v.Call(), "k", 1, 3) // over a value that is not stored any more
	g.Expect(v.Linearizable()).To(BeFalse())
}

func TestAStaleReadIsFound(t *testing.T) {
	g, v := NewWithT(t), &Values{}
	v.Stored(1, v.Call(), "k", 0, 1)
	v.Read(2, v.Call(), "k", 0)
	g.Expect(v.Linearizable()).To(BeFalse())
}

func TestAnAcknowledgedUpdateThatIsMissingIsFound(t *testing.T) {
	g, v := NewWithT(t), &Values{}
	v.Stored(1, v.Call(), "k", 0, 1)
	v.Stored(1, v.Call(), "k", 1, 2)
	v.Read(2, v.Call(), "k", 1)
	g.Expect(v.Linearizable()).To(BeFalse())
}
