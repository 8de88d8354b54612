package witness_test

import (
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/test/proctest"
	"github.com/natscampaign/election/internal/test/witnesstest"
	iwitness "github.com/natscampaign/election/internal/witness"
)

func TestKeyOfAProgramThatReplacesItselfByExecIsReleasedAtOnce(t *testing.T) {
	for _, ofHost := range []bool{false, true} {
		t.Run("of the host="+strconv.FormatBool(ofHost), func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			f := newFleet(t, longTTL)
			c, path := f.program(), filepath.Join(shortDir(t), "w.sock")
			var watched <-chan struct{}
			if c.OfHost = ofHost; ofHost {
				watched = f.hostWitness(path)
			}
			p := witnesstest.Start(t, c, func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, iwitness.HostVariable+"=unix://"+path) })
			wins := f.successor("elections", "key-0")
			if ofHost {
				g.Eventually(watched).WithTimeout(patience).Should(Receive())
			}
			former := proctest.Children(p.PID)
			p.Die(t, witnesstest.Exec)
			takesOver(t, p, wins)
			if ofHost {
				g.Expect(former).To(BeEmpty())
				return
			}
			g.Expect(former).To(HaveLen(1))
			g.Eventually(func() []int { return proctest.Children(p.PID) }).WithTimeout(patience).
				Should(And(HaveLen(1), Not(Equal(former))), "the former witness has exited and was reaped, and the next image has one of its own")
		})
	}
}
