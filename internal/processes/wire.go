package processes

import (
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"

	"github.com/natscampaign/election/internal/embedded"
	"github.com/natscampaign/election/internal/faultproxy"
)

// Link is the way of one candidate to all servers: a listener for each, whose connections go through one link. It is not
// part of the candidate's process, so that it goes on while that is stopped or gone.
type Link struct {
	*faultproxy.Link
	listeners []net.Listener
	running   sync.WaitGroup
	lose      func(faultproxy.Message) bool // replies that get lost without any fault; nil for none
	Lost      atomic.Int64
}

// OpenLink opens a wire to the servers at the given addresses, which loses replies at the given rate.
func OpenLink(addresses []string, rate float64, random *rand.Rand) (*Link, error) {
	w := &Link{Link: faultproxy.New(nil)}
	if rate > 0 {
		w.lose = func(m faultproxy.Message) bool { // called by one goroutine at a time
			lost := m.Request != "" && random.Float64() < rate
			if lost {
				w.Lost.Add(1)
			}
			return lost
		}
	}
	w.Mend()
	for _, address := range addresses {
		l, err := net.Listen("tcp", net.JoinHostPort(embedded.Loopback, "0"))
		if err != nil {
			w.Link.Close()
			return nil, err
		}
		w.listeners = append(w.listeners, l)
		w.running.Go(func() { w.accept(l, address) })
	}
	return w, nil
}

// URLs returns where the wire begins.
func (w *Link) URLs() []string {
	var urls []string
	for _, l := range w.listeners {
		urls = append(urls, "nats://"+l.Addr().String())
	}
	return urls
}

// Mend ends all faults but the rate at which replies get lost.
func (w *Link) Mend() {
	w.Heal()
	if w.lose != nil {
		w.LoseReplies(w.lose)
	}
}

func (w *Link) accept(l net.Listener, address string) {
	for {
		near, err := l.Accept()
		if err != nil {
			return
		}
		w.running.Go(func() { w.join(near, address) })
	}
}

// join connects near with the server, through the link, until either side ends.
func (w *Link) join(near net.Conn, address string) {
	defer func() { _ = near.Close() }()
	far, err := w.Dial("tcp", address)
	if err != nil {
		return
	}
	defer func() { _ = far.Close() }()
	w.running.Go(func() {
		_, _ = io.Copy(far, near)
		_ = far.Close()
	})
	_, _ = io.Copy(near, far)
}

// Close ends all connections.
func (w *Link) Close() {
	for _, l := range w.listeners {
		_ = l.Close()
	}
	w.Link.Close()
	w.running.Wait()
}
