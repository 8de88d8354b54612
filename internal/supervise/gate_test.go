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

	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/cli"
)

// TestAProgramDoesNotBeginBeforeItsGuardianKnowsOfIt lets it have all the time to, and then does not let it begin.
func TestAProgramDoesNotBeginBeforeItsGuardianKnowsOfIt(t *testing.T) {
	g := NewWithT(t)
	began := filepath.Join(t.TempDir(), "began")
	refused := errors.New("refused")
	cmd := exec.Command("/bin/sh", "-c", "echo >"+began)
	pid := 0
	_, err := startProgram(cmd, false, func(p int) error {
		pid = p
		told := NewGomega(func(message string, _ ...int) { t.Error(message) }) // as this is not the goroutine of the test
		told.Consistently(func() error { _, err := os.Stat(began); return err }).WithTimeout(200 * time.Millisecond).Should(MatchError(os.ErrNotExist))
		return refused
	})
	g.Expect(err).To(MatchError(refused))
	g.Expect(unix.Kill(pid, 0)).To(MatchError(unix.ESRCH), "what was behind the gate has ended")
	g.Expect(began).NotTo(BeAnExistingFile())
}

// TestAProgramBehindTheGateIsTheOneThatWasAskedFor has it tell all that it was given, open files included.
func TestAProgramBehindTheGateIsTheOneThatWasAskedFor(t *testing.T) {
	g := NewWithT(t)
	folder := t.TempDir()
	script := func(name string) *exec.Cmd {
		cmd := exec.Command("/bin/sh", "-c", `echo "$0 $1 $A $(ls /dev/fd)" >"$B"; exit 3`, "--", "-- --help")
		cmd.Env = []string{"A=a b", "B=" + filepath.Join(folder, name), "NATS_TIMEOUT=nonsense", "PATH=" + os.Getenv("PATH")}
		return cmd
	}
	g.Expect(script("plain").Run()).To(MatchError("exit status 3"))
	p, err := startProgram(script("gated"), false, func(int) error { return nil })
	g.Expect(err).NotTo(HaveOccurred())
	<-p.ended
	g.Expect(p.code()).To(Equal(3))
	plain, err := os.ReadFile(filepath.Join(folder, "plain"))
	g.Expect(err).NotTo(HaveOccurred())
	gated, err := os.ReadFile(filepath.Join(folder, "gated"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(gated)).To(Equal(string(plain)))
}

func TestAProgramThatCannotBeExecutedIsSaidToBe(t *testing.T) {
	g := NewWithT(t)
	script := filepath.Join(t.TempDir(), "script")
	g.Expect(os.WriteFile(script, []byte("#!/nothing/there\n"), 0o755)).To(Succeed())
	_, err := startProgram(exec.Command(script), false, func(int) error { return nil })
	g.Expect(err).To(MatchError(os.ErrNotExist))
	g.Expect(notStarted("script", err)).To(MatchError("program script is not found: no such file or directory"))
}

// TestNoProgramBeginsInATermThatIsOver has run find, when it is about to start the program, that it was stopped.
func TestNoProgramBeginsInATermThatIsOver(t *testing.T) {
	g := NewWithT(t)
	began := filepath.Join(t.TempDir(), "began")
	orders, in, err := os.Pipe()
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { _, _ = orders.Close(), in.Close() }()
	r := &runner{
		Config: &Config{Env: &cli.Env{Argv: []string{"sh", "-c", "echo >" + began}}}, path: "/bin/sh",
		log: slog.New(slog.DiscardHandler), guardian: &guardian{in: in}, terminal: tty{-1},
	}
	_, err = r.start(&election.Term{})
	g.Expect(err).To(MatchError(errLeaseOver))
	g.Expect(began).NotTo(BeAnExistingFile())
	g.Expect(r.guardian.last).To(Equal(order{}), "there is nothing to guard")
}

func TestAGuardianThatDoesNotReadIsNotWaitedFor(t *testing.T) {
	g := NewWithT(t)
	orders, in, err := os.Pipe()
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { _, _ = orders.Close(), in.Close() }()
	deaf := &guardian{in: in}
	for n := range 5000 { // more than a pipe takes
		deaf.tell(order{Group: n + 1})
	}
	var first order
	g.Expect(json.NewDecoder(orders).Decode(&first)).To(Succeed())
	g.Expect(first).To(Equal(order{Group: 1}))
}
