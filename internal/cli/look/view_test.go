package look

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/cli/terminal"
	"github.com/natscampaign/election/observe"
)

func TestPeersAreDescribed(t *testing.T) {
	g := NewWithT(t)
	seen := 61.0
	for want, p := range map[string]Peer{
		"n1: leads":                           {Name: "n1", Leader: true, Current: true},
		"n2: current, 2 operations behind":    {Name: "n2", Current: true, Lag: 2},
		"n3: offline, seen 1m1s ago":          {Name: "n3", Offline: true, Current: true, SeenS: &seen},
		"n4: not current, 1 operation behind": {Name: "n4", Lag: 1},
	} {
		g.Expect(p.String()).To(Equal(want))
	}
}

func TestAgesAreMeasuredByTheServersClock(t *testing.T) {
	g := NewWithT(t)
	sent := time.Now()
	received := sent.Add(100 * time.Millisecond)
	c := NewServerClock(sent.Add(40*time.Millisecond-time.Hour), sent, received)
	g.Expect(c.Ahead()).To(BeNumerically("~", time.Hour, 20*time.Millisecond))
	g.Expect(c.Now()).To(BeTemporally("~", time.Now().Add(-time.Hour), time.Minute))
	g.Expect(c.Differs(time.Hour)).To(BeFalse(), "the round trip took too long to be certain")
	g.Expect(c.Differs(59 * time.Minute)).To(BeTrue())

	v := &View{Clock: c}
	holder := v.NewHolder(election.Leader{Name: "a", Renewed: sent.Add(-time.Hour - 10*time.Second), Expires: sent.Add(-time.Hour + 20*time.Second)}, time.Now())
	g.Expect(holder.RenewalAge).To(BeNumerically("~", 10*time.Second, 5*time.Second))
	g.Expect(holder.TimeLeft).To(BeNumerically("~", 20*time.Second, 5*time.Second))
}

func TestAServerWithoutATimestampCountsAsInSync(t *testing.T) {
	g := NewWithT(t)
	sent := time.Now()
	c := NewServerClock(time.Time{}, sent, sent)
	g.Expect(c.Ahead()).To(BeZero())
	g.Expect(c.Differs(0)).To(BeFalse())
}

func TestAnExpiredKeyHasNoTimeLeft(t *testing.T) {
	g := NewWithT(t)
	renewed := time.Now()
	h := &Holder{Leader: election.Leader{Renewed: renewed, Expires: renewed.Add(time.Second)}, TimeLeft: -120 * time.Millisecond}
	g.Expect(TimeLeftText(h.Leader, h.TimeLeft)).To(Equal("over for 120ms"))
	b, err := json.Marshal(Holder{ExpiresInS: -0.12})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(b)).To(ContainSubstring(`"expires_in_s":-0.12`))
}

func TestEachKindOfEventHasItsOwnDescription(t *testing.T) {
	g := NewWithT(t)
	at := time.Now()
	texts := map[string]bool{}
	for k := observe.Elected; k <= observe.Evicted; k++ {
		text := DescribeEvent(observe.Event{Kind: k, Key: "jobs", At: at, Leader: election.Leader{Name: "web-1", Term: 7, Since: at.Add(-time.Minute)}})
		g.Expect(text).To(And(ContainSubstring("web-1"), ContainSubstring("jobs")))
		texts[text] = true
		if k == observe.Leading || k >= observe.Released {
			g.Expect(text).To(ContainSubstring(", term 7, 1m0s after it was elected"))
			led := DescribeEvent(observe.Event{Kind: k, Key: "jobs", At: at, Leader: election.Leader{Name: "web-1", Term: 7, Since: at.Add(-time.Minute), LeadsSince: at.Add(-48 * time.Second)}})
			g.Expect(led).To(And(MatchRegexp(", term 7, (which it led )?for 48s"), Not(ContainSubstring("1m0s"))), "its stand-down does not count")
		}
	}
	g.Expect(texts).To(HaveLen(6))
}

func TestTheDescriptionOfALossSaysWhyAndByWhomAsFarAsThatIsKnown(t *testing.T) {
	g, now := NewWithT(t), time.Now()
	for want, e := range map[string]observe.Event{
		`"web-1" released "jobs" (resigned)`:                    {Kind: observe.Released, Reason: election.ReasonResigned},
		`"web-1" leads "jobs"`:                                  {Kind: observe.Leading, At: now, Leader: election.Leader{Since: now.Add(-time.Second)}},
		`"web-1" released "jobs"`:                               {Kind: observe.Released},
		`"web-1" won "jobs" (released)`:                         {Kind: observe.Elected, Reason: election.ReasonReleased, Leader: election.Leader{State: election.LeaderState}},
		`"web-1" won "jobs" (vacant); it does not lead yet`:     {Kind: observe.Elected, Reason: election.ReasonVacant, Leader: election.Leader{State: election.LeaderElectState}},
		`"web-1" lost "jobs" (deleted): evicted by alice@ops-1`: {Kind: observe.Evicted, Reason: election.ReasonDeleted, By: "alice@ops-1"},
		`"web-1" lost "jobs" (deleted): the key was deleted, and the deletion does not say by whom`: {Kind: observe.Evicted, Reason: election.ReasonDeleted},
		`"web-1" lost "jobs" (overwritten): overwritten by "web-2"`:                                 {Kind: observe.Evicted, Reason: election.ReasonOverwritten, By: "web-2"},
		`"web-1" lost "jobs" (bucket-replaced): the bucket was deleted and made again`:              {Kind: observe.Evicted, Reason: election.ReasonBucketReplaced},
		`"web-1" lost "jobs" (rewound): the server lost its last writes`:                            {Kind: observe.Evicted, Reason: election.ReasonRewound},
		`"web-1" lost "jobs": what is stored does not say why`:                                      {Kind: observe.Evicted},
	} {
		e.Key, e.Leader.Name = "jobs", "web-1"
		g.Expect(DescribeEvent(e)).To(Equal(want))
	}
	hostile := PrintableEvent(observe.Event{Kind: observe.Evicted, Reason: "a\x1b[2J", By: "b\x1b[2J"})
	g.Expect(DescribeEvent(hostile) + DescribeChange(hostile)).NotTo(ContainSubstring("\x1b"))
}

func TestLongMetadataIsCutToTheSameEntriesEachTime(t *testing.T) {
	g := NewWithT(t)
	l := election.Leader{Metadata: map[string]string{"long": strings.Repeat("x", 5000)}}
	for i := range 500 {
		l.Metadata[fmt.Sprintf("key-%03d", i)] = "v"
	}
	first := PrintableLeader(l).Metadata
	g.Expect(first).To(HaveLen(terminal.MaxMetadata))
	g.Expect(first).To(HaveKey("key-000"))
	g.Expect(PrintableLeader(l).Metadata).To(Equal(first))
	g.Expect(l.Metadata).To(HaveLen(501), "the argument is unchanged")
	g.Expect(PrintableLeader(election.Leader{Metadata: map[string]string{"long": strings.Repeat("x", 5000)}}).Metadata["long"]).To(HaveLen(terminal.MaxValue + len("…")))
}

func TestAgesAreThoseOfTheReadHoweverLateTheAnswerCame(t *testing.T) {
	g := NewWithT(t)
	sent := time.Now().Add(-5 * time.Second) // the answer took 5 s
	v := &View{Clock: NewServerClock(sent, sent, sent)}
	h := v.NewHolder(election.Leader{Name: "a", Renewed: sent.Add(-time.Second), Since: sent.Add(-time.Minute), Expires: sent.Add(2 * time.Second)}, sent)
	g.Expect(h.RenewalAge).To(Equal(time.Second))
	g.Expect(TimeLeftText(h.Leader, h.TimeLeft)).To(Equal("2s"), "and not over for 3s")
	g.Expect(h.SinceText()).To(HaveSuffix("(1m0s ago)"))
	h.LeadsSince = sent.Add(-30 * time.Second)
	g.Expect(h.SinceText()).To(HaveSuffix("(30s ago)"), "since when it leads")

	renewed := v.NewHolder(election.Leader{Name: "a", Renewed: sent.Add(time.Second), Expires: sent.Add(4 * time.Second)}, sent)
	g.Expect([]time.Duration{renewed.RenewalAge, renewed.TimeLeft}).To(Equal([]time.Duration{0, 3 * time.Second}), "renewed before the answer")
}

func TestTheUncertaintyOfTheClockMakesNoLeaseSeemOver(t *testing.T) {
	g := NewWithT(t)
	now := time.Now()
	sent, stamp := now.Add(-4*time.Second), now.Add(-100*time.Millisecond) // the server stamped its answer at its end
	v := &View{Clock: NewServerClock(stamp, sent, now)}
	h := v.NewHolder(election.Leader{Name: "a", Renewed: stamp.Add(-time.Second), Expires: stamp.Add(500 * time.Millisecond)}, now)
	g.Expect(h.TimeLeft).To(BeNumerically(">", 0))
}
