package drill

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/cli/terminal"
	"github.com/natscampaign/election/internal/test/clitest"
	"github.com/natscampaign/election/internal/timeutil"
)

func TestStratifiedTimesHitEveryPartOfTheIntervalOnce(t *testing.T) {
	g := NewWithT(t)
	const n, limit = 8, 1600 * time.Millisecond
	hit := map[int]bool{}
	for _, d := range stratifiedTimes(n, limit) {
		g.Expect(d).To(BeNumerically("<", limit))
		hit[int(d/(limit/n))] = true
	}
	g.Expect(hit).To(HaveLen(n))
}

func TestBoundsGrowWithTheTTLAndACrashHasTheLargestBound(t *testing.T) {
	g := NewWithT(t)
	const ttl = 10 * time.Second
	for k := range failoverKind(failoverKinds) {
		g.Expect(k.bound(2 * ttl)).To(BeNumerically(">", k.bound(ttl)))
		g.Expect(crash.bound(ttl)).To(BeNumerically(">=", k.bound(ttl)), k.String())
	}
	g.Expect(crash.bound(ttl)).To(Equal(ttl + maxExpiryDelay + 15*time.Second + slack))
}

// reportOf returns the report of a drill with the given failovers.
func reportOf(failovers []failover, believed ...time.Duration) *Report {
	r := &Rehearsal{sampler: newSampler([]*fakeCandidate{always(false)}), failovers: failovers, believed: believed}
	p := &Report{Result: Result{TTL: 2, Candidates: 3, ServerVersion: "2.15.2"}, Rounds: 1}
	p.complete(r)
	return p
}

func TestTheJSONHasEmptyListsInsteadOfNulls(t *testing.T) {
	g := NewWithT(t)
	var out bytes.Buffer
	g.Expect(terminal.WriteJSON(&out, reportOf(nil))).To(Succeed())
	var fields map[string]any
	g.Expect(json.Unmarshal(out.Bytes(), &fields)).To(Succeed())
	for _, list := range []string{"believed_s", "term_numbers", "late"} {
		g.Expect(fields).To(HaveKeyWithValue(list, BeEmpty()), list)
	}
	g.Expect(fields).To(HaveKeyWithValue("ttl_s", 2.0))
	g.Expect(fields).To(HaveKeyWithValue("candidates", 3.0))
	g.Expect(fields).To(HaveKeyWithValue("overlap_s", 0.0))
	g.Expect(fields).To(HaveKeyWithValue("faults", HaveLen(failoverKinds)))
	for _, f := range fields["faults"].([]any) {
		g.Expect(f).To(And(HaveKeyWithValue("count", 0.0), HaveKeyWithValue("failover_s", BeEmpty())))
	}
}

func TestEachFailoverIsMeasuredFromItsFault(t *testing.T) {
	g := NewWithT(t)
	p := reportOf([]failover{
		{kind: firstElection, faultAt: 1 * time.Second, ledAt: 2500 * time.Millisecond},
		{kind: crash, faultAt: 10 * time.Second, ledAt: 13 * time.Second},
		{kind: eviction, faultAt: 20 * time.Second}, // no candidate led
	}, 700*time.Millisecond)
	g.Expect(p.Faults[firstElection].Failover).To(Equal([]float64{1.5}))
	g.Expect(p.Faults[crash].Failover).To(Equal([]float64{3}))
	g.Expect(p.Believed).To(Equal([]float64{0.7}))
	g.Expect(p.Faults[eviction]).To(Equal(Fault{Kind: "eviction", Count: 1, Failover: []float64{}, Bound: 7.5, Description: "eviction (key is deleted)"}))
}

func TestADrillPassesOnlyWithoutOverlapMissedFailoverOrTermsOutOfOrder(t *testing.T) {
	g := NewWithT(t)
	g.Expect((&Report{}).FailureReason()).To(BeEmpty())
	g.Expect((&Report{Result: Result{Overlap: RoundUp(time.Microsecond)}}).FailureReason()).To(ContainSubstring("1 ms"))
	g.Expect((&Report{Late: []lateInRound{{Late{Kind: firstElection.name(), Bound: 7.5}, 2}}}).FailureReason()).
		To(ContainSubstring("no candidate led within 7.5s in the first election of round 2"))
	g.Expect((&Report{termsOutOfOrder: "term 3 of k led after a term with a number at least as large"}).FailureReason()).To(ContainSubstring("term 3 of k"))
}

func TestTheTableShowsShortTimesInMilliseconds(t *testing.T) {
	g := NewWithT(t)
	p := reportOf([]failover{
		{kind: handover, faultAt: 0, ledAt: 3 * time.Millisecond}, {kind: handover, faultAt: 0, ledAt: 99 * time.Millisecond}, {kind: handover, faultAt: 0, ledAt: 100 * time.Millisecond},
	})
	var out bytes.Buffer
	g.Expect(p.Print(&out, terminal.Style{})).To(Succeed())
	g.Expect(out.String()).To(MatchRegexp(`handover .* 3 +3 ms +99 ms +0\.10 s +\d`))
	g.Expect(p.Faults[handover].Failover).To(Equal([]float64{0.003, 0.099, 0.1}), "JSON always has seconds")
}

func TestTheTableShowsTimesInSecondsAndAsPartOfTheTTL(t *testing.T) {
	g := NewWithT(t)
	p := reportOf([]failover{{kind: crash, faultAt: 0, ledAt: 3 * time.Second}, {kind: crash, faultAt: 0, ledAt: 5 * time.Second}})
	var out bytes.Buffer
	g.Expect(p.Print(&out, terminal.Style{})).To(Succeed())
	g.Expect(out.String()).To(MatchRegexp(`crash .* 2 +3\.00 s +4\.00 s +5\.00 s +7\.50 s +1\.50 / 2\.00 / 2\.50`))
	g.Expect(out.String()).To(MatchRegexp(`two candidates led at once for +0 ms`))
	g.Expect(out.String()).NotTo(ContainSubstring("\x1b"))

	out.Reset()
	g.Expect(p.Print(&out, terminal.Style{Colour: true})).To(Succeed())
	g.Expect(out.String()).To(ContainSubstring("\x1b[1;32m  0 ms"))
}

func TestAReportSaysWhenTheSamplingStoodStill(t *testing.T) {
	g := NewWithT(t)
	for gap, stood := range map[time.Duration]bool{200 * time.Millisecond: false, 2872 * time.Millisecond: true} {
		s := newSampler([]*fakeCandidate{always(false)})
		s.sample(1 * time.Millisecond)
		s.sample(1*time.Millisecond + gap)
		r := &Rehearsal{ttl: 2 * time.Second, fleet: &fleet{}, sampler: s, Report: &Report{Result: Result{TTL: 2, Candidates: 3, ServerVersion: "2.15.2"}, Rounds: 1}}
		r.Report.complete(r)
		g.Expect(r.Report.FailureReason()).To(BeEmpty())

		var text, drawing bytes.Buffer
		g.Expect(r.Report.Print(&text, terminal.Style{Colour: true})).To(Succeed())
		g.Expect(r.Draw(&drawing)).To(Succeed())
		texts := clitest.SVGTexts(g, drawing.Bytes())
		if !stood {
			g.Expect(text.String()).To(And(ContainSubstring("\x1b[1;32m  0 ms"), Not(ContainSubstring("no samples"))))
			g.Expect(texts).To(ContainElements("0 ms with two leaders", "1 round, nats-server 2.15.2, 2 samples"))
			continue
		}
		g.Expect(text.String()).To(And(ContainSubstring("\x1b[1;33m  0 ms"),
			ContainSubstring("no samples for 2.87s, because this host was busy or stood still: times may include that, and two leaders meanwhile would not have been seen")))
		g.Expect(texts).To(ContainElements("Election drill: 3 candidates, TTL 2s. 0 ms with two leaders, no samples for 2.87s", "0 ms with two leaders, no samples for 2.87s",
			"1 round, nats-server 2.15.2, 2 samples; times may include the gap"))
	}
}

func TestAReportFitsATerminalOf80Columns(t *testing.T) {
	g := NewWithT(t)
	p := reportOf([]failover{{kind: crash, faultAt: 0, ledAt: 3 * time.Second}, {kind: handover, faultAt: 0, ledAt: 5 * time.Second}}, 700*time.Millisecond)
	p.Candidates, p.Rounds, p.ServerVersion, p.DurationS, p.Samples, p.LongestGap = 100, 1000, "2.15.2-preview.1", 123456.78, 1234567890, timeutil.Seconds(12345*time.Millisecond)
	for width, ratios := range map[int]bool{80: false, 120: true} {
		var out bytes.Buffer
		g.Expect(p.Print(&out, terminal.Style{Width: width})).To(Succeed())
		for line := range strings.Lines(out.String()) {
			g.Expect(len(line)).To(BeNumerically("<=", width+1), out.String())
		}
		g.Expect(strings.Contains(out.String(), "1.50 / 1.50")).To(Equal(ratios), out.String())
		g.Expect(out.String()).To(MatchRegexp(`crash .* 1 +3\.00 s +3\.00 s +3\.00 s +7\.50 s`))
	}
}
