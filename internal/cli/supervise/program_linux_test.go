package supervise

import (
	"bytes"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"
)

// asNobody calls f in a thread of the user nobody, and ends that thread.
func asNobody(t *testing.T, f func()) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can become another user")
	}
	done := make(chan unix.Errno)
	go func() {
		runtime.LockOSThread() // never unlocked, so that the thread ends with this goroutine
		const nobody = 65534
		_, _, err := unix.RawSyscall(unix.SYS_SETRESUID, nobody, nobody, nobody)
		if err == 0 {
			f()
		}
		done <- err
	}()
	NewWithT(t).Expect(<-done).To(BeZero())
}

func TestRefusedSignalIsLoggedOnce(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	p, err := startProgram(exec.Command("/bin/sleep", "1000"), false, func(int) error { return nil })
	g.Expect(err).NotTo(HaveOccurred())
	var logged bytes.Buffer
	p.log = slog.New(slog.NewTextHandler(&logged, nil))
	asNobody(t, func() {
		p.terminate(unix.SIGTERM)
		p.signal(unix.SIGUSR1)
		p.signalGroup(unix.SIGKILL)
	})
	g.Expect(p.hasExited()).To(BeFalse())
	g.Expect(strings.Count(logged.String(), "level=ERROR")).To(Equal(1), logged.String())
	g.Expect(logged.String()).To(MatchRegexp(`run election-cli as .* pid=\d+ signal=SIGTERM`))
	logged.Reset()
	p.signalGroup(unix.SIGKILL)
	<-p.exited
	p.signalGroup(unix.SIGKILL)
	g.Expect(logged.String()).To(BeEmpty(), "a program that has exited is no reason for an error")
}
