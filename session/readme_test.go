package session_test

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/test/natstest"
)

func TestProgramOfTheReadmeHasTwoProcessesShare100Keys(t *testing.T) {
	natstest.SkipIfShort(t)
	t.Parallel()
	g := NewWithT(t)
	readme, err := os.ReadFile("README.md")
	g.Expect(err).NotTo(HaveOccurred())
	_, program, _ := strings.Cut(string(readme), "```go\n")
	program, _, _ = strings.Cut(program, "```")
	source, binary := filepath.Join(t.TempDir(), "main.go"), filepath.Join(t.TempDir(), "program")
	g.Expect(os.WriteFile(source, []byte(program), 0o600)).To(Succeed())
	out, err := exec.Command("go", "build", "-o", binary, source).CombinedOutput()
	g.Expect(err).NotTo(HaveOccurred(), string(out))

	server := natstest.StartTCP(t)
	start := func(name string) (cmd *exec.Cmd, lines *bufio.Scanner) {
		cmd = exec.Command(binary, name)
		cmd.Env = append(os.Environ(), "NATS_URL="+server.URL())
		pipe, err := cmd.StderrPipe()
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(cmd.Start()).To(Succeed())
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		return cmd, bufio.NewScanner(pipe)
	}
	leads := func(lines *bufio.Scanner) {
		keys := map[string]bool{}
		for len(keys) < 100 && lines.Scan() {
			if f := strings.Fields(lines.Text()); len(f) > 3 && f[2] == "leading" {
				keys[f[3]] = true
			}
		}
		g.Expect(keys).To(HaveLen(100))
	}
	one, first := start("one")
	leads(first) // after a lease: the bucket was just made
	_, second := start("two")
	g.Expect(one.Process.Signal(os.Interrupt)).To(Succeed())
	leads(second)
	g.Expect(one.Wait()).To(Succeed())
}
