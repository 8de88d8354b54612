package natstest

import (
	"fmt"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"

	"github.com/natscampaign/election/internal/faultproxy"
)

// route is where one server of a cluster dials another: a listener whose connections go
// through a link.
type route struct {
	from, to string
	link     *faultproxy.Link
	listener net.Listener
	running  sync.WaitGroup
}

// openRoute runs a route to the port; the test's Cleanup closes it.
func openRoute(t testing.TB, from, to string, port int) *route {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("natstest: route from %s to %s: %v", from, to, err)
	}
	r := &route{from: from, to: to, listener: listener}
	r.link = faultproxy.New(func() (net.Conn, error) {
		return net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", port), patience)
	})
	r.running.Go(r.accept)
	t.Cleanup(func() {
		_ = listener.Close()
		r.link.Close()
		r.running.Wait()
	})
	return r
}

func (r *route) url() *url.URL {
	return &url.URL{Scheme: "nats", Host: r.listener.Addr().String()}
}

func (r *route) accept() {
	for {
		near, err := r.listener.Accept()
		if err != nil {
			return
		}
		r.running.Go(func() { r.carry(near) })
	}
}

// carry connects an accepted connection with one through the link, until either ends.
func (r *route) carry(near net.Conn) {
	defer func() { _ = near.Close() }()
	far, err := r.link.InProcessConn()
	if err != nil {
		return
	}
	defer func() { _ = far.Close() }()
	r.running.Go(func() {
		_, _ = io.Copy(far, near)
		_ = far.Close()
	})
	_, _ = io.Copy(near, far)
}
