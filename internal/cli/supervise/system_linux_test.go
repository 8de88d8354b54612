//go:build linux

package supervise

import (
	"bufio"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"github.com/natscampaign/election/internal/host"
	"github.com/natscampaign/election/internal/test/clitest"
	"github.com/natscampaign/election/internal/test/natstest"
)

func TestProcessWithoutItsMainThreadIsNotTakenForAZombie(t *testing.T) {
	natstest.SkipIfShort(t)
	t.Parallel()
	g := NewWithT(t)
	self, err := os.Executable()
	g.Expect(err).NotTo(HaveOccurred())
	cmd := exec.Command(self)
	cmd.Env, cmd.SysProcAttr = append(os.Environ(), noMainThread+"=1"), &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(cmd.Start()).To(Succeed())
	pid := cmd.Process.Pid
	line, err := bufio.NewReader(out).ReadString('\n')
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(line).To(Equal("ready\n"))
	g.Eventually(func() string { return stateOf(pid) }).WithTimeout(clitest.Timeout).Should(Equal("Z"))
	g.Expect(host.GroupRuns(pid)).To(BeTrue())
	g.Expect(cmd.Process.Kill()).To(Succeed())
	g.Eventually(func() bool { return host.GroupRuns(pid) }).WithTimeout(clitest.Timeout).Should(BeFalse(), "a zombie is left, which this test has not reaped")
	g.Expect(unix.Kill(-pid, 0)).To(Succeed())
	_ = cmd.Wait()
}

// endMainThread ends the main thread of this process while another thread goes on.
func endMainThread() {
	go func() {
		for {
			_ = unix.Nanosleep(&unix.Timespec{Sec: 1000}, nil)
		}
	}()
	_, _ = os.Stdout.WriteString("ready\n")
	_, _, _ = unix.RawSyscall(unix.SYS_EXIT, 0, 0, 0)
}

// stateOf returns the state of a process in /proc, such as Z for a zombie.
func stateOf(pid int) string {
	stat, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	_, rest, _ := strings.Cut(string(stat), ") ")
	state, _, _ := strings.Cut(rest, " ")
	return state
}

// noMainThread is the variable that makes a process of this test end its main thread.
const noMainThread = "TEST_NO_MAIN_THREAD"

func init() {
	if os.Getenv(noMainThread) != "" {
		runtime.LockOSThread() // init runs on the main thread
		endMainThread()
	}
}
