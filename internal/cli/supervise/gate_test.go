//go:build linux || darwin

package supervise

import (
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/natscampaign/election/internal/test/natstest"

	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/cli"
)

// TestProgramDoesNotBeginBeforeItsGuardianKnowsOfIt keeps the gate shut for a while, and then refuses to open it.
func TestProgramDoesNotBeginBeforeItsGuardianKnowsOfIt(t *testing.T) {
	natstest.SkipIfShort(t)
	g := NewWithT(t)
	began := filepath.Join(t.TempDir(), "began")
	refused := errors.New("refused")
	cmd := exec.Command("/bin/sh", "-c", "echo >"+began)
	pid := 0
	_, err := startProgram(cmd, false, func(p int) error {
		pid = p
		g := NewGomega(func(message string, _ ...int) { t.Error(message) }) // FailNow needs the goroutine of the test, and this is another
		g.Consistently(func() error { _, err := os.Stat(began); return err }).WithTimeout(200 * time.Millisecond).Should(MatchError(os.ErrNotExist))
		return refused
	})
	g.Expect(err).To(MatchError(refused))
	g.Expect(unix.Kill(pid, 0)).To(MatchError(unix.ESRCH), "the process at the gate has ended")
	g.Expect(began).NotTo(BeAnExistingFile())
}

// TestGateDoesNotChangeArgumentsEnvironmentOrOpenFiles compares a program that passed the gate with one that was started directly.
func TestGateDoesNotChangeArgumentsEnvironmentOrOpenFiles(t *testing.T) {
	g := NewWithT(t)
	folder := t.TempDir()
	script := func(name string) *exec.Cmd {
		cmd := exec.Command("/bin/sh", "-c", `echo "$0 $1 $A $(ls /dev/fd)" >"$B"; exit 3`, "--", "-- --help")
		cmd.Env = []string{"A=a b", "B=" + filepath.Join(folder, name), "NATS_TIMEOUT=nonsense", "PATH=" + os.Getenv("PATH")}
		return cmd
	}
	g.Expect(script("direct").Run()).To(MatchError("exit status 3"))
	p, err := startProgram(script("gate"), false, func(int) error { return nil })
	g.Expect(err).NotTo(HaveOccurred())
	<-p.exited
	g.Expect(p.exitCode()).To(Equal(3))
	direct, err := os.ReadFile(filepath.Join(folder, "direct"))
	g.Expect(err).NotTo(HaveOccurred())
	gate, err := os.ReadFile(filepath.Join(folder, "gate"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(gate)).To(Equal(string(direct)))
}

func TestProgramThatCannotBeExecutedIsReported(t *testing.T) {
	g := NewWithT(t)
	script := filepath.Join(t.TempDir(), "script")
	g.Expect(os.WriteFile(script, []byte("#!/nothing/there\n"), 0o755)).To(Succeed())
	_, err := startProgram(exec.Command(script), false, func(int) error { return nil })
	g.Expect(err).To(MatchError(os.ErrNotExist))
	g.Expect(startError("script", err)).To(MatchError(`program "script" is not found: no such file or directory`))
}

// TestProgramDoesNotBeginInATermThatIsOver starts a program in a term that ended, as if this process had been stopped before.
func TestProgramDoesNotBeginInATermThatIsOver(t *testing.T) {
	g := NewWithT(t)
	began := filepath.Join(t.TempDir(), "began")
	orders, in, err := os.Pipe()
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { _, _ = orders.Close(), in.Close() }()
	r := &runner{
		Config: &Config{Env: &cli.Env{Argv: []string{"sh", "-c", "echo >" + began}}}, path: "/bin/sh",
		log: slog.New(slog.DiscardHandler), guardian: &guardians{in: in}, terminal: tty{fd: -1},
	}
	_, err = r.start(&election.Term{})
	g.Expect(err).To(MatchError(errLeaseOver))
	g.Expect(began).NotTo(BeAnExistingFile())
	g.Expect(r.guardian.last).To(Equal(order{}), "the guardian has no group to kill")
}

func TestOrdersDoNotWaitForAGuardianThatDoesNotRead(t *testing.T) {
	g := NewWithT(t)
	orders, in, err := os.Pipe()
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { _, _ = orders.Close(), in.Close() }()
	guard := &guardians{in: in}
	for n := range 5000 { // more than fit into a pipe
		guard.setOrder(order{Group: n + 1})
	}
	var first order
	g.Expect(json.NewDecoder(orders).Decode(&first)).To(Succeed())
	g.Expect(first).To(Equal(order{Group: 1}))
}
