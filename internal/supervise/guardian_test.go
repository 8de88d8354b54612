//go:build linux || darwin

package supervise

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/clitest"
)

// TestAGuardianThatWasStoppedHeedsANewerOrderFirst stops it until an order is due that was replaced meanwhile. Which of
// the two it sees first would be left to chance, so it is tried some times.
func TestAGuardianThatWasStoppedHeedsANewerOrderFirst(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	target := exec.Command("sleep", "1000")
	g.Expect(target.Start()).To(Succeed())
	ended := make(chan error, 1)
	go func() { ended <- target.Wait() }()
	defer func() { _ = target.Process.Kill() }()
	cmd := exec.Command(os.Args[0], GuardianCommand)
	defer func() { _ = cmd.Wait() }()
	defer func() { _ = cmd.Process.Kill() }()
	in, err := cmd.StdinPipe()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(cmd.Start()).To(Succeed())
	orders := json.NewEncoder(in)
	orderIn := func(after time.Duration) order {
		return orderAt(time.Now().Add(after), order{Target: target.Process.Pid, Signal: syscall.SIGTERM})
	}
	for range 5 {
		due := time.Now().Add(time.Second)
		g.Expect(orders.Encode(orderIn(time.Until(due)))).To(Succeed())
		time.Sleep(100 * time.Millisecond) // for it to wait for that
		g.Expect(cmd.Process.Signal(unix.SIGSTOP)).To(Succeed())
		g.Expect(orders.Encode(orderIn(time.Minute))).To(Succeed())
		if time.Now().After(due) {
			t.Skip("this host is too slow to have it stopped in time")
		}
		time.Sleep(time.Until(due.Add(50 * time.Millisecond)))
		g.Expect(cmd.Process.Signal(unix.SIGCONT)).To(Succeed())
		g.Consistently(ended).WithTimeout(50 * time.Millisecond).ShouldNot(Receive())
	}
	g.Expect(orders.Encode(orderIn(0))).To(Succeed())
	g.Eventually(ended).WithTimeout(clitest.Patience).Should(Receive())
}

// leads returns a run that leads for long yet, with a guardian that nobody looks after, and the term.
func leads(t *testing.T) (*runner, election.Term) {
	t.Helper()
	term := clitest.New(t, clitest.Quiet).Lead()
	orders, in, err := os.Pipe()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _, _ = orders.Close(), in.Close() })
	r := &runner{Config: &Config{}, log: slog.New(slog.DiscardHandler), guardian: &guardian{in: in}, lost: unix.SIGUSR2}
	r.times.Store(&leaseTimes{grace: time.Millisecond, death: leastDeath})
	return r, term
}

// TestALeaderWhoseGuardianToldOfTheLossLeadsNoLonger has run find its lease renewed when it goes on after it was stopped.
func TestALeaderWhoseGuardianToldOfTheLossLeadsNoLonger(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	r, term := leads(t)
	p := &program{pid: os.Getpid(), ended: make(chan struct{})}
	r.guardian.last = orderAt(time.Now().Add(-time.Second), order{Group: p.pid, Target: p.pid, Signal: r.lost})
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	r.awaitLoss(ctx, p, term)
	g.Expect(ctx.Err()).NotTo(HaveOccurred(), "it did not go on as a leader")
}

// TestAProgramThatItsGuardianKilledDidNotEndByItself has the order be renewed between the two.
func TestAProgramThatItsGuardianKilledDidNotEndByItself(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	r, term := leads(t)
	p := &program{pid: os.Getpid(), ended: make(chan struct{})}
	r.guardian.last = orderAt(time.Now().Add(20*time.Millisecond), order{Group: p.pid, Target: -p.pid, Signal: unix.SIGKILL})
	r.guardian.mu.Lock() // it is stopped while it tells
	late := make(chan bool)
	go func() { late <- r.guardian.tell(r.orderFor(p.pid, &term)) }()
	time.Sleep(50 * time.Millisecond)
	r.guardian.mu.Unlock()
	g.Expect(<-late).To(BeTrue())
	g.Expect(r.guardian.tell(r.orderFor(p.pid, &term))).To(BeFalse(), "the order after that is not due")
}

// TestAProgramThatIsGoneIsNotOrderedAnew has its group be gone just before run tells the guardian of its lease.
func TestAProgramThatIsGoneIsNotOrderedAnew(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	r, term := leads(t)
	p := &program{pid: os.Getpid(), ended: make(chan struct{}), gone: true}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	r.awaitLoss(ctx, p, term)
	g.Expect(r.guardian.last).To(Equal(order{}), "its number may be somebody else's")
}
