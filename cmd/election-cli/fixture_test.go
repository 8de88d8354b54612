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

// command returns the built binary with arguments, for the server of the fixture if it has one.
func (f *fixture) command(args ...string) (cmd *exec.Cmd, stdout, stderr *bytes.Buffer) {
	f.T.Helper()
	if f.Server != nil {
		args = append(args, "-s", f.Server.URL())
	}
	return command(f.T, args...)
}

// run runs the built binary against the server to its end.
func (f *fixture) run(args ...string) (code int, stdout, stderr string) {
	f.T.Helper()
	cmd, out, errs := f.command(args...)
	if err := cmd.Run(); err != nil {
		var exit *exec.ExitError
		f.Expect(errors.As(err, &exit)).To(BeTrue(), "%v", err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// read runs the built binary with --json, expects the exit code, and decodes stdout.
func (f *fixture) read(code int, into any, args ...string) {
	f.T.Helper()
	got, stdout, stderr := f.run(append(args, "--json")...)
	f.Expect(got).To(Equal(code), stderr)
	f.Expect(json.Unmarshal([]byte(stdout), into)).To(Succeed(), stdout)
}

// fixture is a server with a bucket, and runs the built binary against the server.
type fixture struct{ *clitest.Fixture }

func newFixture(t *testing.T, ttl time.Duration) *fixture { return &fixture{clitest.New(t, ttl)} }
