package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"
)

// Users of the servers of a drill beside the candidates, which go by their names.
const (
	userOperator = "operator"
	userStranger = "stranger"
)

// user is a user as the configuration of a server has it. The password is the name: the servers listen on this machine only.
type user struct {
	Name        string      `json:"user"`
	Password    string      `json:"password"`
	Permissions permissions `json:"permissions,omitzero"`
}

// permissions are what a user may do; all if nothing is said.
type permissions struct {
	Publish   subjects `json:"publish,omitzero"`
	Subscribe subjects `json:"subscribe,omitzero"`
}

// subjects are those that are allowed, all if none is named, but for those that are denied.
type subjects struct {
	Allow []string `json:"allow,omitempty"`
	Deny  []string `json:"deny,omitempty"`
}

// right is something that a candidate may lose.
type right struct {
	what  string
	taken permissions // the denials that take it
}

// rights are what a revoke takes, in turn or all at once. The right to write the key is not among them, nor that to the
// candidate's own inboxes, without which no write is acknowledged: fault one-way does that.
var rights = []right{
	{"to read the key", permissions{Publish: subjects{Deny: []string{
		"$JS.API.DIRECT.GET.KV_" + processBucket, "$JS.API.DIRECT.GET.KV_" + processBucket + ".>", "$JS.API.STREAM.MSG.GET.KV_" + processBucket,
	}}}},
	{"to read the stream's info", permissions{Publish: subjects{Deny: []string{"$JS.API.STREAM.INFO.KV_" + processBucket}}}},
	{"to subscribe", permissions{
		Publish: subjects{Deny: []string{"$JS.API.CONSUMER.>"}},
		Subscribe: subjects{Deny: []string{
			"election." + processBucket + ".>", "$KV." + processBucket + ".>", "election-control." + processBucket + ".>", "$SRV.>",
		}},
	}},
}

// takenBy returns what a revoke of the given variant takes.
func takenBy(variant int) right {
	if n := variant % (len(rights) + 1); n < len(rights) {
		return rights[n]
	}
	all := right{what: "to do anything but to write"}
	for _, r := range rights {
		all.taken.Publish.Deny = append(all.taken.Publish.Deny, r.taken.Publish.Deny...)
		all.taken.Subscribe.Deny = append(all.taken.Subscribe.Deny, r.taken.Subscribe.Deny...)
	}
	return all
}

// injectRevoke takes rights from the user of a candidate, and gives them back.
func injectRevoke(ctx context.Context, d *processDrill, i *injury) error {
	r := takenBy(i.variant)
	i.note = "it loses the right " + r.what
	if err := d.cluster.permit(i.candidate.name, r.taken); err != nil {
		return err
	}
	_ = pause(ctx, i.hold)
	return d.cluster.permit(i.candidate.name, permissions{})
}

// processUsers returns the users of a drill with the given number of candidates. The stranger may do nothing but publish
// where the bucket republishes what it commits.
func processUsers(candidates int) []user {
	users := []user{
		{Name: userOperator, Password: userOperator},
		{Name: userStranger, Password: userStranger, Permissions: permissions{
			Publish: subjects{Allow: []string{"election." + processBucket + ".>"}}, Subscribe: subjects{Deny: []string{">"}},
		}},
	}
	for i := range candidates {
		users = append(users, user{Name: candidateName(i), Password: candidateName(i)})
	}
	return users
}

// permit gives a user these permissions in place of those that it has, on all servers.
func (c *cluster) permit(name string, p permissions) error {
	for i := range c.users {
		if c.users[i].Name == name {
			c.users[i].Permissions = p
		}
	}
	for _, s := range c.servers {
		if err := s.configure(c.users); err != nil {
			return err
		}
	}
	return nil
}

// configure writes the configuration of the server with these users, and has the server read it anew if it is up.
func (s *serverProcess) configure(users []user) error {
	s.configuring.Lock()
	defer s.configuring.Unlock()
	config := map[string]any{
		"server_name": s.name, "listen": s.address(), "log_file": s.log, "jetstream": map[string]any{"store_dir": s.folder},
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
		return p.lost() // it was taken down, which is another fault
	}
	select {
	case <-s.reloaded:
		return nil
	case <-p.exited:
		return p.lost()
	case <-time.After(serverPatience):
		return fmt.Errorf("%s did not read its configuration within %v", s.name, serverPatience)
	}
}
