package core

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// The shell drops what these notices report, because it tells of them where it cannot pass that on.
func TestNoticesOfDecisionsOfThisProcessReportNothing(t *testing.T) {
	now := time.Now()
	for _, leads := range []bool{false, true} {
		for _, notice := range []func(*Candidate) Notice{
			func(c *Candidate) Notice { return NewRun{Rules: c.Rules, Started: now} },
			func(*Candidate) Notice { return EndRun{} },
			func(c *Candidate) Notice { return NewRules{c.Rules} },
			func(*Candidate) Notice { return Stop{} },
			func(c *Candidate) Notice { return End{c.term, Resigned} },
			func(*Candidate) Notice { return Hold{Paused, true} },
			func(*Candidate) Notice { return SetMetadata{map[string]string{"zone": "b"}} },
		} {
			c, term := leading(10*time.Second, 0, now)
			if c.term, c.role = term, (holding{}); !leads {
				c = candidate()
				waits(c)
			}
			n := notice(c)
			if end, ok := n.(End); ok && end.Term == nil {
				continue
			}
			NewWithT(t).Expect(c.Notice(now, n)).To(BeEmpty(), "%T", n)
		}
	}
}
