package processes

import (
	"bytes"
	"encoding/json"
	"os"
)

// Users of the servers besides the candidates. The name of a candidate is also the name of its user.
const (
	Operator = "operator"
	Stranger = "stranger"
)

// user is a user in the configuration of a server. The password equals the name, because the servers listen on the loopback
// interface only.
type user struct {
	Name        string      `json:"user"`
	Password    string      `json:"password"`
	Permissions Permissions `json:"permissions,omitzero"`
}

// Permissions are the permissions of a user. The zero value permits everything.
type Permissions struct {
	Publish   Subjects `json:"publish,omitzero"`
	Subscribe Subjects `json:"subscribe,omitzero"`
}

// Subjects lists the subjects that are allowed and denied. No allowed subject means all; a denial has precedence.
type Subjects struct {
	Allow []string `json:"allow,omitempty"`
	Deny  []string `json:"deny,omitempty"`
}

// users returns the users of a drill. The stranger has permission to publish on the subjects on which the bucket republishes its
// changes, and no other permission.
func users(candidates int) []user {
	all := []user{
		{Name: Operator, Password: Operator},
		{Name: Stranger, Password: Stranger, Permissions: Permissions{
			Publish: Subjects{Allow: []string{"election." + Bucket + ".>"}}, Subscribe: Subjects{Deny: []string{">"}},
		}},
	}
	for i := range candidates {
		all = append(all, user{Name: candidateName(i), Password: candidateName(i)})
	}
	return all
}

// SetPermissions replaces the permissions of a user, and returns when every server that is up has reloaded them.
func (c *Cluster) SetPermissions(name string, p Permissions) error {
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

// configure writes the server's configuration file with these users. If the server is up, configure makes it reload the file.
func (s *Server) configure(users []user) error {
	s.configuring.Lock()
	defer s.configuring.Unlock()
	config := map[string]any{
		"server_name": s.Name, "listen": s.address(), "http": s.monitor.address, "log_file": s.log, "jetstream": map[string]any{"store_dir": s.folder},
		"cluster": map[string]any{
			"name": "drill", "listen": s.routeAddress, "routes": s.routes,
			"no_advertise": true, // else clients would learn addresses that bypass their links
		},
		"authorization": map[string]any{"users": users},
	}
	var text bytes.Buffer
	e := json.NewEncoder(&text) // a server's configuration may be JSON, but without the escapes for HTML
	e.SetEscapeHTML(false)
	if err := e.Encode(config); err != nil {
		return err
	}
	if err := os.WriteFile(s.config, text.Bytes(), 0o600); err != nil {
		return err
	}
	return s.reload()
}
