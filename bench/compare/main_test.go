//go:build linux

package compare

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

var (
	compare  = flag.Bool("compare", false, "measure: 6 minutes, Linux, root")
	only     = flag.String("only", "", "measure the systems whose names match this regular expression")
	elements = flag.Int("elections", 6, "elections per fault and system; all are hit at once")
	handed   = flag.Int("handovers", 12, "orderly handovers per system")
)

// What a process of this test binary is.
const (
	asCandidate = "ELECTION_COMPARE_CANDIDATE" // a candidate: the name of its case
	endpointOf  = "ELECTION_COMPARE_ENDPOINT"  // where the server of a candidate listens
	asWorld     = "ELECTION_COMPARE_WORLD"     // the servers and the comparison, in a network namespace
)

func TestMain(m *testing.M) {
	flag.Parse()
	if name := os.Getenv(asCandidate); name != "" {
		if err := candidateProcess(name); err != nil {
			fmt.Fprintln(os.Stderr, "candidate:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if *compare && os.Getenv(asWorld) == "" {
		os.Exit(inNamespace())
	}
	if *compare {
		_ = flag.Set("test.parallel", strconv.Itoa(len(comparisons))) // they mostly wait
	}
	os.Exit(m.Run())
}

// inNamespace runs this test binary again in a network namespace of its own, which vanishes with it.
func inNamespace() int {
	cmd := exec.Command(os.Args[0], os.Args[1:]...)
	cmd.Env = append(os.Environ(), asWorld+"=1")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return max(1, exit.ExitCode())
	}
	fmt.Fprintln(os.Stderr, "cannot make a network namespace; run as root:", err)
	return 1
}
