package main

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/drill/faultproxy"
	"github.com/natscampaign/election/internal/test/clitest"
	"github.com/natscampaign/election/internal/test/natstest"
)

// withServer adds the server of the fixture to arguments, if it has one.
func (f *fixture) withServer(args []string) []string {
	if f.Server == nil {
		return args
	}
	return append(args, "-s", f.Server.URL())
}

// command returns the built binary with arguments, for the server of the fixture.
func (f *fixture) command(args ...string) (cmd *exec.Cmd, stdout, stderr *bytes.Buffer) {
	f.T.Helper()
	return command(f.T, f.withServer(args)...)
}

// run runs the built binary against the server to its end.
func (f *fixture) run(args ...string) (code int, stdout, stderr string) {
	f.T.Helper()
	return runBinary(f.T, f.withServer(args)...)
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

func newFixture(t *testing.T, ttl time.Duration) *fixture {
	t.Helper()
	skipIfShort(t)
	return &fixture{clitest.New(t, ttl)}
}

// linkTo returns a link to the server at a URL, and the URL of the link. The link can be cut.
func linkTo(t *testing.T, server string) (l *faultproxy.Link, url string) {
	t.Helper()
	l = faultproxy.New(nil)
	t.Cleanup(l.Close)
	address, err := l.Listen(strings.TrimPrefix(server, "nats://"))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return l, "nats://" + address
}

// stoppedServer returns a server that is stopped, and the name of its bucket, in which web-1 holds the key jobs.
func stoppedServer(t *testing.T) (s *natstest.Server, bucket string) {
	t.Helper()
	s = natstest.StartTCP(t)
	kv := s.Bucket(t, s.Connect(t), clitest.LongTTL)
	_, err := kv.Put(t.Context(), "jobs", []byte("web-1"))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	s.Stop()
	return s, kv.Bucket()
}
