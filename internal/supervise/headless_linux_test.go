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

	"github.com/natscampaign/election/internal/clitest"
)

func TestAProcessWhoseMainThreadHasEndedIsNoZombie(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	self, err := os.Executable()
	g.Expect(err).NotTo(HaveOccurred())
	cmd := exec.Command(self)
	cmd.Env, cmd.SysProcAttr = append(os.Environ(), headless+"=1"), &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(cmd.Start()).To(Succeed())
	pid := cmd.Process.Pid
	line, err := bufio.NewReader(out).ReadString('\n')
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(line).To(Equal("ready\n"))
	g.Eventually(func() string { return stateOf(pid) }).WithTimeout(clitest.Patience).Should(Equal("Z"))
	g.Expect(groupLives(pid)).To(BeTrue())
	g.Expect(cmd.Process.Kill()).To(Succeed())
	g.Eventually(func() bool { return groupLives(pid) }).WithTimeout(clitest.Patience).Should(BeFalse(), "nobody has waited for it")
	g.Expect(unix.Kill(-pid, 0)).To(Succeed())
	_ = cmd.Wait()
}

// loseMainThread ends the main thread of this process while another goes on.
func loseMainThread() {
	go func() {
		for {
			_ = unix.Nanosleep(&unix.Timespec{Sec: 1000}, nil)
		}
	}()
	_, _ = os.Stdout.WriteString("ready\n")
	_, _, _ = unix.RawSyscall(unix.SYS_EXIT, 0, 0, 0)
}

// stateOf returns the state of a process as the system shows it.
func stateOf(pid int) string {
	stat, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	_, rest, _ := strings.Cut(string(stat), ") ")
	state, _, _ := strings.Cut(rest, " ")
	return state
}

// headless is set in the environment of a process that is to lose its main thread.
const headless = "TEST_HEADLESS"

func init() {
	if os.Getenv(headless) != "" {
		runtime.LockOSThread() // the main thread is that of the main goroutine
		loseMainThread()
	}
}
