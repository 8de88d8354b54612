package processes

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/natscampaign/election/internal/embedded"
)

// Users of the servers of a drill beside the candidates, which go by their names.
const (
	Operator = "operator"
	Stranger = "stranger"
)

// user is a user as the configuration of a server has it. The password is the name: the servers listen on this machine only.
type user struct {
	Name        string      `json:"user"`
	Password    string      `json:"password"`
	Permissions Permissions `json:"permissions,omitzero"`
}

// Permissions are what a user may do; all if nothing is said.
type Permissions struct {
	Publish   Subjects `json:"publish,omitzero"`
	Subscribe Subjects `json:"subscribe,omitzero"`
}

// Subjects are those that are allowed, all if none is named, but for those that are denied.
type Subjects struct {
	Allow []string `json:"allow,omitempty"`
	Deny  []string `json:"deny,omitempty"`
}

// Users returns the users of a drill with the given number of candidates. The stranger may do nothing but publish
// where the bucket republishes what it commits.
func Users(candidates int) []user {
	users := []user{
		{Name: Operator, Password: Operator},
		{Name: Stranger, Password: Stranger, Permissions: Permissions{
			Publish: Subjects{Allow: []string{"election." + Bucket + ".>"}}, Subscribe: Subjects{Deny: []string{">"}},
		}},
	}
	for i := range candidates {
		users = append(users, user{Name: candidateName(i), Password: candidateName(i)})
	}
	return users
}

// Permit gives a user these permissions in place of those that it has, on all servers.
func (c *Cluster) Permit(name string, p Permissions) error {
	for i := range c.users {
		if c.users[i].Name == name {
			c.users[i].Permissions = p
		}
	}
	for _, s := range c.Servers {
		if err := s.configure(c.users); err != nil {
			return err
		}
	}
	return nil
}

// configure writes the configuration of the server with these users, and has the server read it anew if it is up.
func (s *Server) configure(users []user) error {
	s.configuring.Lock()
	defer s.configuring.Unlock()
	config := map[string]any{
		"server_name": s.Name, "listen": s.address(), "log_file": s.log, "jetstream": map[string]any{"store_dir": s.folder},
		"cluster": map[string]any{
			"name": "drill", "listen": s.routeAddress, "routes": s.routes,
			"no_advertise": true, // clients must not go around their links
		},
		"authorization": map[string]any{"users": users},
	}
	var text bytes.Buffer
	e := json.NewEncoder(&text) // the servers' configuration can be JSON, but for escapes
	e.SetEscapeHTML(false)
	if err := e.Encode(config); err != nil {
		return err
	}
	if err := os.WriteFile(s.config, text.Bytes(), 0o600); err != nil {
		return err
	}
	s.mu.Lock()
	p := s.process
	s.mu.Unlock()
	if p == nil {
		return nil
	}
	select {
	case <-s.reloaded: // late
	default:
	}
	if err := p.cmd.Process.Signal(signalReload); err != nil {
		return p.Lost() // it was taken down, which is another fault
	}
	select {
	case <-s.reloaded:
		return nil
	case <-p.exited:
		return p.Lost()
	case <-time.After(embedded.StartTimeout):
		return fmt.Errorf("%s did not read its configuration within %v", s.Name, embedded.StartTimeout)
	}
}
