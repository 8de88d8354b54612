package processes

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/natscampaign/election/internal/cli/embedded"
	"github.com/natscampaign/election/internal/timeutil"
)

// serverConfig is the configuration of a server's process: the name of the server, and the file with the rest. With a nats-server program
// it also has the server's addresses for clients and for monitoring.
type serverConfig struct{ Name, Config, Program, Address, Monitor string }

// runServer is the main function of a server's process. The server reloads its configuration file on signalReload.
func runServer(ctx context.Context, line []byte, ready func()) error {
	reload := make(chan os.Signal, 1)
	signal.Notify(reload, signalReload)
	var config serverConfig
	if err := json.Unmarshal(line, &config); err != nil {
		return err
	}
	if config.Program != "" {
		return runProgram(ctx, config, reload, ready)
	}
	opts, err := server.ProcessConfigFile(config.Config)
	if err != nil {
		return err
	}
	opts.NoSigs = true
	s, err := server.NewServer(opts)
	if err != nil {
		return err
	}
	s.ConfigureLogger()
	s.Start()
	if !s.ReadyForConnections(embedded.StartTimeout) {
		return fmt.Errorf("%s was not ready for connections within %v", config.Name, embedded.StartTimeout)
	}
	ready()
	go reportCaughtUp(ctx, s)
	for ctx.Err() == nil {
		select {
		case <-reload:
			if err := s.Reload(); err != nil {
				return err
			}
			fmt.Println(reloadedLine)
		case <-ctx.Done():
		}
	}
	s.Shutdown()
	s.WaitForShutdown()
	return nil
}

// Lines that a server's process writes to its output: once it has caught up with the other servers, and after each reload.
const (
	caughtUpLine = "caught up"
	reloadedLine = "reloaded"
)

// reportCaughtUp writes a line once all streams of the server have caught up with those of the other servers.
func reportCaughtUp(ctx context.Context, s *server.Server) {
	for timeutil.Pause(ctx, healthPollInterval) == nil {
		if s.Healthz(&server.HealthzOptions{}).StatusCode == http.StatusOK {
			fmt.Println(caughtUpLine)
			return
		}
	}
}

const healthPollInterval = 50 * time.Millisecond
