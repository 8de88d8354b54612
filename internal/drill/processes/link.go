package processes

import (
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"

	"github.com/natscampaign/election/internal/cli/embedded"
	"github.com/natscampaign/election/internal/drill/faultproxy"
)

// Link connects one candidate with all servers. It has a listener for each server, and all connections share the faults of one
// faultproxy.Link. The link belongs to the drill, so it keeps working while the candidate's process is stopped or gone.
type Link struct {
	*faultproxy.Link
	RepliesLost atomic.Int64 // at random; it does not count the replies that a fault loses

	listeners []net.Listener
	serving   sync.WaitGroup
	loseReply func(faultproxy.Message) bool // decides at random; nil if no replies are lost
}

// OpenLink opens a link to the servers at the given addresses. The link loses replies to requests at the given rate; with a rate of
// 0, random may be nil.
func OpenLink(addresses []string, rate float64, random *rand.Rand) (*Link, error) {
	l := &Link{Link: faultproxy.New(nil)}
	if rate > 0 {
		l.loseReply = func(m faultproxy.Message) bool { // called by one goroutine at a time
			lost := m.Request != "" && random.Float64() < rate
			if lost {
				l.RepliesLost.Add(1)
			}
			return lost
		}
	}
	l.Restore()
	for _, address := range addresses {
		listener, err := net.Listen("tcp", net.JoinHostPort(embedded.Loopback, "0"))
		if err != nil {
			l.Close()
			return nil, err
		}
		l.listeners = append(l.listeners, listener)
		l.serving.Go(func() { l.Serve(listener, address) })
	}
	return l, nil
}

// URLs returns the URLs of the link's listeners, one for each server.
func (l *Link) URLs() []string {
	var urls []string
	for _, listener := range l.listeners {
		urls = append(urls, "nats://"+listener.Addr().String())
	}
	return urls
}

// Restore ends all faults. The link goes on losing replies at its rate.
func (l *Link) Restore() {
	l.Link.Heal()
	if l.loseReply != nil {
		l.Link.LoseReplies(l.loseReply)
	}
}

// Close closes the listeners and all connections, and waits for the goroutines of the link.
func (l *Link) Close() {
	for _, listener := range l.listeners {
		_ = listener.Close()
	}
	l.Link.Close()
	l.serving.Wait()
}
