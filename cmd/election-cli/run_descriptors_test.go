//go:build linux || darwin

package main

import (
	"fmt"
	"io"
	"os"
	"testing"

	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"github.com/natscampaign/election/internal/test/proctest"
)

// withDescriptors has run inherit the write ends of n pipes under the numbers from 3 on, as a service manager passes sockets to a process
// of which it is to know the number. It returns the read ends.
func (w *invocation) withDescriptors(n int) (ends []*os.File) {
	w.T.Helper()
	for range n {
		r, end, err := os.Pipe()
		w.Expect(err).NotTo(HaveOccurred())
		w.cmd.ExtraFiles = append(w.cmd.ExtraFiles, end)
		w.T.Cleanup(func() { _, _ = r.Close(), end.Close() })
		ends = append(ends, r)
	}
	w.cmd.Args = append([]string{"sh", "-c", `LISTEN_PID=$$ exec "$@"`, "sh", w.cmd.Path}, w.cmd.Args[1:]...)
	w.cmd.Path = "/bin/sh"
	w.cmd.Env = append(os.Environ(), fmt.Sprintf("LISTEN_FDS=%d", n), "LISTEN_FDNAMES=http")
	return ends
}

func TestProgramGetsTheDescriptorsThatRunInherited(t *testing.T) {
	t.Parallel()
	for name, flags := range map[string][]string{"terminate": nil, "signal": {"--on-lost=signal"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newLongLeaseFixture(t)
			// The program exits with 1 once, so that run starts it twice.
			script := `echo "$LISTEN_FDS $LISTEN_FDNAMES $((LISTEN_PID - $$))" >>environment
				for fd in 3 4 5 6 7 8 9; do eval "echo $fd >&$fd" || exit 9; done
				[ -e again ] || { echo >again; exit 1; }`
			w := f.prepare(append(flags, "--restart=on-failure", "jobs", "--", "sh", "-c", script)...)
			ends := w.withDescriptors(7)
			f.Expect(w.run()).To(Equal(0), w.stderr.String())
			f.Expect(f.content("environment")()).To(Equal("7 http 0\n7 http 0\n"), "LISTEN_PID is the program's number")
			for i, end := range ends {
				f.Expect(w.cmd.ExtraFiles[i].Close()).To(Succeed())
				f.Expect(io.ReadAll(end)).To(BeEquivalentTo(fmt.Sprintf("%d\n%[1]d\n", i+3)))
			}
		})
	}
}

// TestNothingButTheProgramKeepsTheDescriptorsThatRunInherited kills run and stops its guardian, so that only the guardian could still keep
// them.
func TestNothingButTheProgramKeepsTheDescriptorsThatRunInherited(t *testing.T) {
	t.Parallel()
	f := newLongLeaseFixture(t)
	w := f.prepare("jobs", "--", "sh", "-c", `echo >ready; exec sleep 1000`)
	end := w.withDescriptors(1)[0]
	f.Expect(w.cmd.Start()).To(Succeed())
	f.awaitText("ready", "\n")
	f.Expect(w.cmd.ExtraFiles[0].Close()).To(Succeed())
	guardian := f.guardianOf(w)
	defer func() { _ = unix.Kill(guardian, unix.SIGCONT) }()
	proctest.Stop(t, guardian)
	w.signal(unix.SIGKILL)
	f.Expect(io.ReadAll(end)).To(BeEmpty())
}
