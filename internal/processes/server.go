package processes

import (
	"bufio"
	"cmp"
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

	"github.com/natscampaign/election/internal/embedded"
	"github.com/natscampaign/election/internal/history"
	"github.com/natscampaign/election/internal/ports"
	"github.com/natscampaign/election/internal/timeutil"
)

// ClusterSize is how many servers there are; each keeps a copy of every stream.
const ClusterSize = 3

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
	if !s.ReadyForConnections(embedded.StartTimeout) {
		return fmt.Errorf("%s did not get ready within %v", config.Name, embedded.StartTimeout)
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
	for timeutil.Pause(ctx, wellPoll) == nil {
		if s.Healthz(&server.HealthzOptions{}).StatusCode == http.StatusOK {
			fmt.Println(wellLine)
			return
		}
	}
}

// wellPoll is how often a server looks whether it has caught up.
const wellPoll = 50 * time.Millisecond

// Cluster is the servers of a drill, each a process of its own.
type Cluster struct {
	ports   []ports.Port // for clients, then for routes
	Servers []*Server
	users   []user
}

// Server is one server, which may be down.
type Server struct {
	Name         string
	port         int // for clients
	routeAddress string
	routes       []string
	config       string // the file that has its configuration
	folder       string // of its data
	log, output  string

	configuring sync.Mutex    // held while it starts, and while it reads its configuration anew
	reloaded    chan struct{} // receives when it has

	mu      sync.Mutex
	process *Process // nil while it is down
	well    bool     // whether it has caught up since it was started
	up      []history.Span
}

// StartCluster runs all servers, with their data below folder, for the given users.
func StartCluster(ctx context.Context, folder string, users []user) (*Cluster, error) {
	c := &Cluster{users: users}
	for range 2 * ClusterSize {
		p, err := ports.Reserve()
		if err != nil {
			c.Close()
			return nil, err
		}
		c.ports = append(c.ports, p)
	}
	route := func(i int) string {
		return net.JoinHostPort(embedded.Loopback, strconv.Itoa(c.ports[ClusterSize+i].Number))
	}
	for i := range ClusterSize {
		name := fmt.Sprintf("server-%d", i+1)
		path := func(end string) string { return filepath.Join(folder, name+end) }
		s := &Server{
			Name: name, port: c.ports[i].Number, routeAddress: route(i), config: path(".conf"), folder: path(""), log: path(".log"), output: path(".err"),
			reloaded: make(chan struct{}, 1),
		}
		for j := range ClusterSize {
			if j != i {
				s.routes = append(s.routes, "nats://"+route(j))
			}
		}
		c.Servers = append(c.Servers, s)
	}
	for _, s := range c.Servers {
		err := s.configure(users)
		if err == nil {
			err = s.Start(ctx)
		}
		if err != nil {
			c.Close()
			return nil, err
		}
	}
	return c, nil
}

// address returns where clients reach the server.
func (s *Server) address() string {
	return net.JoinHostPort(embedded.Loopback, strconv.Itoa(s.port))
}

// Start runs the server, with the data it had.
func (s *Server) Start(ctx context.Context) error {
	s.configuring.Lock()
	defer s.configuring.Unlock()
	s.setWell(false)
	p, err := startProcess(ctx, RoleServer, s.Name, s.output, serverConfig{Name: s.Name, Config: s.config}, s.hear)
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
func (s *Server) hear(out io.Reader) {
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

func (s *Server) setWell(well bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.well = well
}

// CaughtUp returns nil if the server is down, or has caught up since it was started.
func (s *Server) CaughtUp() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process != nil && !s.well {
		return fmt.Errorf("%s has not caught up", s.Name)
	}
	return nil
}

// End takes the server down, in order or by a kill, and returns when it is.
func (s *Server) End(kill bool) {
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

// Broken returns an error once the server has ended by itself.
func (s *Server) Broken() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process.Lost()
}

// Spans returns when the server was up, until now.
func (s *Server) Spans(now time.Duration) []history.Span {
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

// URLs returns where clients reach the servers, without a link in between.
func (c *Cluster) URLs() []string {
	var urls []string
	for _, s := range c.Servers {
		urls = append(urls, "nats://"+s.address())
	}
	return urls
}

// Named returns the index of the server of that name; the first if there is none.
func (c *Cluster) Named(name string) int {
	for i, s := range c.Servers {
		if s.Name == name {
			return i
		}
	}
	return 0
}

// Close ends all servers, and gives their ports up.
func (c *Cluster) Close() {
	for _, s := range c.Servers {
		s.End(true)
	}
	for _, p := range c.ports {
		p.Release()
	}
}

// bucketFolder is where the server keeps the bucket, and copyFolder where an older copy of that is.
func (s *Server) bucketFolder() string {
	return filepath.Join(s.folder, "jetstream", "$G", "streams", "KV_"+Bucket)
}

func (s *Server) copyFolder() string { return s.folder + ".older" }

// CopyBucket copies the bucket's files as they are at one moment, in which the server is stopped.
func (s *Server) CopyBucket() error {
	s.mu.Lock()
	p := s.process
	s.mu.Unlock()
	if p == nil {
		return fmt.Errorf("%s is down", s.Name)
	}
	if err := os.RemoveAll(s.copyFolder()); err != nil {
		return err
	}
	if err := p.Stop(); err != nil {
		return err
	}
	err := os.CopyFS(s.copyFolder(), os.DirFS(s.bucketFolder()))
	return cmp.Or(err, p.Proceed())
}

// RestoreBucket puts the copy in the place of the bucket, while the server is down.
func (s *Server) RestoreBucket() error {
	if err := os.RemoveAll(s.bucketFolder()); err != nil {
		return err
	}
	return os.Rename(s.copyFolder(), s.bucketFolder())
}
