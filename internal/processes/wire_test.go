package processes

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/clitest"
	"github.com/natscampaign/election/internal/embedded"
)

// wired returns a connection over a wire that loses replies at the given rate, to a server with somebody who answers.
func wired(t *testing.T, rate float64) (*nats.Conn, *Link) {
	t.Helper()
	g := NewWithT(t)
	e, err := embedded.Start(embedded.Config{})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(e.Stop)
	w, err := OpenLink([]string{strings.TrimPrefix(e.URL(), "nats://")}, rate, rand.New(rand.NewPCG(1, 1)))
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(w.Close)
	answering, err := nats.Connect(e.URL())
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(answering.Close)
	_, err = answering.Subscribe("echo", func(m *nats.Msg) { _ = m.Respond(m.Data) })
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(answering.Flush()).To(Succeed())
	nc, err := nats.Connect(strings.Join(w.URLs(), ","), nats.IgnoreDiscoveredServers(), nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond))
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(nc.Close)
	return nc, w
}

// lostAfter is after which time an answer that may be lost is taken to be.
const lostAfter = 50 * time.Millisecond

// asks returns how many of n requests are answered within the given time each.
func asks(nc *nats.Conn, n int, within time.Duration) (answered int) {
	for range n {
		if _, err := nc.Request("echo", nil, within); err == nil {
			answered++
		}
	}
	return answered
}

func TestAWireLosesRepliesAtItsRateAlsoAfterAFault(t *testing.T) {
	g := NewWithT(t)
	nc, w := wired(t, 0.5)
	answered := asks(nc, 40, lostAfter)
	g.Expect(answered).To(BeNumerically("~", 20, 12))
	g.Expect(w.Lost.Load()).To(BeNumerically(">", 5))
	before := w.Lost.Load()
	w.LoseReplies(nil)
	g.Expect(asks(nc, 3, lostAfter)).To(BeZero())
	w.Mend()
	g.Expect(asks(nc, 40, lostAfter)).To(BeNumerically("~", 20, 12))
	g.Expect(w.Lost.Load()).To(BeNumerically(">", before+5))
}

func TestAWireThatIsMendedPassesAllAgain(t *testing.T) {
	g := NewWithT(t)
	nc, w := wired(t, 0)
	g.Expect(asks(nc, 10, clitest.Patience)).To(Equal(10))
	w.Cut()
	g.Expect(asks(nc, 2, lostAfter)).To(BeZero())
	w.Mend()
	g.Eventually(func() int { return asks(nc, 1, lostAfter) }).WithTimeout(clitest.Patience).Should(Equal(1))
	g.Expect(asks(nc, 10, clitest.Patience)).To(Equal(10))
	g.Expect(w.Lost.Load()).To(BeZero())
}
