package witness_test

import (
	"os/exec"
	"syscall"
	"testing"
	"time"

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
			want := map[witnesstest.Way]int{witnesstest.Kill: 128 + 9, witnesstest.Panic: 2, witnesstest.Exit: 1, witnesstest.Segfault: 2}[way]
			replacedAsChildOfProcessOne(t, false, want, func(p *witnesstest.Program) {
				if way == witnesstest.Kill {
					NewWithT(t).Expect(syscall.Kill(childOf(t, p.Command.Process.Pid), syscall.SIGKILL)).To(Succeed())
				} else {
					p.Die(t, way)
				}
			})
		})
	}
}

func TestProcessOneForwardsSignalsAndReapsWhatTheProgramLeavesBehind(t *testing.T) {
	skipUnlessRoot(t)
	t.Parallel()
	replacedAsChildOfProcessOne(t, true, 128+15, func(p *witnesstest.Program) {
		p.Left = 0 // its number is that in the namespace, which ends with the program
		NewWithT(t).Expect(p.Command.Process.Signal(syscall.SIGTERM)).To(Succeed(), "which nothing catches, and which kills no process 1 by itself")
	})
}

// replacedAsChildOfProcessOne has a program die whose witness is process 1, and expects that another candidate leads, and that process 1 exits as the
// program did. Process 1 exits after 2 s even if the release takes longer: where it may have done so on a busy host, another program dies.
func replacedAsChildOfProcessOne(t *testing.T, leave bool, want int, die func(p *witnesstest.Program)) {
	t.Helper()
	g := NewWithT(t)
	for tries := 5; ; tries-- {
		f := newFleet(t, longTTL)
		c := f.program()
		c.Leave = leave
		p := witnesstest.Start(t, c, inNamespace)
		g.Expect(p.PID).To(BeNumerically(">", 1))
		wins := f.successor("elections", "key-0")
		dies := time.Now()
		die(p)
		g.Eventually(p.Exited()).WithTimeout(patience).Should(BeClosed())
		took := time.Since(dies)
		g.Expect(p.Command.ProcessState.ExitCode()).To(Equal(want), "process 1 exits as the program did")
		if took < 2*time.Second || tries == 1 {
			takesOver(t, p, wins)
			return
		}
	}
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
