package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os/exec"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/clitest"
)

// command returns the built command, ready to be run on the server, if it is the arena's own.
func (a *arena) command(args ...string) (cmd *exec.Cmd, stdout, stderr *bytes.Buffer) {
	a.T.Helper()
	if a.Server != nil {
		args = append(args, "-s", a.Server.URL())
	}
	return command(a.T, args...)
}

// run runs the built command on the server.
func (a *arena) run(args ...string) (code int, stdout, stderr string) {
	a.T.Helper()
	cmd, out, errs := a.command(args...)
	if err := cmd.Run(); err != nil {
		var exit *exec.ExitError
		a.Expect(errors.As(err, &exit)).To(BeTrue(), "%v", err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// read runs the built command, which must exit with that code and write JSON to stdout.
func (a *arena) read(code int, into any, args ...string) {
	a.T.Helper()
	got, stdout, stderr := a.run(append(args, "--json")...)
	a.Expect(got).To(Equal(code), stderr)
	a.Expect(json.Unmarshal([]byte(stdout), into)).To(Succeed(), stdout)
}

// arena is a server with a bucket, at which a test looks by the built command.
type arena struct{ *clitest.Site }

func newArena(t *testing.T, ttl time.Duration) *arena { return &arena{clitest.New(t, ttl)} }
