package processes

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/natscampaign/election/internal/cli/embedded"
	"github.com/natscampaign/election/internal/host"
)

// ClusterSize is the number of servers. Each server has a replica of every stream with that many replicas.
const ClusterSize = 3

// Cluster is the servers of a drill, each in its own process.
type Cluster struct {
	ports   []host.Port // for clients, then for routes, then for monitoring
	Servers []*Server
	users   []user
}

// StartCluster runs the servers, with their data in folder. The servers know the operator, the stranger, and a user for each of
// the given number of candidates. The program is that of the servers, a nats-server; empty for the server that is built into this program.
func StartCluster(ctx context.Context, folder string, candidates int, program string) (*Cluster, error) {
	c := &Cluster{users: users(candidates)}
	for range 3 * ClusterSize {
		p, err := host.ReservePort()
		if err != nil {
			c.Close()
			return nil, err
		}
		c.ports = append(c.ports, p)
	}
	address := func(port int) string { return net.JoinHostPort(embedded.Loopback, strconv.Itoa(c.ports[port].Number)) }
	route := func(i int) string { return address(ClusterSize + i) }
	for i := range ClusterSize {
		name := fmt.Sprintf("server-%d", i+1)
		path := func(suffix string) string { return filepath.Join(folder, name+suffix) }
		s := &Server{
			Name: name, port: c.ports[i].Number, routeAddress: route(i), config: path(".conf"), folder: path(""), log: path(".log"), stderr: path(".err"),
			program: program, monitor: monitor{clients: address(i), address: address(2*ClusterSize + i)},
		}
		for j := range ClusterSize {
			if j != i {
				s.routes = append(s.routes, "nats://"+route(j))
			}
		}
		c.Servers = append(c.Servers, s)
	}
	for _, s := range c.Servers {
		err := s.configure(c.users)
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

// URLs returns the URLs of the servers themselves, without a link in between.
func (c *Cluster) URLs() []string {
	var urls []string
	for _, s := range c.Servers {
		urls = append(urls, "nats://"+s.address())
	}
	return urls
}

// ServerIndex returns the index of the server of that name; -1 if there is none.
func (c *Cluster) ServerIndex(name string) int {
	return slices.IndexFunc(c.Servers, func(s *Server) bool { return s.Name == name })
}

// Close kills all servers and releases their ports.
func (c *Cluster) Close() {
	for _, s := range c.Servers {
		s.Kill()
	}
	for _, p := range c.ports {
		p.Release()
	}
}
