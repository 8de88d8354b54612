package witness_test

import (
	"os/exec"
	"syscall"
	"testing"

	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"github.com/natscampaign/election/internal/test/witnesstest"
)

// In a namespace of processes the kernel kills all when process 1 dies: so process 1 is the witness, and the program its child.
func TestProgramThatIsProcessOneOfAContainerIsReplacedWhenItDies(t *testing.T) {
	skipUnlessRoot(t)
	for _, way := range []witnesstest.Way{witnesstest.Kill, witnesstest.Panic, witnesstest.Exit, witnesstest.Segfault} {
		t.Run(string(way), func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			f := newFleet(t, longTTL)
			p := witnesstest.Start(t, f.program(), inNamespace)
			g.Expect(p.PID).To(BeNumerically(">", 1))
			wins := f.successor("elections", "key-0")
			if way == witnesstest.Kill {
				g.Expect(syscall.Kill(childOf(t, p.Command.Process.Pid), syscall.SIGKILL)).To(Succeed())
			} else {
				p.Die(t, way)
			}
			takesOver(t, p, wins)
			g.Eventually(p.Exited()).WithTimeout(patience).Should(BeClosed())
			want := map[witnesstest.Way]int{witnesstest.Kill: 128 + 9, witnesstest.Panic: 2, witnesstest.Exit: 1, witnesstest.Segfault: 2}[way]
			g.Expect(p.Command.ProcessState.ExitCode()).To(Equal(want), "process 1 exits as the program did")
		})
	}
}

func TestProcessOneForwardsSignalsAndReapsWhatTheProgramLeavesBehind(t *testing.T) {
	skipUnlessRoot(t)
	t.Parallel()
	g := NewWithT(t)
	f := newFleet(t, longTTL)
	c := f.program()
	c.Leave = true
	p := witnesstest.Start(t, c, inNamespace)
	wins := f.successor("elections", "key-0")
	p.Left = 0 // its number is that in the namespace, which ends with the program
	g.Expect(p.Command.Process.Signal(syscall.SIGTERM)).To(Succeed(), "which nothing catches, and which kills no process 1 by itself")
	takesOver(t, p, wins)
	g.Eventually(p.Exited()).WithTimeout(patience).Should(BeClosed())
	g.Expect(p.Command.ProcessState.ExitCode()).To(Equal(128 + 15))
}

func TestProgramThatTheKernelKillsForItsMemoryIsReplaced(t *testing.T) {
	t.Parallel()
	f := newFleet(t, longTTL)
	group := witnesstest.ControlGroup(t, 96<<20)
	p := witnesstest.Start(t, f.program())
	group(p.Command.Process.Pid)
	group(childOf(t, p.PID)) // it is there, too, and smaller
	wins := f.successor("elections", "key-0")
	p.Die(t, witnesstest.Memory)
	takesOver(t, p, wins)
}

// inNamespace starts a program as process 1 of a namespace of processes.
func inNamespace(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
}

func skipUnlessRoot(t *testing.T) {
	t.Helper()
	if unix.Geteuid() != 0 {
		t.Skip("needs root")
	}
}
