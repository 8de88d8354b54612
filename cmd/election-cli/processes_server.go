package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/natscampaign/election/internal/history"
	"github.com/natscampaign/election/internal/ports"
)

// clusterSize is how many servers there are; each keeps a copy of every stream.
const clusterSize = 3

// serverConfig is what the process of a server is told: where its configuration is.
type serverConfig struct{ Name, Config string }

// serveAlone is the process of a server, which reads its configuration anew when it is told to.
func serveAlone(ctx context.Context, line []byte, ready func()) error {
	reload := make(chan os.Signal, 1)
	signal.Notify(reload, signalReload)
	var config serverConfig
	if err := json.Unmarshal(line, &config); err != nil {
		return err
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
	if !s.ReadyForConnections(serverPatience) {
		return fmt.Errorf("%s did not get ready within %v", config.Name, serverPatience)
	}
	ready()
	go tellWell(ctx, s)
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

// What the process of a server writes: once it has caught up with the others, and each time it has read its configuration
// anew.
const (
	wellLine     = "well"
	reloadedLine = "reloaded"
)

// tellWell tells once the server has caught up with the others in all that it keeps.
func tellWell(ctx context.Context, s *server.Server) {
	for pause(ctx, wellPoll) == nil {
		if s.Healthz(&server.HealthzOptions{}).StatusCode == http.StatusOK {
			fmt.Println(wellLine)
			return
		}
	}
}

// wellPoll is how often a server looks whether it has caught up.
const wellPoll = 50 * time.Millisecond

// cluster is the servers of a drill, each a process of its own.
type cluster struct {
	ports   []ports.Port // for clients, then for routes
	servers []*serverProcess
	users   []user
}

// serverProcess is one server, which may be down.
type serverProcess struct {
	name         string
	port         int // for clients
	routeAddress string
	routes       []string
	config       string // the file that has its configuration
	folder       string // of its data
	log, output  string

	configuring sync.Mutex    // held while it starts, and while it reads its configuration anew
	reloaded    chan struct{} // receives when it has

	mu      sync.Mutex
	process *child // nil while it is down
	well    bool   // whether it has caught up since it was started
	up      []history.Span
}

// startCluster runs all servers, with their data below folder, for the given users.
func startCluster(ctx context.Context, folder string, users []user) (*cluster, error) {
	c := &cluster{users: users}
	for range 2 * clusterSize {
		p, err := ports.Reserve()
		if err != nil {
			c.close()
			return nil, err
		}
		c.ports = append(c.ports, p)
	}
	route := func(i int) string { return net.JoinHostPort(loopback, strconv.Itoa(c.ports[clusterSize+i].Number)) }
	for i := range clusterSize {
		name := fmt.Sprintf("server-%d", i+1)
		path := func(end string) string { return filepath.Join(folder, name+end) }
		s := &serverProcess{
			name: name, port: c.ports[i].Number, routeAddress: route(i), config: path(".conf"), folder: path(""), log: path(".log"), output: path(".err"),
			reloaded: make(chan struct{}, 1),
		}
		for j := range clusterSize {
			if j != i {
				s.routes = append(s.routes, "nats://"+route(j))
			}
		}
		c.servers = append(c.servers, s)
	}
	for _, s := range c.servers {
		err := s.configure(users)
		if err == nil {
			err = s.start(ctx)
		}
		if err != nil {
			c.close()
			return nil, err
		}
	}
	return c, nil
}

// address returns where clients reach the server.
func (s *serverProcess) address() string {
	return net.JoinHostPort(loopback, strconv.Itoa(s.port))
}

// start runs the server, with the data it had.
func (s *serverProcess) start(ctx context.Context) error {
	s.configuring.Lock()
	defer s.configuring.Unlock()
	s.setWell(false)
	p, err := startChild(ctx, roleServer, s.name, s.output, serverConfig{Name: s.name, Config: s.config}, s.hear)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.process = p
	s.up = append(s.up, history.Span{From: history.Now()})
	return nil
}

// hear follows what the server tells.
func (s *serverProcess) hear(out io.Reader) {
	for lines := bufio.NewScanner(out); lines.Scan(); {
		switch lines.Text() {
		case wellLine:
			s.setWell(true)
		case reloadedLine:
			select {
			case s.reloaded <- struct{}{}:
			default:
			}
		}
	}
}

func (s *serverProcess) setWell(well bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.well = well
}

// caughtUp returns nil if the server is down, or has caught up since it was started.
func (s *serverProcess) caughtUp() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process != nil && !s.well {
		return fmt.Errorf("%s has not caught up", s.name)
	}
	return nil
}

// end takes the server down, in order or by a kill, and returns when it is.
func (s *serverProcess) end(kill bool) {
	s.mu.Lock()
	p := s.process
	s.process = nil
	if p != nil {
		s.up[len(s.up)-1].To = history.Now()
	}
	s.mu.Unlock()
	switch {
	case p == nil:
	case kill:
		p.kill()
	default:
		p.leave()
	}
}

// broken returns an error once the server has ended by itself.
func (s *serverProcess) broken() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process.lost()
}

// spans returns when the server was up, until now.
func (s *serverProcess) spans(now time.Duration) []history.Span {
	s.mu.Lock()
	defer s.mu.Unlock()
	spans := append([]history.Span(nil), s.up...)
	for i := range spans {
		if spans[i].To == 0 {
			spans[i].To = now
		}
	}
	return spans
}

// urls returns where clients reach the servers, without a link in between.
func (c *cluster) urls() []string {
	var urls []string
	for _, s := range c.servers {
		urls = append(urls, "nats://"+s.address())
	}
	return urls
}

// named returns the index of the server of that name; the first if there is none.
func (c *cluster) named(name string) int {
	for i, s := range c.servers {
		if s.name == name {
			return i
		}
	}
	return 0
}

// close ends all servers, and gives their ports up.
func (c *cluster) close() {
	for _, s := range c.servers {
		s.end(true)
	}
	for _, p := range c.ports {
		p.Release()
	}
}
