package drill

import (
	"bytes"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

func TestEachWaitForALeaderIsAnnouncedWithoutATerminal(t *testing.T) {
	g := NewWithT(t)
	candidates := []*candidate{{name: "candidate-1"}, {name: "candidate-2"}}
	for kind, line := range map[failoverKind]string{
		firstElection: "round 3  first election           candidate-1 campaigns first\n",
		handover:      "round 3  handover                 candidate-1 led and has stopped\n",
		crash:         "round 3  crash                    candidate-1 led and is cut off\n",
		eviction:      "round 3  eviction                 the key of candidate-1 was deleted\n",
	} {
		var out bytes.Buffer
		p := newProgress(&out, func() time.Duration { return 0 }, 4, 2*time.Second)
		f := failover{kind: kind, round: 2, faultAt: time.Second}
		p.begin(f, candidates[0].name)
		g.Expect(out.String()).To(Equal(line))
		out.Reset()
		f.ledAt, f.leader = 2500*time.Millisecond, 1
		p.finish(f, candidates, time.Second)
		g.Expect(out.String()).To(Equal(line[:24] + "  1.50 s  candidate-2 leads\n"))
	}
}
