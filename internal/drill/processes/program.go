package processes

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"sync/atomic"
	"time"

	"github.com/natscampaign/election/internal/cli/embedded"
	"github.com/natscampaign/election/internal/timeutil"
)

// program is the nats-server that this process runs; nil if it runs none.
var program atomic.Pointer[os.Process]

// killProgram kills the nats-server that this process runs.
func killProgram() {
	if p := program.Load(); p != nil {
		_ = p.Kill()
	}
}

// runProgram is runServer with a nats-server program in place of the server that is built in. The program is in the process group of this
// process, so every signal of the drill reaches both. It also has the output of this process, which so ends when both have ended.
func runProgram(ctx context.Context, config serverConfig, reload <-chan os.Signal, ready func()) error {
	cmd := exec.Command(config.Program, "-c", config.Config)
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = os.Stdout, os.Stderr, programAttr()
	if err := cmd.Start(); err != nil {
		return err
	}
	program.Store(cmd.Process)
	life, ended := context.WithCancelCause(context.Background())
	go func() { ended(fmt.Errorf("%s ended: %w", config.Program, cmd.Wait())) }()

	starting, cancel := context.WithTimeoutCause(life, embedded.StartTimeout, fmt.Errorf("%s was not ready for connections within %v", config.Name, embedded.StartTimeout))
	defer cancel()
	m := monitor{address: config.Monitor}
	if !m.await(starting, func() bool { return m.loadedSince(time.Time{}) && accepts(config.Address) }) {
		killProgram()
		return context.Cause(starting)
	}
	ready()
	go func() {
		if m.await(life, m.healthy) {
			fmt.Println(caughtUpLine)
		}
	}()
	for before := m.loaded; ; before = m.loaded {
		select {
		case <-reload:
			if m.await(life, func() bool { return m.loadedSince(before) }) {
				fmt.Println(reloadedLine)
			}
		case <-life.Done():
			if ctx.Err() != nil {
				return nil // it was asked to shut down
			}
			return context.Cause(life)
		}
	}
}

// accepts reports whether the server accepts connections of clients.
func accepts(address string) bool {
	c, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil {
		return false
	}
	return c.Close() == nil
}

// monitor asks a server about itself.
type monitor struct {
	address string
	loaded  time.Time // when the server loaded its configuration last
}

// await polls until a condition holds. It returns false if ctx ended before.
func (*monitor) await(ctx context.Context, holds func() bool) bool {
	for !holds() {
		if timeutil.Pause(ctx, healthPollInterval) != nil {
			return false
		}
	}
	return true
}

// get returns whether the server answers a request with success, and decodes the answer.
func (m *monitor) get(path string, answer any) bool {
	client := http.Client{Timeout: time.Second}
	r, err := client.Get("http://" + m.address + path)
	if err != nil {
		return false
	}
	defer func() { _ = r.Body.Close() }()
	return r.StatusCode == http.StatusOK && json.NewDecoder(r.Body).Decode(answer) == nil
}

// loadedSince reports whether the server has loaded its configuration after the given time.
func (m *monitor) loadedSince(before time.Time) bool {
	var v struct {
		ConfigLoadTime time.Time `json:"config_load_time"`
	}
	if !m.get("/varz", &v) || !v.ConfigLoadTime.After(before) {
		return false
	}
	m.loaded = v.ConfigLoadTime
	return true
}

// healthy reports whether all streams of the server have caught up with those of the other servers.
func (m *monitor) healthy() bool { return m.get("/healthz", &struct{}{}) }
