package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/natscampaign/election/internal/history"
	"github.com/natscampaign/election/internal/ports"
)

// clusterSize is how many servers there are; each keeps a copy of every stream.
const clusterSize = 3

// serverConfig is what the process of a server is told.
type serverConfig struct {
	Name                  string
	ClientPort, RoutePort int
	Routes                []string
	Folder, Log           string
}

// serveAlone is the process of a server.
func serveAlone(ctx context.Context, line []byte, ready func()) error {
	var config serverConfig
	if err := json.Unmarshal(line, &config); err != nil {
		return err
	}
	opts := &server.Options{
		ServerName: config.Name, Host: loopback, Port: config.ClientPort,
		JetStream: true, StoreDir: config.Folder, NoSigs: true, LogFile: config.Log, Logtime: true,
		Cluster: server.ClusterOpts{
			Name: "drill", Host: loopback, Port: config.RoutePort,
			NoAdvertise: true, // clients must not go around their links
		},
	}
	for _, r := range config.Routes {
		u, err := url.Parse(r)
		if err != nil {
			return err
		}
		opts.Routes = append(opts.Routes, u)
	}
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
	<-ctx.Done()
	s.Shutdown()
	s.WaitForShutdown()
	return nil
}

// wellLine is what the process of a server writes once it has caught up with the others.
const wellLine = "well"

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
}

// serverProcess is one server, which may be down.
type serverProcess struct {
	config serverConfig
	output string

	mu      sync.Mutex
	process *child // nil while it is down
	well    bool   // whether it has caught up since it was started
	up      []history.Span
}

// startCluster runs all servers, with their data below folder.
func startCluster(ctx context.Context, folder string) (*cluster, error) {
	c := &cluster{}
	for range 2 * clusterSize {
		p, err := ports.Reserve()
		if err != nil {
			c.close()
			return nil, err
		}
		c.ports = append(c.ports, p)
	}
	for i := range clusterSize {
		name := fmt.Sprintf("server-%d", i+1)
		s := &serverProcess{output: filepath.Join(folder, name+".err")}
		s.config = serverConfig{
			Name: name, ClientPort: c.ports[i].Number, RoutePort: c.ports[clusterSize+i].Number,
			Folder: filepath.Join(folder, name), Log: filepath.Join(folder, name+".log"),
		}
		for j := range clusterSize {
			if j != i {
				s.config.Routes = append(s.config.Routes, "nats://"+net.JoinHostPort(loopback, strconv.Itoa(c.ports[clusterSize+j].Number)))
			}
		}
		c.servers = append(c.servers, s)
	}
	for _, s := range c.servers {
		if err := s.start(ctx); err != nil {
			c.close()
			return nil, err
		}
	}
	return c, nil
}

// address returns where clients reach the server.
func (s *serverProcess) address() string {
	return net.JoinHostPort(loopback, strconv.Itoa(s.config.ClientPort))
}

// start runs the server, with the data it had.
func (s *serverProcess) start(ctx context.Context) error {
	s.setWell(false)
	p, err := startChild(ctx, roleServer, s.config.Name, s.output, s.config, s.hear)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.process = p
	s.up = append(s.up, history.Span{From: history.Now()})
	return nil
}

// hear waits for the server to tell that it has caught up.
func (s *serverProcess) hear(out io.Reader) {
	if line, _ := bufio.NewReader(out).ReadString('\n'); strings.TrimSpace(line) == wellLine {
		s.setWell(true)
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
		return fmt.Errorf("%s has not caught up", s.config.Name)
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
		if s.config.Name == name {
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
