package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/test/clitest"
	"github.com/natscampaign/election/internal/test/natstest"
)

// pty returns both ends of a pseudo-terminal.
func pty(t *testing.T) (user, terminal *os.File) {
	t.Helper()
	g := NewWithT(t)
	user, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("this system has no pseudo-terminals: ", err)
	}
	t.Cleanup(func() { _ = user.Close() })
	raw, err := user.SyscallConn() // a file whose Fd was called has no deadlines
	g.Expect(err).NotTo(HaveOccurred())
	var n int
	g.Expect(raw.Control(func(fd uintptr) {
		g.Expect(unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0)).To(Succeed())
		n, err = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
	})).To(Succeed())
	g.Expect(err).NotTo(HaveOccurred())
	terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = terminal.Close() })
	return user, terminal
}

// textOn returns all that was written to a terminal, and closes it. One read may return a part.
func textOn(t *testing.T, user, terminal *os.File) string {
	t.Helper()
	g := NewWithT(t)
	g.Expect(terminal.Close()).To(Succeed())
	text, err := io.ReadAll(user)
	g.Expect(err).To(MatchError(unix.EIO), "which is the end")
	return string(text)
}

func TestLsFitsItsTerminal(t *testing.T) {
	t.Parallel()
	f := newFixture(t, clitest.LongTTL)
	const key, name = "billing.invoices.nightly-reconciliation", "worker-7f9c6d5b8-x2kqz"
	f.Put(key, clitest.LeaderRecord(name, nil))
	for _, c := range []struct {
		flags   []string
		columns uint16
		shown   bool
	}{{nil, 80, false}, {nil, 200, true}, {[]string{"--wide"}, 80, true}} {
		user, terminal := pty(t)
		f.Expect(unix.IoctlSetWinsize(int(user.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: c.columns})).To(Succeed())
		cmd, _, stderr := f.command(append([]string{"ls"}, c.flags...)...)
		cmd.Stdout = terminal
		f.Expect(cmd.Run()).To(Succeed(), stderr.String())
		text := textOn(t, user, terminal)
		f.Expect(strings.Contains(text, "Since")).To(Equal(c.shown || strings.Contains(text, "Left out")), text)
		for line := range strings.Lines(text) {
			if len(c.flags) == 0 {
				f.Expect(len([]rune(strings.TrimRight(line, "\r\n")))).To(BeNumerically("<=", c.columns), text)
			}
		}
	}
}

func TestEvictOnATerminalNeedsAYes(t *testing.T) {
	t.Parallel()
	f := newFixture(t, clitest.LongTTL)
	f.Put("jobs", clitest.LeaderRecord("web-1", nil))
	for _, c := range []struct {
		answer  string
		code    int
		remains bool
	}{{"n\n", cli.ExitNegative, true}, {"\n", cli.ExitNegative, true}, {"sure\n", cli.ExitNegative, true}, {"\x04", cli.ExitNegative, true}, {"Yes\n", cli.ExitOK, false}} {
		user, terminal := pty(t)
		cmd, stdout, stderr := f.command("evict", "jobs")
		cmd.Stdin = terminal
		_, err := user.WriteString(c.answer)
		f.Expect(err).NotTo(HaveOccurred())
		if err := cmd.Run(); err != nil {
			f.Expect(err).To(BeAssignableToTypeOf(&exec.ExitError{}))
		}
		f.Expect(cmd.ProcessState.ExitCode()).To(Equal(c.code), "%q: %s", c.answer, stderr)
		f.Expect(stderr.String()).To(ContainSubstring("Evict \"web-1\" from \"jobs\"? [y/N]"))
		f.Expect(f.HasRecord("jobs")).To(Equal(c.remains), "%q", c.answer)
		if c.code == cli.ExitNegative {
			f.Expect(stdout.String()).To(BeEmpty())
			f.Expect(stderr.String()).To(ContainSubstring("nothing was done"))
		}
	}
}

func TestATerminalGetsTablesAndColours(t *testing.T) {
	t.Parallel()
	f := newFixture(t, clitest.LongTTL)
	f.Put("jobs", clitest.LeaderRecord("web-1\x1b[5m", nil))
	for _, noColor := range []string{"", "1"} {
		user, terminal := pty(t)
		cmd, _, _ := f.command("info", "jobs")
		cmd.Stdout, cmd.Env = terminal, append(os.Environ(), "TERM=xterm", "NO_COLOR="+noColor)
		f.Expect(cmd.Run()).To(Succeed())
		text := textOn(t, user, terminal)
		if noColor == "" {
			f.Expect(text).To(ContainSubstring("\x1b[1mElection jobs"))
		} else {
			f.Expect(text).NotTo(ContainSubstring("\x1b"))
		}
		f.Expect(text).NotTo(ContainSubstring("\x1b[5m"))
	}
	user, terminal := pty(t)
	cmd, _, _ := f.command("ls")
	cmd.Stdout, cmd.Env = terminal, append(os.Environ(), "TERM=xterm")
	f.Expect(cmd.Run()).To(Succeed())
	text := textOn(t, user, terminal)
	f.Expect(text).To(And(HavePrefix("╭"), ContainSubstring("Elections in bucket LEADER_ELECTION"), ContainSubstring(`web-1\x1b[5m`)))
}

func TestCheckPrintsATableWhoseLinesEndBetweenWordsOnATerminal(t *testing.T) {
	t.Parallel()
	f := newFixture(t, healthyTTL)
	user, terminal := pty(t)
	f.Expect(unix.IoctlSetWinsize(int(user.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 80})).To(Succeed())
	cmd, _, _ := f.command("check", "nobody")
	cmd.Stdout, cmd.Env = terminal, append(os.Environ(), "TERM=xterm", "NO_COLOR=1")
	f.Expect(cmd.Run()).NotTo(Succeed())
	text := textOn(t, user, terminal)
	f.Expect(text).To(HavePrefix("CRITICAL  1 problem\r\n╭"))
	f.Expect(text).To(MatchRegexp(`│ critical │ no-leader +│ nobody leads "nobody": no candidate answers\. Fix: +│`))
}

func TestAnInterruptEndsAQuestion(t *testing.T) {
	natstest.SkipIfShort(t)
	g := NewWithT(t)
	_, terminal := pty(t)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	r, w, err := os.Pipe()
	g.Expect(err).NotTo(HaveOccurred())
	defer r.Close()
	err = (&cli.Env{Stdin: terminal, Stderr: w}).Confirm(ctx, false, "Really?")
	g.Expect(err).To(MatchError(ContainSubstring("nothing was done")))
	v, ok := errors.AsType[*cli.ExitError](err)
	g.Expect(ok && v.Code == cli.ExitInterrupted).To(BeTrue())
	g.Expect(w.Close()).To(Succeed())
}
