package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"go.uber.org/goleak"

	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/cli/supervise"
	"github.com/natscampaign/election/internal/test/clitest"
	"github.com/natscampaign/election/internal/test/natstest"
)

// asProgram acts as the program that a command runs, if a test started this binary for that. It returns otherwise.
var asProgram func()

// buildDir is the folder of the binary under test.
var buildDir string

func TestMain(m *testing.M) {
	supervise.PassGate(os.Args)
	if asProgram != nil {
		asProgram()
	}
	SetDefaultEventuallyTimeout(clitest.Timeout)
	for _, name := range []string{
		"NATS_URL", "NATS_USER", "NATS_PASSWORD", "NATS_TOKEN", "NATS_CREDS", "NATS_NKEY", "NATS_CERT", "NATS_KEY", "NATS_CA",
		"NATS_CONTEXT", "ELECTION_BUCKET", "ELECTION_INTERVAL", "ELECTION_WITNESS", "NO_COLOR",
	} {
		_ = os.Unsetenv(name)
	}
	var err error
	if buildDir, err = os.MkdirTemp("", "election-cli-test-"); err != nil {
		panic(err)
	}
	_ = os.Setenv("NATS_TIMEOUT", clitest.Timeout.String())
	_ = os.Setenv("XDG_CONFIG_HOME", buildDir)   // no test depends on the contexts of the developer
	_ = os.Setenv("GORACE", "atexit_sleep_ms=0") // else each process waits a second at its end, with -race
	natstest.RunAtOnce(4)                        // each test runs several processes
	natstest.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(buildDir)
		if missing := outputsWithoutTest(); code == 0 && missing != nil {
			fmt.Println("no test compared the output with these schemas in docs/schemas:", missing)
			code = 1
		}
		os.Exit(code)
	}))
}

// binary builds election-cli once, with the race detector if the tests use it, and returns its path.
var binary = sync.OnceValues(func() (string, error) {
	path := filepath.Join(buildDir, "election-cli.exe")
	args := []string{"build", "-ldflags=-s -w", "-o", path}
	if raceDetector {
		args = append(args, "-race")
	}
	out, err := exec.Command("go", append(args, ".")...).CombinedOutput()
	if err != nil {
		err = &cli.ExitError{Code: cli.ExitFailure, Message: string(out)}
	}
	return path, err
})

// skipIfShort skips a test that runs the built binary, with -short.
func skipIfShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("it runs the built binary: not with -short")
	}
}

// command returns the built binary with arguments. The process does not outlive the test. It skips the
// test with -short.
func command(t *testing.T, args ...string) (cmd *exec.Cmd, stdout, stderr *bytes.Buffer) {
	t.Helper()
	skipIfShort(t)
	path, err := binary()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	cmd = exec.Command(path, args...)
	stdout, stderr = &bytes.Buffer{}, &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	t.Cleanup(func() {
		if cmd.Process != nil && cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
		if t.Failed() {
			t.Logf("%q wrote:\n%s", args, stderr)
		}
	})
	return cmd, stdout, stderr
}

// runBinary runs the built binary to its end, and kills it after a timeout. JSON output must be as its schema says.
func runBinary(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	cmd, out, errs := command(t, args...)
	NewWithT(t).Expect(cmd.Start()).To(Succeed())
	defer time.AfterFunc(2*clitest.Timeout, func() { _ = cmd.Process.Kill() }).Stop()
	_ = cmd.Wait()
	expectOutput(NewWithT(t), args, out.String())
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// runInProcess runs a command line in this process. A test that runs beside others must not do so with run, which reaps all children of its
// process, and so those of the other tests.
func runInProcess(args ...string) (code int, stdout, stderr string) {
	var out, err bytes.Buffer
	code = run(args, strings.NewReader(""), &out, &err)
	return code, out.String(), err.String()
}

// inRealTime skips a test with -short in which leases begin and end in real time.
func inRealTime(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("leases run out in real time: not with -short")
	}
}
