package processes

import (
	"math/rand/v2"
	"sync/atomic"

	"github.com/natscampaign/election/internal/drill/faultproxy"
)

// Link connects one candidate with all servers: all connections share the faults of one faultproxy.Link. It belongs to the drill, so it keeps
// working while the candidate's process is stopped or gone.
type Link struct {
	*faultproxy.Link
	URLs        []string     // where it listens, one for each server
	RepliesLost atomic.Int64 // at random; it does not count the replies that a fault loses

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
	for _, server := range addresses {
		address, err := l.Listen(server)
		if err != nil {
			l.Close()
			return nil, err
		}
		l.URLs = append(l.URLs, "nats://"+address)
	}
	return l, nil
}

// Restore ends all faults. The link goes on losing replies at its rate.
func (l *Link) Restore() {
	l.Heal()
	if l.loseReply != nil {
		l.LoseReplies(l.loseReply)
	}
}
