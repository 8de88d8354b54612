//go:build linux || darwin

package supervise

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/test/clitest"
	"github.com/natscampaign/election/internal/test/natstest"
	"github.com/natscampaign/election/internal/test/proctest"
)

// TestGuardianThatWasStoppedCarriesOutOnlyTheNewestOrder stops a guardian until an order is due, and replaces that order
// meanwhile. Without care chance decides which of the two events the guardian sees first, so the test does this several times.
func TestGuardianThatWasStoppedCarriesOutOnlyTheNewestOrder(t *testing.T) {
	if testing.Short() {
		t.Skip("orders fall due in real time: not with -short")
	}
	for i := range 5 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			target := exec.Command("sleep", "1000")
			g.Expect(target.Start()).To(Succeed())
			ended := make(chan error, 1)
			go func() { ended <- target.Wait() }()
			defer func() { _ = target.Process.Kill() }()
			cmd := exec.Command(os.Args[0])
			cmd.Args = append(slices.Clone(deputyArgs), "0")
			defer func() { _ = cmd.Wait() }()
			defer func() { _ = cmd.Process.Kill() }()
			in, err := cmd.StdinPipe()
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(cmd.Start()).To(Succeed())
			orders := json.NewEncoder(in)
			orderIn := func(after time.Duration) order {
				return orderAt(time.Now().Add(after), order{Target: target.Process.Pid, Signal: syscall.SIGTERM})
			}
			due := time.Now().Add(time.Second)
			g.Expect(orders.Encode(orderIn(time.Until(due)))).To(Succeed())
			time.Sleep(500 * time.Millisecond) // until the guardian waits for that instant
			proctest.Stop(t, cmd.Process.Pid)
			g.Expect(orders.Encode(orderIn(time.Minute))).To(Succeed())
			if time.Now().After(due) {
				t.Skip("this host is too slow to stop the guardian in time")
			}
			time.Sleep(time.Until(due.Add(50 * time.Millisecond)))
			g.Expect(cmd.Process.Signal(unix.SIGCONT)).To(Succeed())
			g.Consistently(ended).WithTimeout(50 * time.Millisecond).ShouldNot(Receive())
			g.Expect(orders.Encode(orderIn(0))).To(Succeed())
			g.Eventually(ended).WithTimeout(clitest.Timeout).Should(Receive())
		})
	}
}

// leadingRunner returns a runner in the term of a long lease. Its guardian has a pipe but no process.
func leadingRunner(t *testing.T) (*runner, election.Term) {
	t.Helper()
	term := clitest.New(t, clitest.LongTTL).StartLeader()
	orders, in, err := os.Pipe()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _, _ = orders.Close(), in.Close() })
	r := &runner{Config: &Config{}, log: slog.New(slog.DiscardHandler), guardian: &guardians{in: in}, lost: unix.SIGUSR2}
	r.times.Store(&leaseTimes{grace: time.Millisecond, killTime: minKillTime})
	return r, term
}

// TestGuardianThatEndsJustBeforeItsDismissalIsNotReplaced dismisses the guardian in the pause before its replacement.
func TestGuardianThatEndsJustBeforeItsDismissalIsNotReplaced(t *testing.T) {
	natstest.SkipIfShort(t)
	t.Parallel()
	g := NewWithT(t)
	logged, log := io.Pipe()
	gd, err := startGuardian(slog.New(slog.NewTextHandler(log, nil)))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(gd.cmd.Process.Kill()).To(Succeed())
	line, err := bufio.NewReader(logged).ReadString('\n')
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(line).To(ContainSubstring("Guardian ended"))
	gd.dismiss()
	g.Expect(gd.cmd.ProcessState).NotTo(BeNil(), "nothing waits for a guardian process that starts after the dismissal")
}

// TestLeadershipEndsOnceTheGuardianHasSignalledItsLoss renews the lease all the same, as if this process had been stopped between
// the renewal and the new order.
func TestLeadershipEndsOnceTheGuardianHasSignalledItsLoss(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	r, term := leadingRunner(t)
	p := &program{pid: os.Getpid(), exited: make(chan struct{})}
	r.guardian.last = orderAt(time.Now().Add(-time.Second), order{Group: p.pid, Target: p.pid, Signal: r.lost})
	ctx, cancel := context.WithTimeout(t.Context(), clitest.Timeout)
	defer cancel()
	r.awaitLoss(ctx, p, term)
	g.Expect(ctx.Err()).NotTo(HaveOccurred(), "awaitLoss returned before its context ended")
}

// TestOrderThatFellDueBeforeItsReplacementIsReported delays setOrder, as if this process were stopped just before the new order is written.
func TestOrderThatFellDueBeforeItsReplacementIsReported(t *testing.T) {
	natstest.SkipIfShort(t)
	t.Parallel()
	g := NewWithT(t)
	r, term := leadingRunner(t)
	p := &program{pid: os.Getpid(), exited: make(chan struct{})}
	r.guardian.last = orderAt(time.Now().Add(20*time.Millisecond), order{Group: p.pid, Target: -p.pid, Signal: unix.SIGKILL})
	r.guardian.mu.Lock() // holds up setOrder until the order is due
	reported := make(chan struct{})
	go func() {
		defer close(reported)
		wasDue, ago := r.guardian.setOrder(r.guardianOrder(p.pid, &term))
		g.Expect(wasDue).To(BeTrue())
		g.Expect(ago).To(BeNumerically(">=", 30*time.Millisecond))
	}()
	time.Sleep(50 * time.Millisecond)
	r.guardian.mu.Unlock()
	<-reported
	wasDue, _ := r.guardian.setOrder(r.guardianOrder(p.pid, &term))
	g.Expect(wasDue).To(BeFalse(), "the new order is not due")
}

// TestGuardianGetsNoOrderForAGroupThatIsGone removes the group just before the runner replaces the guardian's order.
func TestGuardianGetsNoOrderForAGroupThatIsGone(t *testing.T) {
	natstest.SkipIfShort(t)
	t.Parallel()
	g := NewWithT(t)
	r, term := leadingRunner(t)
	p := &program{pid: os.Getpid(), exited: make(chan struct{}), gone: true}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	r.awaitLoss(ctx, p, term)
	g.Expect(r.guardian.last).To(Equal(order{}), "another group may have the number")
}
