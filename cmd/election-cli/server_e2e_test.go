package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/clitest"
	"github.com/natscampaign/election/internal/look"
)

// startServer runs 'server' on a free port, and returns it and what it says.
func startServer(t *testing.T, args ...string) (stop func(), said map[string]string) {
	t.Helper()
	g := NewWithT(t)
	cmd, _, stderr := command(t, append([]string{"server", "--port", "0", "--json"}, args...)...)
	cmd.Stdout = nil
	out, err := cmd.StdoutPipe()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(cmd.Start()).To(Succeed())
	g.Expect(json.NewDecoder(out).Decode(&said)).To(Succeed())
	return func() {
		g.Expect(cmd.Process.Signal(syscall.SIGTERM)).To(Succeed())
		g.Expect(cmd.Wait()).To(Succeed(), stderr.String())
	}, said
}

func TestAServerWithAStoreFindsItsBucketAgain(t *testing.T) {
	skipWithoutInterrupts(t)
	t.Parallel()
	g := NewWithT(t)
	store := filepath.Join(t.TempDir(), "new", "store")
	stop, said := startServer(t, "--store", store)
	g.Expect(said).To(HaveKeyWithValue("store", store))
	g.Expect(said["url"]).To(HavePrefix("nats://127.0.0.1:"))
	code, made, stderr := runs(t, "bucket", "add", "-s", said["url"], "--json")
	g.Expect(code).To(Equal(cli.ExitOK), stderr)

	code, _, stderr = runs(t, "server", "--port", "0", "--store", store)
	g.Expect(code).To(Equal(cli.ExitFailure))
	g.Expect(stderr).To(And(ContainSubstring(store), ContainSubstring("another server uses it")))
	stop()

	stop, said = startServer(t, "--store", store)
	code, found, stderr := runs(t, "bucket", "info", "-s", said["url"], "--json")
	g.Expect(code).To(Equal(cli.ExitOK), stderr)
	var before, after look.BucketInfo
	g.Expect(json.Unmarshal([]byte(made), &before)).To(Succeed())
	g.Expect(json.Unmarshal([]byte(found), &after)).To(Succeed())
	g.Expect(after.Created).To(Equal(before.Created))
	stop()
}

func TestAServerWithoutAStoreLeavesNothingBehind(t *testing.T) {
	skipWithoutInterrupts(t)
	t.Setenv("TMPDIR", t.TempDir())
	g := NewWithT(t)
	stop, said := startServer(t)
	g.Expect(said).To(HaveKeyWithValue("store", ""))
	g.Expect(os.ReadDir(os.Getenv("TMPDIR"))).NotTo(BeEmpty())
	stop()
	g.Expect(os.ReadDir(os.Getenv("TMPDIR"))).To(BeEmpty())
}

func TestAServerSaysItsURLAloneOnStdoutAndTheNextCommandsOnStderr(t *testing.T) {
	skipWithoutInterrupts(t)
	t.Parallel()
	g := NewWithT(t)
	cmd, _, stderr := command(t, "server", "--port", "0")
	lines, err := progressOf(&cmd.Stdout, cmd.StdoutPipe)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(cmd.Start()).To(Succeed())
	var url string
	g.Eventually(lines).WithTimeout(clitest.Patience).Should(Receive(&url))
	code, _, _ := runs(t, "bucket", "add", "-s", url)
	g.Expect(code).To(Equal(cli.ExitOK), "what is said to listen does")
	g.Expect(cmd.Process.Signal(os.Interrupt)).To(Succeed())
	g.Expect(cmd.Wait()).To(Succeed())
	g.Expect(stderr.String()).To(And(ContainSubstring("export NATS_URL="+url), ContainSubstring("election-cli bucket add"), ContainSubstring("election-cli campaign")))
	g.Expect(lines).NotTo(Receive())
}
