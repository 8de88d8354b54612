package processes

import (
	"context"
	"os/exec"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
)

func TestAProcessThatIsKilledBecauseItsDrillEndsDidNotEndByItself(t *testing.T) {
	if _, err := exec.LookPath("sleep"); err != nil {
		t.Skip("this system has no sleep")
	}
	g := NewWithT(t)
	p := &Process{name: "candidate-1", cmd: exec.Command("sleep", "1000"), stderr: filepath.Join(t.TempDir(), "err"), exited: make(chan struct{})}
	p.cmd.SysProcAttr = sysProcAttr()
	g.Expect(p.cmd.Start()).To(Succeed())
	go func() {
		_ = p.cmd.Wait()
		close(p.exited)
	}()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	g.Expect(p.awaitReady(ctx, nil)).To(Equal(context.Canceled))
	g.Expect(p.exited).To(BeClosed())
}
