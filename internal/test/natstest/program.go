package natstest

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// serverModule is the module of nats-server.
const serverModule = "github.com/nats-io/nats-server/v2"

// InstallServer returns the path of a nats-server program, and its version. The version may be one such as "2.15.2", the beginning of one
// such as "2.10" for the newest of these, or empty for the version of this module. The program is built once from the module proxy, and
// kept in the user's cache directory.
func InstallServer(version string) (path, exact string, err error) {
	module := serverModule
	if version != "" {
		module += "@v" + version
	}
	if exact, err = run(exec.Command("go", "list", "-m", "-f", "{{.Version}}", module)); err != nil {
		return "", "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", "", err
	}
	path = filepath.Join(cache, "natscampaign-election", "nats-server-"+exact)
	exact = strings.TrimPrefix(exact, "v")
	if _, err := os.Stat(path); err == nil {
		return path, exact, nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", "", err
	}
	folder, err := os.MkdirTemp(filepath.Dir(path), "build-")
	if err != nil {
		return "", "", err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	build := exec.Command("go", "install", serverModule+"@v"+exact)
	build.Env = append(os.Environ(), "GOBIN="+folder)
	if _, err := run(build); err != nil {
		return "", "", err
	}
	built, err := filepath.Glob(filepath.Join(folder, "nats-server*"))
	if err != nil || len(built) != 1 {
		return "", "", fmt.Errorf("natstest: go install made %q: %w", built, err)
	}
	return path, exact, os.Rename(built[0], path) // at once, because another test may want it now
}

// run returns the output of a command, or an error with what it wrote to stderr.
func run(cmd *exec.Cmd) (string, error) {
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("natstest: %s: %w: %s", strings.Join(cmd.Args, " "), err, stderr.Bytes())
	}
	return strings.TrimSpace(string(out)), err
}

// Program is a nats-server program with JetStream on the loopback interface, for tests of servers of other versions. It keeps its port
// and its files while it is down. Outside bubbles only.
type Program struct {
	path, address, folder string
	cmd                   *exec.Cmd // nil while it is down
}

// StartProgram runs the nats-server program at path, with additional lines of configuration, until the test ends.
func StartProgram(t testing.TB, path string, config ...string) *Program {
	t.Helper()
	p := &Program{path: path, address: fmt.Sprintf("127.0.0.1:%d", FreePort(t)), folder: t.TempDir()}
	config = append(config, fmt.Sprintf("listen: %q", p.address), fmt.Sprintf("jetstream: {store_dir: %q}", p.folder))
	if err := os.WriteFile(p.config(), []byte(strings.Join(config, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	p.Resume(t)
	return p
}

func (p *Program) config() string { return filepath.Join(p.folder, "server.conf") }

// URL returns the address for clients.
func (p *Program) URL() string { return "nats://" + p.address }

// Kill kills the server if it is up, and waits until it is gone.
func (p *Program) Kill() {
	if p.cmd != nil {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
		p.cmd = nil
	}
}

// Resume starts the server again after Kill, and returns when it accepts connections.
func (p *Program) Resume(t testing.TB) {
	t.Helper()
	var log bytes.Buffer
	p.cmd = exec.Command(p.path, "-c", p.config())
	p.cmd.Stderr = &log
	if err := p.cmd.Start(); err != nil {
		p.cmd = nil
		t.Fatal(err)
	}
	for end := time.Now().Add(patience); ; time.Sleep(pollInterval) {
		c, err := net.DialTimeout("tcp", p.address, time.Second)
		if err == nil {
			_ = c.Close()
			return
		}
		if time.Now().After(end) {
			p.Kill()
			t.Fatalf("natstest: %s is not ready after %v: %s", p.path, patience, log.Bytes())
		}
	}
}
