package host

import (
	"net"
	"os/exec"
	"strconv"
	"sync"
	"testing"

	. "github.com/onsi/gomega"
)

func TestAPortIsReservedOnceUntilReleaseAndItsServerMayListenMeanwhile(t *testing.T) {
	g := NewWithT(t)
	p, err := ReservePort()
	g.Expect(err).NotTo(HaveOccurred())
	for range 2 { // nobody else can reserve it while its server is down, either
		_, err = reserve(p.Number, p.Number+1)
		g.Expect(err).To(MatchError(ContainSubstring("no free port")))
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(p.Number)))
		g.Expect(err).NotTo(HaveOccurred())
		_, err = reserve(p.Number, p.Number+1)
		g.Expect(err).To(HaveOccurred())
		g.Expect(l.Close()).To(Succeed())
	}
	p.Release()
	again, err := reserve(p.Number, p.Number+1)
	g.Expect(err).NotTo(HaveOccurred())
	again.Release()
}

func TestAPortWithAListenerIsNotReserved(t *testing.T) {
	g := NewWithT(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	g.Expect(err).NotTo(HaveOccurred())
	defer l.Close()
	taken := l.Addr().(*net.TCPAddr).Port
	_, err = reserve(taken, taken+1)
	g.Expect(err).To(HaveOccurred())
}

// A process that is started has all sockets of this one until it runs its program.
func TestAPortCanBeListenedOnAfterALookWhileProcessesAreStarted(t *testing.T) {
	program, err := exec.LookPath("true")
	if err != nil {
		t.Skip(err)
	}
	var starters sync.WaitGroup
	defer starters.Wait()
	done := make(chan struct{})
	defer close(done)
	for range 8 {
		starters.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					_ = exec.Command(program).Run()
				}
			}
		})
	}
	g := NewWithT(t)
	for range 200 {
		p, err := ReservePort()
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(PortInUse(p.Number)).To(BeFalse())
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(p.Number)))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(l.Close()).To(Succeed())
		p.Release()
	}
}
