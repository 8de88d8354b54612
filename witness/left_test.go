//go:build linux || darwin

package witness_test

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/test/proctest"
	"github.com/natscampaign/election/internal/test/witnesstest"
)

// A witness ignores TERM, and tries for as long as the lease may last to release a key on a server that stopped with its test.
func TestNoWitnessOutlivesItsTest(t *testing.T) {
	for _, way := range []witnesstest.Way{"", witnesstest.Kill} {
		var witness int
		t.Run("program killed by "+string(way), func(t *testing.T) {
			f := newFleet(t, longTTL)
			c := f.program()
			c.Dial = "nats://127.0.0.1:1"
			p := witnesstest.Start(t, c)
			witness = childOf(t, p.PID)
			if way != "" {
				p.Die(t, way)
				<-p.Exited()
			}
		})
		NewWithT(t).Eventually(func() bool { return proctest.IsRunning(witness) }).WithTimeout(patience).Should(BeFalse())
	}
}
