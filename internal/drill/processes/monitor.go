package processes

import (
	"encoding/json"
	"net"
	"net/http"
	"time"
)

// monitorTimeout is the timeout of one question to a server.
const monitorTimeout = time.Second

// monitor asks a server about itself, over HTTP.
type monitor struct {
	clients string // the address for clients
	address string
}

// accepts reports whether the server accepts connections of clients.
func (m monitor) accepts() bool {
	c, err := net.DialTimeout("tcp", m.clients, monitorTimeout)
	if err != nil {
		return false
	}
	return c.Close() == nil
}

// loaded returns when the server loaded its configuration last; zero if it does not answer.
func (m monitor) loaded() time.Time {
	var v struct {
		ConfigLoadTime time.Time `json:"config_load_time"`
	}
	m.get("/varz", &v)
	return v.ConfigLoadTime
}

// healthy reports whether all streams of the server have caught up with those of the other servers.
func (m monitor) healthy() bool { return m.get("/healthz", &struct{}{}) }

// get reports whether the server answers a request with success, and decodes the answer.
func (m monitor) get(path string, answer any) bool {
	client := http.Client{Timeout: monitorTimeout}
	r, err := client.Get("http://" + m.address + path)
	if err != nil {
		return false
	}
	defer func() { _ = r.Body.Close() }()
	return r.StatusCode == http.StatusOK && json.NewDecoder(r.Body).Decode(answer) == nil
}
