package look

import (
	"encoding/json"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/observe"
)

func TestAReplicaIsDescribedAsItIs(t *testing.T) {
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

func TestTimesAreToldByTheServersClock(t *testing.T) {
	g := NewWithT(t)
	sent := time.Now()
	received := sent.Add(100 * time.Millisecond)
	c := ReadServerTime(sent.Add(40*time.Millisecond-time.Hour), sent, received)
	g.Expect(c.Ahead()).To(BeNumerically("~", time.Hour, 20*time.Millisecond))
	g.Expect(c.Now()).To(BeTemporally("~", time.Now().Add(-time.Hour), time.Minute))
	g.Expect(c.Differs(time.Hour)).To(BeFalse(), "the answer took too long to be certain")
	g.Expect(c.Differs(59 * time.Minute)).To(BeTrue())

	v := &View{Clock: c}
	seen := v.Sight(election.Leader{Name: "a", Renewed: sent.Add(-time.Hour - 10*time.Second), Expires: sent.Add(-time.Hour + 20*time.Second)})
	g.Expect(seen.Age).To(BeNumerically("~", 10*time.Second, 5*time.Second))
	g.Expect(seen.Left).To(BeNumerically("~", 20*time.Second, 5*time.Second))
}

func TestAServerThatDoesNotTellTheTimeIsTakenToAgree(t *testing.T) {
	g := NewWithT(t)
	sent := time.Now()
	c := ReadServerTime(time.Time{}, sent, sent)
	g.Expect(c.Ahead()).To(BeZero())
	g.Expect(c.Differs(0)).To(BeFalse())
}

func TestAKeyThatIsOverIsNotSaidToLast(t *testing.T) {
	g := NewWithT(t)
	h := &Holder{Left: -120 * time.Millisecond}
	g.Expect(h.remaining()).To(Equal("over for 120ms"))
	b, err := json.Marshal(Holder{ExpiresInS: -0.12})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(b)).To(ContainSubstring(`"expires_in_s":-0.12`))
}

func TestEachKindOfEventHasASentenceOfItsOwn(t *testing.T) {
	g := NewWithT(t)
	at := time.Now()
	told := map[string]bool{}
	for k := observe.Elected; k <= observe.Evicted; k++ {
		text := Sentence(observe.Event{Kind: k, Key: "jobs", At: at, Leader: election.Leader{Name: "web-1", Term: 7, Since: at.Add(-time.Minute)}})
		g.Expect(text).To(And(ContainSubstring("web-1"), ContainSubstring("jobs")))
		told[text] = true
		if k >= observe.Released {
			g.Expect(text).To(HaveSuffix(", term 7, 1m0s after it was elected"))
		}
	}
	g.Expect(told).To(HaveLen(6))
}
