//go:build linux || darwin

package main

import (
	"encoding/json"
	"os/exec"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"
)

// TestAGuardianThatWasStoppedHeedsANewerOrderFirst stops it until an order is due that was replaced meanwhile. Which of
// the two it sees first is left to chance, so it is tried often.
func TestAGuardianThatWasStoppedHeedsANewerOrderFirst(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	target := exec.Command("sleep", "1000")
	g.Expect(target.Start()).To(Succeed())
	ended := make(chan error, 1)
	go func() { ended <- target.Wait() }()
	defer func() { _ = target.Process.Kill() }()
	cmd, _, _ := command(t, guardianName)
	in, err := cmd.StdinPipe()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(cmd.Start()).To(Succeed())
	orders := json.NewEncoder(in)
	orderIn := func(after time.Duration) order {
		return orderAt(time.Now().Add(after), order{Target: target.Process.Pid, Signal: syscall.SIGTERM})
	}
	for range 10 {
		due := time.Now().Add(200 * time.Millisecond)
		g.Expect(orders.Encode(orderIn(time.Until(due)))).To(Succeed())
		time.Sleep(100 * time.Millisecond) // for it to wait for that
		g.Expect(cmd.Process.Signal(unix.SIGSTOP)).To(Succeed())
		g.Expect(orders.Encode(orderIn(time.Minute))).To(Succeed())
		time.Sleep(time.Until(due.Add(50 * time.Millisecond)))
		g.Expect(cmd.Process.Signal(unix.SIGCONT)).To(Succeed())
		g.Consistently(ended).WithTimeout(50 * time.Millisecond).ShouldNot(Receive())
	}
	g.Expect(orders.Encode(orderIn(0))).To(Succeed())
	g.Eventually(ended).WithTimeout(patience).Should(Receive())
}
