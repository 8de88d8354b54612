package natstest

import (
	"fmt"
	"net"
	"net/url"
	"sync"
	"testing"

	"github.com/natscampaign/election/internal/drill/faultproxy"
)

// route is where one server of a cluster dials another: a listener whose connections go
// through a link.
type route struct {
	from, to string
	link     *faultproxy.Link
	listener net.Listener
}

// openRoute runs a route to the port; the test's Cleanup closes it.
func openRoute(t testing.TB, from, to string, port int) *route {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("natstest: route from %s to %s: %v", from, to, err)
	}
	r := &route{from: from, to: to, link: faultproxy.New(nil), listener: listener}
	var serving sync.WaitGroup
	serving.Go(func() { r.link.Serve(listener, fmt.Sprintf("127.0.0.1:%d", port)) })
	t.Cleanup(func() {
		_ = listener.Close()
		r.link.Close()
		serving.Wait()
	})
	return r
}

func (r *route) url() *url.URL {
	return &url.URL{Scheme: "nats", Host: r.listener.Addr().String()}
}
