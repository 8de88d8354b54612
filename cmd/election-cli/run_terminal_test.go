//go:build linux

package main

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"github.com/natscampaign/election/internal/test/clitest"
)

// userTerminal is the user's end of a terminal.
type userTerminal struct {
	*os.File
	g     Gomega
	shown []byte // the output after the text that was awaited last, as far as it was read
}

// onTerminal starts a call of run on a new terminal, and returns the user's end.
func (w *invocation) onTerminal() *userTerminal {
	w.T.Helper()
	user, tty := pty(w.T)
	defer func() { _ = tty.Close() }() // so that the user's end notices when the call ends
	w.cmd.Stdin, w.cmd.Stdout, w.cmd.Stderr = tty, tty, tty
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0}
	w.Expect(w.cmd.Start()).To(Succeed())
	return &userTerminal{File: user, g: w}
}

// awaitText reads the output until it contains a text. What follows the text is left for the next call.
func (t *userTerminal) awaitText(text string) {
	_ = t.SetReadDeadline(time.Now().Add(clitest.Timeout))
	for buffer := make([]byte, 4096); ; {
		if _, rest, found := bytes.Cut(t.shown, []byte(text)); found {
			t.shown = rest
			return
		}
		n, err := t.Read(buffer)
		t.g.Expect(err).NotTo(HaveOccurred(), "%q is not in %q", text, t.shown)
		t.shown = append(t.shown, buffer[:n]...)
	}
}

// typeText types a text.
func (t *userTerminal) typeText(text string) {
	_, err := t.WriteString(text)
	t.g.Expect(err).NotTo(HaveOccurred())
}

func TestProgramReadsTheTerminalAndGetsCtrlC(t *testing.T) {
	t.Parallel()
	f := newLongLeaseFixture(t)
	w := f.prepare("--restart=always", "jobs", "--", "sh", "-c", "echo go; read line; echo \"<$line>\"; exec sleep 1000")
	terminal := w.onTerminal()
	terminal.awaitText("go")
	terminal.typeText("some words\n")
	terminal.awaitText("<some words>")
	terminal.typeText("\x1a\x03") // Ctrl-Z and Ctrl-C
	f.Expect(w.exitCode()).To(Equal(130))
}

func TestRunReclaimsTheTerminalAfterTheProgram(t *testing.T) {
	t.Parallel()
	f := newLongLeaseFixture(t)
	w := f.prepare("--restart=on-failure", "jobs", "--", "sh", "-c", "read line; exit 1")
	terminal := w.onTerminal()
	terminal.awaitText("Program started")
	for range 2 { // the restarted program is in the foreground too
		terminal.typeText("a line\n")
		terminal.awaitText("Program is started again")
		terminal.awaitText("Program started")
	}
	terminal.typeText("\x03")
	f.Expect(w.exitCode()).To(Equal(130))
}

func TestModesOfTheTerminalAreRestoredAfterAProgramThatWasKilled(t *testing.T) {
	t.Parallel()
	f := newLongLeaseFixture(t)
	w := f.prepare("jobs", "--", "sh", "-c", "stty raw -echo; echo $$ >pid; exec sleep 1000")
	terminal := w.onTerminal()
	raw, err := terminal.SyscallConn()
	f.Expect(err).NotTo(HaveOccurred())
	echoes := func() (on bool) {
		f.Expect(raw.Control(func(fd uintptr) {
			modes, err := unix.IoctlGetTermios(int(fd), unix.TCGETS)
			f.Expect(err).NotTo(HaveOccurred())
			on = modes.Lflag&(unix.ECHO|unix.ICANON) == unix.ECHO|unix.ICANON
		})).To(Succeed())
		return on
	}
	pid := f.pidIn("pid")
	f.Expect(echoes()).To(BeFalse())
	f.Expect(unix.Kill(pid, unix.SIGKILL)).To(Succeed())
	f.Expect(w.exitCode()).To(Equal(137))
	f.Expect(echoes()).To(BeTrue())
}

func TestCtrlZAndFgWorkAsInAShell(t *testing.T) {
	t.Parallel()
	f := newLongLeaseFixture(t)
	// bash, because a shell that calls vfork cannot be stopped before its child executes a program.
	w := f.prepare("jobs", "--", "bash", "-c", `trap "echo continued $((20+2))" CONT; trap "exit 130" INT; echo going; while :; do sleep 0.05; done`)
	line := strings.Join(w.cmd.Args, "' '")
	shell, err := exec.LookPath("bash")
	f.Expect(err).NotTo(HaveOccurred())
	w.cmd.Path, w.cmd.Args = shell, []string{"bash", "--norc", "--noprofile", "-i"}
	w.cmd.Env = append(os.Environ(), "PS1=prompt> ")
	terminal := w.onTerminal()
	terminal.awaitText("prompt>")
	terminal.typeText("'" + line + "'\n")
	terminal.awaitText("going\r")
	terminal.typeText("\x1a") // Ctrl-Z
	terminal.awaitText("Stopped")
	terminal.typeText("echo again $((1+1))\n") // the shell has the terminal
	terminal.awaitText("again 2")
	terminal.typeText("fg\n")
	terminal.awaitText("continued 22") // the shell itself shows the command
	terminal.typeText("\x03")          // Ctrl-C
	terminal.awaitText("prompt>")
	terminal.typeText("exit $?\n")
	f.Expect(w.exitCode()).To(Equal(130))
}

func TestCtrlCEndsRunWhileItWaitsToLead(t *testing.T) {
	t.Parallel()
	f := newLongLeaseFixture(t)
	leader := f.start("echo >ready; exec sleep 1000")
	f.awaitText("ready", "\n")
	w := f.prepare("jobs", "--", "true")
	terminal := w.onTerminal()
	terminal.awaitText("Leader seen")
	terminal.typeText("\x03")
	f.Expect(w.exitCode()).To(Equal(130))
	leader.terminate(143)
}
