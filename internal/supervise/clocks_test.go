//go:build linux || darwin

package supervise

import (
	"encoding/json"
	"os"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"
)

func TestAStepOfTheWallClockMakesNoOrderDue(t *testing.T) {
	g := NewWithT(t)
	o := orderAt(time.Now().Add(time.Minute), order{})
	o.Wall -= int64(time.Hour) // it was stepped since
	g.Expect(o.left()).To(BeNumerically("~", time.Minute, 5*time.Second))
	o.Wall += int64(2 * time.Hour)
	g.Expect(o.left()).To(BeNumerically("~", time.Minute, 5*time.Second))
}

func TestASuspensionMakesAnOrderDueWhateverTheWallClockIsSetTo(t *testing.T) {
	g := NewWithT(t)
	o := orderAt(time.Now().Add(time.Minute), order{})
	o.Boot -= time.Hour // the machine was suspended since
	g.Expect(o.left()).To(BeNumerically("~", -59*time.Minute, 5*time.Second))
	o.Boot = 0 // as where it cannot be read
	g.Expect(o.left()).To(BeNumerically("~", time.Minute, 5*time.Second))
	o.Wall -= int64(time.Hour)
	g.Expect(o.left()).To(BeNumerically("~", -59*time.Minute, 5*time.Second), "the stricter clock decides then")
}

// TestAnOrderIsGivenOnceAlthoughClocksAreReadAnew stands in for the time after a step of the wall clock, in which a deadline is
// now plus what is left.
func TestAnOrderIsGivenOnceAlthoughClocksAreReadAnew(t *testing.T) {
	g := NewWithT(t)
	out, in, err := os.Pipe()
	g.Expect(err).NotTo(HaveOccurred())
	keeps := &guardian{in: in}
	orderIn := func(d time.Duration) order {
		return orderAt(time.Now().Add(d), order{Target: os.Getpid(), Signal: unix.SIGUSR2})
	}
	first := orderIn(time.Minute)
	keeps.tell(first)
	for i := range 100 {
		o := first
		o.Wall += int64(time.Duration(i%3-1) * 10 * time.Microsecond)
		keeps.tell(o)
	}
	last := orderIn(time.Minute + 5*time.Millisecond)
	keeps.tell(last)
	g.Expect(in.Close()).To(Succeed())
	given := []order{}
	for d := json.NewDecoder(out); ; {
		var o order
		if d.Decode(&o) != nil {
			break
		}
		given = append(given, o)
	}
	g.Expect(given).To(Equal([]order{first, last}))
}
