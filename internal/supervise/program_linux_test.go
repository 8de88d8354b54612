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

// unprivileged calls f in a thread that is nobody's, which ends with it.
func unprivileged(t *testing.T, f func()) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can be somebody else")
	}
	done := make(chan unix.Errno)
	go func() {
		runtime.LockOSThread() // and never unlocked
		const nobody = 65534
		_, _, err := unix.RawSyscall(unix.SYS_SETRESUID, nobody, nobody, nobody)
		if err == 0 {
			f()
		}
		done <- err
	}()
	NewWithT(t).Expect(<-done).To(BeZero())
}

func TestAProgramThatMayNotBeSignalledIsSaidToBeOnce(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	p, err := startProgram(exec.Command("/bin/sleep", "1000"), false, func(int) error { return nil })
	g.Expect(err).NotTo(HaveOccurred())
	var said bytes.Buffer
	p.says = slog.New(slog.NewTextHandler(&said, nil))
	unprivileged(t, func() {
		p.tell(unix.SIGTERM)
		p.signal(unix.SIGUSR1)
		p.signalGroup(unix.SIGKILL)
	})
	g.Expect(p.over()).To(BeFalse())
	g.Expect(strings.Count(said.String(), "level=ERROR")).To(Equal(1), said.String())
	g.Expect(said.String()).To(MatchRegexp(`run election-cli as .* pid=\d+ signal=SIGTERM`))
	said.Reset()
	p.signalGroup(unix.SIGKILL)
	<-p.ended
	p.signalGroup(unix.SIGKILL)
	g.Expect(said.String()).To(BeEmpty(), "that it has ended is no error")
}
