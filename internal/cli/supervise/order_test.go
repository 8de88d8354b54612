//go:build linux || darwin

package supervise

import (
	"encoding/json"
	"os"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"github.com/natscampaign/election/internal/lease"
)

func TestASuspensionMakesAnOrderDue(t *testing.T) {
	g := NewWithT(t)
	boot, ok := lease.SinceBoot()
	if !ok {
		t.Skip("this system has no clock that counts suspension")
	}
	o := orderAt(time.Now().Add(time.Minute), order{})
	g.Expect(o.Due).To(BeNumerically("~", boot+time.Minute, 5*time.Second), "by the clock that counts suspension")
	o.Due -= time.Hour // as after a suspension of the machine
	g.Expect(o.remaining()).To(BeNumerically("~", -59*time.Minute, 5*time.Second))
}

func TestAnOrderIsTooLateOnceItsSlackIsOver(t *testing.T) {
	g := NewWithT(t)
	kill := order{Target: -1, Signal: unix.SIGKILL, Slack: time.Minute}
	g.Expect(orderAt(time.Now().Add(time.Minute), kill).isTooLate()).To(BeFalse())
	g.Expect(orderAt(time.Now().Add(-30*time.Second), kill).isTooLate()).To(BeFalse())
	g.Expect(orderAt(time.Now().Add(-61*time.Second), kill).isTooLate()).To(BeTrue())
	g.Expect(orderAt(time.Now().Add(-61*time.Second), order{}).isTooLate()).To(BeFalse(), "it orders nothing")
}

// TestTheSameOrderIsWrittenOnceDespiteNewReadingsOfTheClock varies the instant of an order a little, as each reading of the clock does.
func TestTheSameOrderIsWrittenOnceDespiteNewReadingsOfTheClock(t *testing.T) {
	g := NewWithT(t)
	orders, in, err := os.Pipe()
	g.Expect(err).NotTo(HaveOccurred())
	guard := &guardians{in: in}
	orderIn := func(d time.Duration) order {
		return orderAt(time.Now().Add(d), order{Target: os.Getpid(), Signal: unix.SIGUSR2})
	}
	first := orderIn(time.Minute)
	guard.setOrder(first)
	for i := range 100 {
		o := first
		o.Due += time.Duration(i%3-1) * 10 * time.Microsecond
		guard.setOrder(o)
	}
	last := orderIn(time.Minute + 5*time.Millisecond)
	guard.setOrder(last)
	g.Expect(in.Close()).To(Succeed())
	written := []order{}
	for d := json.NewDecoder(orders); ; {
		var o order
		if d.Decode(&o) != nil {
			break
		}
		written = append(written, o)
	}
	g.Expect(written).To(Equal([]order{first, last}))
}
