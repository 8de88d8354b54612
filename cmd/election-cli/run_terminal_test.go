//go:build linux

package main

import (
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"github.com/natscampaign/election/internal/clitest"
)

// typed is a terminal, seen from the side of whoever types.
type typed struct {
	*os.File
	g Gomega
}

// onTerminal gives a call of run a terminal of its own for all input and output.
func (w *wrapper) onTerminal() typed {
	w.t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		w.t.Skip("there are no terminals here:", err)
	}
	w.t.Cleanup(func() { _ = master.Close() })
	raw, err := master.SyscallConn()
	w.g.Expect(err).NotTo(HaveOccurred())
	var number int
	w.g.Expect(raw.Control(func(fd uintptr) {
		w.g.Expect(unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0)).To(Succeed())
		number, err = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
	})).To(Succeed())
	w.g.Expect(err).NotTo(HaveOccurred())
	slave, err := os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|unix.O_NOCTTY, 0)
	w.g.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = slave.Close() }()
	w.cmd.Stdin, w.cmd.Stdout, w.cmd.Stderr = slave, slave, slave
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0}
	w.g.Expect(w.cmd.Start()).To(Succeed())
	return typed{master, w.g}
}

// shows reads what is shown until that contains a text.
func (t typed) shows(text string) {
	shown := make([]byte, 0, 4096)
	_ = t.SetReadDeadline(time.Now().Add(clitest.Patience))
	for buffer := make([]byte, 4096); ; {
		n, err := t.Read(buffer)
		if shown = append(shown, buffer[:n]...); err != nil || contains(shown, text) {
			t.g.Expect(string(shown)).To(ContainSubstring(text))
			return
		}
	}
}

func contains(shown []byte, text string) bool {
	ok, _ := ContainSubstring(text).Match(string(shown))
	return ok
}

func (t typed) types(text string) {
	_, err := t.WriteString(text)
	t.g.Expect(err).NotTo(HaveOccurred())
}

func TestAProgramReadsFromTheTerminalAndCtrlCIsItsOwn(t *testing.T) {
	t.Parallel()
	a := unhurried(t)
	w := a.prepare("--restart=always", "jobs", "--", "sh", "-c", "echo go; read line; echo \"<$line>\"; exec sleep 1000")
	terminal := w.onTerminal()
	terminal.shows("go")
	terminal.types("some words\n")
	terminal.shows("<some words>")
	terminal.types("\x1a\x03") // Ctrl-Z and Ctrl-C
	a.g.Expect(w.code()).To(Equal(130))
}

func TestRunHasTheTerminalAgainAfterItsProgram(t *testing.T) {
	t.Parallel()
	a := unhurried(t)
	w := a.prepare("--restart=on-failure", "jobs", "--", "sh", "-c", "read line; exit 1")
	terminal := w.onTerminal()
	terminal.shows("Program started")
	for range 2 { // the second is in the foreground like the first
		terminal.types("a line\n")
		terminal.shows("Program is started again")
		terminal.shows("Program started")
	}
	terminal.types("\x03")
	a.g.Expect(w.code()).To(Equal(130))
}

func TestCtrlCEndsTheWaitForATerm(t *testing.T) {
	t.Parallel()
	a := unhurried(t)
	leader := a.start("echo >ready; exec sleep 1000")
	a.await("ready", "\n")
	w := a.prepare("jobs", "--", "true")
	terminal := w.onTerminal()
	terminal.shows("Leader seen")
	terminal.types("\x03")
	a.g.Expect(w.code()).To(Equal(130))
	leader.sends(unix.SIGTERM)
	a.g.Expect(leader.code()).To(Equal(143))
}
