//go:build linux || darwin

package proctest

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"
	"golang.org/x/sys/unix"
)

// timeout is how long Stop waits. A busy host runs a thread late, which must run to stop.
const timeout = 30 * time.Second

// Stop stops a process with SIGSTOP, and returns when every thread of the process has stopped. Before that a thread may still act on what
// the test does next.
func Stop(t testing.TB, pid int) {
	t.Helper()
	g := gomega.NewWithT(t)
	g.Expect(unix.Kill(pid, unix.SIGSTOP)).To(gomega.Succeed())
	g.Eventually(func() []string { return states(pid) }).WithTimeout(timeout).WithPolling(time.Millisecond).
		Should(gomega.And(gomega.Not(gomega.BeEmpty()), gomega.HaveEach("T")), "the threads of process %d", pid)
}

// IsRunning reports whether a process runs. A zombie does not.
func IsRunning(pid int) bool {
	if unix.Kill(pid, 0) != nil {
		return false
	}
	state := cmp.Or(stateIn(fmt.Sprintf("/proc/%d/stat", pid)), stateByPS(pid))
	return state != "" && state != "Z"
}

// Children returns the numbers of the children of a process, zombies too.
func Children(pid int) (children []int) {
	out, _ := exec.Command("ps", "-A", "-o", "pid=,ppid=").Output() // it fails if it is interrupted
	for line := range strings.Lines(string(out)) {
		var child, parent int
		if _, err := fmt.Sscan(line, &child, &parent); err == nil && parent == pid {
			children = append(children, child)
		}
	}
	return children
}

// states returns the state of each thread of a process, as ps names it. On macOS, which has no /proc, it is that of the process.
func states(pid int) (all []string) {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, path := range threads {
		all = append(all, stateIn(path))
	}
	if len(threads) == 0 {
		all = append(all, stateByPS(pid))
	}
	return all
}

// stateIn returns the state that a stat file of /proc shows; "" if it cannot be read.
func stateIn(path string) string {
	stat, _ := os.ReadFile(path)
	_, rest, _ := strings.Cut(string(stat), ") ")
	return firstLetter(rest)
}

func stateByPS(pid int) string {
	out, _ := exec.Command("ps", "-o", "stat=", "-p", strconv.Itoa(pid)).Output()
	return firstLetter(string(out))
}

func firstLetter(s string) string { return s[:min(1, len(s))] }
