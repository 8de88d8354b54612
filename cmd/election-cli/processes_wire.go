package main

import (
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"

	"github.com/natscampaign/election/internal/faultproxy"
)

// wire is the way of one candidate to all servers: a listener for each, whose connections go through one link. It is not
// part of the candidate's process, so that it goes on while that is stopped or gone.
type wire struct {
	*faultproxy.Link
	listeners []net.Listener
	running   sync.WaitGroup
	lose      func(faultproxy.Message) bool // replies that get lost without any fault; nil for none
	lost      atomic.Int64
}

// openWire opens a wire to the servers at the given addresses, which loses replies at the given rate.
func openWire(addresses []string, rate float64, random *rand.Rand) (*wire, error) {
	w := &wire{Link: faultproxy.New(nil)}
	if rate > 0 {
		w.lose = func(m faultproxy.Message) bool { // called by one goroutine at a time
			lost := m.Request != "" && random.Float64() < rate
			if lost {
				w.lost.Add(1)
			}
			return lost
		}
	}
	w.mend()
	for _, address := range addresses {
		l, err := net.Listen("tcp", net.JoinHostPort(loopback, "0"))
		if err != nil {
			w.close()
			return nil, err
		}
		w.listeners = append(w.listeners, l)
		w.running.Go(func() { w.accept(l, address) })
	}
	return w, nil
}

// urls returns where the wire begins.
func (w *wire) urls() []string {
	var urls []string
	for _, l := range w.listeners {
		urls = append(urls, "nats://"+l.Addr().String())
	}
	return urls
}

// mend ends all faults but the rate at which replies get lost.
func (w *wire) mend() {
	w.Heal()
	if w.lose != nil {
		w.LoseReplies(w.lose)
	}
}

func (w *wire) accept(l net.Listener, address string) {
	for {
		near, err := l.Accept()
		if err != nil {
			return
		}
		w.running.Go(func() { w.join(near, address) })
	}
}

// join connects near with the server, through the link, until either side ends.
func (w *wire) join(near net.Conn, address string) {
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

// close ends all connections.
func (w *wire) close() {
	for _, l := range w.listeners {
		_ = l.Close()
	}
	w.Close()
	w.running.Wait()
}
