package processes

import (
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/natscampaign/election/internal/test/natstest"

	"github.com/nats-io/nats.go"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/cli/embedded"
	"github.com/natscampaign/election/internal/test/clitest"
)

// connect returns a connection over a link that loses replies at the given rate. A subscriber at the server echoes requests.
func connect(t *testing.T, rate float64) (*nats.Conn, *Link) {
	t.Helper()
	g := NewWithT(t)
	e, err := embedded.Start(embedded.Config{})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(e.Stop)
	l, err := OpenLink([]string{strings.TrimPrefix(e.URL(), "nats://")}, rate, rand.New(rand.NewPCG(1, 1)))
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(l.Close)
	responder, err := nats.Connect(e.URL(), nats.Timeout(clitest.Timeout))
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(responder.Close)
	_, err = responder.Subscribe("echo", func(m *nats.Msg) { _ = m.Respond(m.Data) })
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(responder.Flush()).To(Succeed())
	var nc *nats.Conn
	g.Eventually(func() (err error) { // a try is given up soon, so that a lost reply does not keep a later one waiting
		nc, err = nats.Connect(strings.Join(l.URLs, ","), nats.IgnoreDiscoveredServers(), nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond))
		return err
	}).WithTimeout(clitest.Timeout).Should(Succeed())
	t.Cleanup(nc.Close)
	return nc, l
}

// replyTimeout is the time after which a reply counts as lost. On a busy host a reply may be late by seconds.
const replyTimeout = 6 * time.Second

// answered sends n requests at a time and returns how many replies arrived in time.
func answered(nc *nats.Conn, n int, timeout time.Duration) int {
	var replies atomic.Int64
	var requests sync.WaitGroup
	for range n {
		requests.Go(func() {
			if _, err := nc.Request("echo", nil, timeout); err == nil {
				replies.Add(1)
			}
		})
	}
	requests.Wait()
	return int(replies.Load())
}

func TestALinkLosesRepliesAtItsRateBeforeAndAfterAFault(t *testing.T) {
	if testing.Short() {
		t.Skip("lost replies take their time: not with -short")
	}
	g := NewWithT(t)
	nc, l := connect(t, 0.5)
	g.Expect(answered(nc, 40, replyTimeout)).To(BeNumerically("~", 20, 12))
	g.Expect(l.RepliesLost.Load()).To(BeNumerically(">", 5))
	before := l.RepliesLost.Load()
	l.LoseReplies(nil)
	g.Expect(answered(nc, 3, replyTimeout)).To(BeZero())
	l.Restore()
	g.Expect(answered(nc, 40, replyTimeout)).To(BeNumerically("~", 20, 12))
	g.Expect(l.RepliesLost.Load()).To(BeNumerically(">", before+5))
}

func TestARestoredLinkPassesEveryMessageAgain(t *testing.T) {
	natstest.SkipIfShort(t)
	g := NewWithT(t)
	nc, l := connect(t, 0)
	g.Expect(answered(nc, 10, clitest.Timeout)).To(Equal(10))
	l.Cut()
	g.Expect(answered(nc, 2, replyTimeout)).To(BeZero())
	l.Restore()
	g.Eventually(func() int { return answered(nc, 1, replyTimeout) }).WithTimeout(clitest.Timeout).Should(Equal(1))
	g.Expect(answered(nc, 10, clitest.Timeout)).To(Equal(10))
	g.Expect(l.RepliesLost.Load()).To(BeZero())
}
