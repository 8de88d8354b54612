package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/cli/look"
)

// startServer starts 'server' on a free port. It returns the JSON object that the server writes, and a function that stops the server.
func startServer(t *testing.T, args ...string) (stop func(), output map[string]string) {
	t.Helper()
	g := NewWithT(t)
	cmd, _, stderr := command(t, append([]string{"server", "--port", "0", "--json"}, args...)...)
	cmd.Stdout = nil
	out, err := cmd.StdoutPipe()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(cmd.Start()).To(Succeed())
	var text json.RawMessage
	g.Expect(json.NewDecoder(out).Decode(&text)).To(Succeed())
	expectSchema(g, "server", string(text))
	g.Expect(json.Unmarshal(text, &output)).To(Succeed())
	return func() {
		g.Expect(cmd.Process.Signal(syscall.SIGTERM)).To(Succeed())
		g.Expect(cmd.Wait()).To(Succeed(), stderr.String())
	}, output
}

func TestAServerWithAStoreKeepsItsBuckets(t *testing.T) {
	skipWithoutInterrupts(t)
	t.Parallel()
	g := NewWithT(t)
	store := filepath.Join(t.TempDir(), "new", "store")
	stop, output := startServer(t, "--store", store)
	g.Expect(output).To(HaveKeyWithValue("store", store))
	g.Expect(output["url"]).To(HavePrefix("nats://127.0.0.1:"))
	code, made, stderr := runInProcess("bucket", "add", "-s", output["url"], "--json")
	g.Expect(code).To(Equal(cli.ExitOK), stderr)

	code, _, stderr = runBinary(t, "server", "--port", "0", "--store", store)
	g.Expect(code).To(Equal(cli.ExitFailure))
	g.Expect(stderr).To(And(ContainSubstring(store), ContainSubstring("another server uses this folder")))
	stop()

	stop, output = startServer(t, "--store", store)
	code, found, stderr := runInProcess("bucket", "info", "-s", output["url"], "--json")
	g.Expect(code).To(Equal(cli.ExitOK), stderr)
	var before, after look.BucketInfo
	g.Expect(json.Unmarshal([]byte(made), &before)).To(Succeed())
	g.Expect(json.Unmarshal([]byte(found), &after)).To(Succeed())
	g.Expect(after.Created).To(Equal(before.Created))
	stop()
}

func TestAServerThatCannotStartSaysWhy(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	store := t.TempDir()
	g.Expect(os.WriteFile(filepath.Join(store, "jetstream"), nil, 0o600)).To(Succeed()) // where the server wants a folder
	code, _, stderr := runBinary(t, "server", "--port", "0", "--store", store)
	g.Expect(code).To(Equal(cli.ExitFailure))
	g.Expect(stderr).To(And(ContainSubstring(store), ContainSubstring("storage directory is not a directory")))
}

func TestAServerWithoutAStoreDeletesItsData(t *testing.T) {
	skipWithoutInterrupts(t)
	t.Setenv("TMPDIR", t.TempDir())
	g := NewWithT(t)
	stop, output := startServer(t)
	g.Expect(output).To(HaveKeyWithValue("store", ""))
	g.Expect(os.ReadDir(os.Getenv("TMPDIR"))).NotTo(BeEmpty())
	stop()
	g.Expect(os.ReadDir(os.Getenv("TMPDIR"))).To(BeEmpty())
}

// TestTheNextServerDeletesTheDataOfAServerThatWasKilled kills one server while another one runs.
func TestTheNextServerDeletesTheDataOfAServerThatWasKilled(t *testing.T) {
	skipWithoutInterrupts(t)
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	g := NewWithT(t)
	stopFirst, first := startServer(t)
	code, _, stderr := runInProcess("bucket", "add", "-s", first["url"])
	g.Expect(code).To(Equal(cli.ExitOK), stderr)
	killed := startCandidate(t, "server", "--port", "0")
	killed.says("nats://")
	killed.kill()
	g.Expect(os.ReadDir(temp)).To(HaveLen(2))

	stopNext, _ := startServer(t)
	g.Expect(os.ReadDir(temp)).To(HaveLen(2), "the first server's and the next one's")
	stopNext()
	code, _, stderr = runInProcess("bucket", "info", "-s", first["url"])
	g.Expect(code).To(Equal(cli.ExitOK), stderr)
	stopFirst()
	g.Expect(os.ReadDir(temp)).To(BeEmpty())
}

func TestAServerWritesOnlyItsURLToStdoutAndTheNextCommandsToStderr(t *testing.T) {
	skipWithoutInterrupts(t)
	t.Parallel()
	g := NewWithT(t)
	s := startCandidate(t, "server", "--port", "0")
	url := s.says()
	code, _, _ := runInProcess("bucket", "add", "-s", url)
	g.Expect(code).To(Equal(cli.ExitOK), "the server accepts connections at its URL")
	s.interrupt()
	g.Expect(s.stderr.String()).To(And(ContainSubstring("export NATS_URL="+url), ContainSubstring("\n    election-cli bucket add --ttl 5s\n"), ContainSubstring("election-cli campaign")))
	g.Expect(s.lines).NotTo(Receive())
}
