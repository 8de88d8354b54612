package processes

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"sync/atomic"

	"github.com/nats-io/nats-server/v2/server"
)

// serverConfig is the configuration of a server's process: the file with the configuration of the server, and the nats-server program to
// run; empty for the server that is built into this program.
type serverConfig struct{ File, Program string }

// runServer is the main function of a server's process. Either server handles the signals of the drill as nats-server does: it reloads its
// configuration file, or shuts down. The drill asks the server itself whether it is ready.
func runServer(ctx context.Context, line []byte, ready func()) error {
	var config serverConfig
	if err := json.Unmarshal(line, &config); err != nil {
		return err
	}
	if config.Program != "" {
		return runProgram(ctx, config, ready)
	}
	opts, err := server.ProcessConfigFile(config.File)
	if err != nil {
		return err
	}
	s, err := server.NewServer(opts)
	if err != nil {
		return err
	}
	s.ConfigureLogger()
	ready()
	s.Start()
	s.WaitForShutdown()
	return nil
}

// program is the nats-server program that this process runs; nil if it runs none.
var program atomic.Pointer[os.Process]

// killProgram kills the nats-server program that this process runs.
func killProgram() {
	if p := program.Load(); p != nil {
		_ = p.Kill()
	}
}

// runProgram runs a nats-server program until it ends. The program is in the process group of this process, so every signal of the drill reaches
// both. It also has the output of this process, which so ends when both have ended.
func runProgram(ctx context.Context, config serverConfig, ready func()) error {
	signal.Notify(make(chan os.Signal, 1), signalReload) // it is for the program, and would end this process
	cmd := exec.Command(config.Program, "-c", config.File)
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = os.Stdout, os.Stderr, programAttr()
	if err := cmd.Start(); err != nil {
		return err
	}
	program.Store(cmd.Process)
	ready()
	err := cmd.Wait()
	if ctx.Err() != nil {
		return nil // it was asked to shut down
	}
	return fmt.Errorf("%s ended: %w", config.Program, err)
}
