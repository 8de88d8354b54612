package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os/exec"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
)

// arena is a server with a bucket, in which a test puts what it likes and looks at it by the built command.
type arena struct {
	Gomega
	t      *testing.T
	server *embedded
	s      *session
	bucket *election.Bucket
}

// quiet is a TTL that no test outlives.
const quiet = time.Minute

func newArena(t *testing.T, ttl time.Duration) *arena {
	t.Helper()
	g := NewWithT(t)
	e, s := serverWithBucket(t, ttl)
	bucket, err := s.findBucket(t.Context(), defaultBucket)
	g.Expect(err).NotTo(HaveOccurred())
	return &arena{Gomega: g, t: t, server: e, s: s, bucket: bucket}
}

// fields are those of a record.
type fields map[string]any

// born is when the leaders of all tests were elected.
var born = time.Now().Add(-time.Hour)

// leading is the record of a leader.
func leading(name string, change fields) fields {
	f := fields{
		"name": name, "instance": "i-" + name, "attempt": "i-" + name + ".1", "since": born, "term": 7,
		"host": "host-of-" + name, "pid": 4711, "metadata": map[string]string{"zone": "b", "rack": "a"},
	}
	maps.Copy(f, change)
	return f
}

// put writes a record, or any other text, and returns its revision.
func (a *arena) put(key string, value any) uint64 {
	a.t.Helper()
	text, ok := value.(string)
	if !ok {
		b, err := json.Marshal(value)
		a.Expect(err).NotTo(HaveOccurred())
		text = string(b)
	}
	ack, err := a.s.js.Publish(a.t.Context(), "$KV.LEADER_ELECTION."+key, []byte(text))
	a.Expect(err).NotTo(HaveOccurred())
	return ack.Sequence
}

// shutDown stops an election, and waits until it has released its key.
func shutDown(t *testing.T, e *election.Election) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	NewWithT(t).Expect(e.Shutdown(ctx)).To(Succeed())
}

// stands says whether anything stands under the key.
func (a *arena) stands(key string) bool {
	_, err := a.bucket.Get(a.t.Context(), key)
	return !errors.Is(err, jetstream.ErrKeyNotFound)
}

// command returns the built command, ready to be run on the server, if it is the arena's own.
func (a *arena) command(args ...string) (cmd *exec.Cmd, stdout, stderr *bytes.Buffer) {
	a.t.Helper()
	if a.server != nil {
		args = append(args, "-s", a.server.url())
	}
	return command(a.t, args...)
}

// run runs the built command on the server.
func (a *arena) run(args ...string) (code int, stdout, stderr string) {
	a.t.Helper()
	cmd, out, errs := a.command(args...)
	if err := cmd.Run(); err != nil {
		var exit *exec.ExitError
		a.Expect(errors.As(err, &exit)).To(BeTrue(), "%v", err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// read runs the built command, which must exit with that code and write JSON to stdout.
func (a *arena) read(code int, into any, args ...string) {
	a.t.Helper()
	got, stdout, stderr := a.run(append(args, "--json")...)
	a.Expect(got).To(Equal(code), stderr)
	a.Expect(json.Unmarshal([]byte(stdout), into)).To(Succeed(), stdout)
}
