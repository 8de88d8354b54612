package deploy

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// binary is the command, which TestMain builds unless ELECTION_CLI names one.
var binary = os.Getenv("ELECTION_CLI")

func TestMain(m *testing.M) {
	os.Exit(func() int {
		if binary == "" {
			dir, err := os.MkdirTemp("", "")
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				return 1
			}
			defer os.RemoveAll(dir)
			binary = filepath.Join(dir, "election-cli")
			build := exec.Command("go", "build", "-C", "..", "-o", binary, "./cmd/election-cli")
			build.Stderr = os.Stderr
			if err := build.Run(); err != nil {
				fmt.Fprintln(os.Stderr, err)
				return 1
			}
		}
		return m.Run()
	}())
}

// command returns the command with arguments, for servers. It does not outlive the test.
func command(t *testing.T, servers string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary, args...)
	cmd.Env = append(os.Environ(), "NATS_URL="+servers, "NO_COLOR=1", "XDG_CONFIG_HOME="+t.TempDir())
	return cmd
}
