package chaos

import (
	"bytes"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/cli/terminal"
	"github.com/natscampaign/election/internal/drill"
	"github.com/natscampaign/election/internal/drill/history"
	"github.com/natscampaign/election/internal/drill/processes"
	"github.com/natscampaign/election/internal/drill/timeline"
	"github.com/natscampaign/election/internal/test/clitest"
)

func TestTheScriptChoosesEachKindOfFaultOncePerCycle(t *testing.T) {
	g := NewWithT(t)
	s := &script{random: rand.New(rand.NewPCG(1, 0)), kinds: faultKinds}
	for range 3 {
		seen := map[string]int{}
		for range faultKinds {
			k, ok := s.next(allLanes)
			g.Expect(ok).To(BeTrue())
			seen[k.name]++
		}
		g.Expect(seen).To(HaveLen(len(faultKinds)))
	}
}

func TestOnlyFaultsInFreeLanesAreChosen(t *testing.T) {
	g := NewWithT(t)
	s := &script{random: rand.New(rand.NewPCG(1, 0)), kinds: faultKinds}
	seen := map[string]int{}
	for range 12 {
		k, ok := s.next(laneServers)
		g.Expect(ok).To(BeTrue())
		seen[k.name]++
	}
	g.Expect(seen).To(Equal(map[string]int{"step-down": 3, "kill-server": 3, "restart-servers": 3, "lose-quorum": 3}))
	for range 10 { // the kinds whose lanes were occupied come next
		k, ok := s.next(allLanes)
		g.Expect(ok).To(BeTrue())
		g.Expect(k.lanes &^ laneServers).NotTo(BeZero())
	}
	s.kinds, s.remaining = s.kinds[:2], nil
	_, ok := s.next(laneServers)
	g.Expect(ok).To(BeFalse())
}

// planned returns the kinds, targets and durations of a script while the given candidate leads.
func planned(seed uint64, leader int) (all []string) {
	d := &Drill{Config: Config{TTL: 5 * time.Second}, leaders: &processes.Leaders{Reported: make([]map[string]processes.ReportedTerm, 5)}}
	d.leaders.Reported[leader] = map[string]processes.ReportedTerm{"": {Term: 1}}
	for i := range 5 {
		d.fleet = append(d.fleet, &processes.Candidate{Name: string(rune('a' + i)), Index: i})
	}
	d.script = &script{random: rand.New(rand.NewPCG(seed, 0)), kinds: faultKinds[:6]} // these kinds need no server
	for range 30 {
		k, _ := d.script.next(allLanes)
		f := d.script.plan(k, d)
		target := f.candidate.Name
		if f.hitsLeader {
			target = "leader"
		}
		all = append(all, k.name+" "+target+" "+f.duration.String())
	}
	return all
}

func TestASeedDeterminesTheWholeScript(t *testing.T) {
	g := NewWithT(t)
	g.Expect(planned(1, 2)).To(Equal(planned(1, 2)))
	g.Expect(planned(1, 2)).NotTo(Equal(planned(2, 2)))
	g.Expect(planned(1, 2)).To(ContainElement(ContainSubstring("leader")))
	g.Expect(planned(1, 2)).To(ContainElement(Not(ContainSubstring("leader"))))
}

func TestAFaultThatLastsIsLongerThanTheTTL(t *testing.T) {
	g := NewWithT(t)
	d := &Drill{Config: Config{TTL: 5 * time.Second}, leaders: &processes.Leaders{}, fleet: []*processes.Candidate{{}}}
	s := &script{random: rand.New(rand.NewPCG(1, 0))}
	for range 100 {
		g.Expect(s.plan(faultKinds[0], d).duration).To(BeNumerically(">", d.TTL))
	}
}

// TestAFaultOnTheStreamsLeaderHitsNoOtherServerIfThatIsNotKnown asks a server that does not have the stream.
func TestAFaultOnTheStreamsLeaderHitsNoOtherServerIfThatIsNotKnown(t *testing.T) {
	g := NewWithT(t)
	_, client := clitest.ServerWithoutBucket(t)
	x := &processes.Candidate{Name: "x", Index: 0}
	d := &Drill{
		Config: Config{TTL: 5 * time.Second, Candidates: 1, Progress: io.Discard}, lifetime: t.Context(), js: client.JetStream,
		leaders: &processes.Leaders{Reported: []map[string]processes.ReportedTerm{{"": {Term: 1}}}}, fleet: []*processes.Candidate{x}, ended: time.Minute,
	}
	s := &script{random: rand.New(rand.NewPCG(1, 0))}
	for _, k := range faultKinds {
		f := s.plan(k, d)
		drawn := &timeline.Timeline{}
		d.addMark(drawn, f, &history.Findings{})
		g.Expect(drawn.Marks).To(HaveLen(1))
		switch k.name {
		case "step-down":
			g.Expect(f.target()).To(Equal("the stream's leader"))
		case "forge":
			g.Expect(f.target()).To(Equal("notifications"))
		case "kill-server":
			g.Expect(f.servers).To(HaveLen(1), "any server will do")
		case Rewind:
			g.Expect(f.inject(t.Context(), d, f)).To(Succeed())
			g.Expect(f.skipped).To(BeTrue())
		}
	}
}

func TestTheTimelineShowsHowLongAFaultLastsUnlessARowShowsThat(t *testing.T) {
	g := NewWithT(t)
	d := &Drill{Config: Config{Candidates: 1}, ended: time.Minute}
	for _, k := range faultKinds {
		f := &fault{faultKind: k, servers: []int{2}, span: history.Span{From: time.Second, To: 2 * time.Second}}
		if k.lanes&laneCandidates != 0 {
			f.candidate, f.servers = &processes.Candidate{}, nil
		}
		drawn := &timeline.Timeline{}
		d.addMark(drawn, f, &history.Findings{})
		lasts := slices.Contains([]string{"stop", "cut", "one-way", "delay", "revoke", "forge"}, k.name)
		g.Expect(drawn.Cuts).To(HaveLen(map[bool]int{true: 1}[lasts]), k.name)
	}
}

func TestARevokeDeniesEachPermissionInTurnAndNeverTheWrite(t *testing.T) {
	g := NewWithT(t)
	denied := map[string]int{}
	for variant := range len(revocations) + 1 {
		denials := revocationFor(variant).denials
		for _, subject := range slices.Concat(denials.Publish.Deny, denials.Subscribe.Deny) {
			denied[subject]++
		}
		g.Expect(denials.Publish.Deny).NotTo(ContainElement(HavePrefix("$KV.")))
		g.Expect(denials.Publish.Allow).To(BeEmpty())
		g.Expect(denials.Subscribe.Allow).To(BeEmpty())
	}
	g.Expect(denied).To(HaveKeyWithValue("$JS.API.STREAM.INFO.KV_"+processes.Bucket, 2))
	g.Expect(denied).To(HaveEach(2), "alone, and together with all others")
}

func TestAnOutageLastsFromOneSuccessfulProbeToTheNext(t *testing.T) {
	g := NewWithT(t)
	p := &probe{last: 0, done: make(chan struct{})}
	close(p.done)
	for _, ms := range []int{100, 200, 310, 1500, 1600, 1949, 2350} {
		p.recordSuccess(time.Duration(ms) * time.Millisecond)
	}
	g.Expect(p.awaitOutages()).To(Equal([]history.Span{
		{From: 310 * time.Millisecond, To: 1500 * time.Millisecond}, {From: 1949 * time.Millisecond, To: 2350 * time.Millisecond},
	}))
}

// sampleReport returns the report of a drill in which the link of a leader was cut, after a change of its run.
func sampleReport(change func(*history.Run)) *Report {
	d := &Drill{Config: Config{TTL: 5 * time.Second, StandDown: 3750 * time.Millisecond}}
	span := history.Span{From: 10 * time.Second, To: 17 * time.Second}
	d.injected = []*fault{{faultKind: faultKinds[2], candidate: &processes.Candidate{Name: "x"}, hitsLeader: true, span: span}}
	run := &history.Run{
		Timing: d.timing(), To: 30 * time.Second,
		Beliefs: []history.Belief{
			{Candidate: "x", Term: 1, Token: "1", From: 4 * time.Second, To: 14 * time.Second, Deadline: 14 * time.Second, Reason: "deadline"},
			{Candidate: "y", Term: 2, Token: "2", From: 18 * time.Second, To: 30 * time.Second, Deadline: 30 * time.Second},
		},
		Records: []history.Record{{Sequence: 1, Token: "1"}, {Sequence: 2, Token: "2"}},
		Faults:  []history.Fault{d.injected[0].historyFault()},
	}
	change(run)
	p := &Report{Result: drill.Result{TTL: 5, Candidates: 5, Faults: []drill.Fault{}}, Servers: 3, Seed: 9, Late: []lateResult{}, Changes: []changeResult{}, Outages: []float64{}}
	found := run.Check()
	p.addFindings(run, found)
	p.addFaultResults(d, found.Gaps)
	return p
}

func TestAReportShowsEachFailoverAndItsBound(t *testing.T) {
	g := NewWithT(t)
	p := sampleReport(func(*history.Run) {})
	g.Expect(p.FailureReason()).To(BeEmpty())
	var out bytes.Buffer
	g.Expect(p.Print(&out, terminal.Style{})).To(Succeed())
	g.Expect(out.String()).To(MatchRegexp(`cut \(link is cut\) +1 +1 +8\.00 s +8\.00 s +10\.15 s +1\.60 / 1\.60`))
	g.Expect(out.String()).To(MatchRegexp(`two candidates led at once for +0 ms`))
	g.Expect(out.String()).NotTo(ContainSubstring("wrong"))
	g.Expect(p.Changes).To(Equal([]changeResult{{At: 14, From: "x", To: "y", Term: 2, Reason: "deadline", Cause: "cut"}}))
}

func TestAReportFitsATerminalOf80Columns(t *testing.T) {
	g := NewWithT(t)
	p := sampleReport(func(*history.Run) {})
	p.Samples, p.Records, p.ServerVersion = 1234567890, 1234567, "2.15.2-preview.1"
	for width, all := range map[int]bool{80: false, 130: true} {
		var out bytes.Buffer
		g.Expect(p.Print(&out, terminal.Style{Width: width})).To(Succeed())
		for line := range strings.Lines(out.String()) {
			g.Expect(len(line)).To(BeNumerically("<=", width+1), out.String())
		}
		g.Expect(out.String()).To(MatchRegexp(`(?m)^cut .* 1 +1 +8\.00 s +8\.00 s +10\.15 s`))
		g.Expect(strings.Contains(out.String(), "(link is cut)")).To(Equal(all), out.String())
		g.Expect(strings.Contains(out.String(), "1.60 / 1.60")).To(Equal(all), out.String())
	}
}

func TestADrillPassesOnlyWithoutViolations(t *testing.T) {
	g := NewWithT(t)
	overlap := sampleReport(func(r *history.Run) { r.Beliefs[0].To = 19 * time.Second })
	g.Expect(overlap.FailureReason()).To(ContainSubstring("two candidates led at once for 1000 ms"))
	g.Expect(overlap.violations[0].text).To(ContainSubstring("at 18.000 s x (term 1) and y (term 2)"))
	unneeded := sampleReport(func(r *history.Run) { r.Faults = nil })
	g.Expect(unneeded.FailureReason()).To(ContainSubstring("1 unneeded change of leader"))
	late := sampleReport(func(r *history.Run) { r.Beliefs[1].From = 21 * time.Second })
	g.Expect(late.FailureReason()).To(ContainSubstring("no candidate led within 10.15s (cut)"))
	terms := sampleReport(func(r *history.Run) { r.Beliefs[1].Token = "0" })
	g.Expect(terms.FailureReason()).To(ContainSubstring("1 term out of order"))
	records := sampleReport(func(r *history.Run) {
		r.Records = []history.Record{{Sequence: 1, Token: "2"}, {Sequence: 2, Token: "1"}}
	})
	g.Expect(records.FailureReason()).To(ContainSubstring("1 record out of order"))
	var out bytes.Buffer
	g.Expect(records.Print(&out, terminal.Style{})).To(Succeed())
	g.Expect(out.String()).To(ContainSubstring("wrong  record 2 of the stream"))
}

func TestADrillFailsIfACandidateConsidersItselfLeaderAfterALaterTerm(t *testing.T) {
	g := NewWithT(t)
	p := sampleReport(func(r *history.Run) {
		r.Overtaken = []history.Overtaking{{Candidate: "x", Term: 1, Later: "2", At: 19 * time.Second}}
	})
	g.Expect(p.Overlap).To(BeZero(), "the samples show no overlap")
	g.Expect(p.FailureReason()).To(Equal("the drill failed: 1 time a candidate considered itself leader although the stream had a record of a later term"))
	var out bytes.Buffer
	g.Expect(p.Print(&out, terminal.Style{})).To(Succeed())
	g.Expect(out.String()).To(MatchRegexp(`(?m)^led after a record of a later term +1$`))
	g.Expect(out.String()).To(ContainSubstring("wrong  at 19.000 s x considered itself leader in term 1 although the stream had a record with token 2"))
}

func TestADrillFailsIfNoLeaderAppendedARecord(t *testing.T) {
	g := NewWithT(t)
	p := sampleReport(func(r *history.Run) { r.Records = nil })
	g.Expect(p.FailureReason()).To(ContainSubstring("no record was stored in 2 terms"))
	p = sampleReport(func(r *history.Run) { r.Records, r.Beliefs = nil, nil })
	g.Expect(p.FailureReason()).NotTo(ContainSubstring("record"), "there was no leader to append one")
}

func TestAReportListsTheEventsNearAViolation(t *testing.T) {
	g := NewWithT(t)
	d := &Drill{Config: Config{TTL: 2 * time.Second}}
	x := &processes.Candidate{Name: "x"}
	d.injected = []*fault{
		{faultKind: faultKinds[2], candidate: x, hitsLeader: true, detail: "messages are lost", span: history.Span{From: 10 * time.Second, To: 13 * time.Second}},
		{faultKind: faultKinds[0], candidate: x, span: history.Span{From: 40 * time.Second, To: 41 * time.Second}},
	}
	run := &history.Run{
		Beliefs: []history.Belief{{Candidate: "x", Term: 7, From: time.Second, To: 12 * time.Second, Deadline: 12 * time.Second, Reason: "deadline"}},
		Outages: []history.Span{{From: 14 * time.Second, To: 14500 * time.Millisecond}},
	}
	g.Expect(d.eventsNear(run, 13*time.Second)).To(Equal([]string{
		"  10.000 s  cut of x (leader): messages are lost",
		"  12.000 s  x no longer considers itself leader in term 7 (deadline); the deadline of the term is 12.000 s",
		"  13.000 s  cut of x (leader): over",
		"  14.000 s  the bucket takes no writes",
		"  14.500 s  the bucket takes writes again",
	}))
}

func TestTheJSONReportHasNoNulls(t *testing.T) {
	g := NewWithT(t)
	var out bytes.Buffer
	g.Expect(terminal.WriteJSON(&out, sampleReport(func(*history.Run) {}))).To(Succeed())
	g.Expect(out.String()).NotTo(ContainSubstring("null"))
}

func TestFaultOnOneKeyExcusesNoChangeOfAnother(t *testing.T) {
	g := NewWithT(t)
	x, y := &processes.Candidate{Name: "x"}, &processes.Candidate{Name: "y"}
	d := &Drill{Config: Config{Sessions: 2, TTL: 5 * time.Second}, fleet: []*processes.Candidate{x, y}}
	d.injected = []*fault{{faultKind: faultKind{name: "transfer", endsTerm: true}, candidate: x, key: "drill-01"}, {faultKind: handover, candidate: y}}
	g.Expect(d.historyFaults("drill-01")).To(HaveExactElements(HaveField("Kind", "transfer"), HaveField("Kind", "handover")))
	g.Expect(d.historyFaults("drill-02")).To(HaveExactElements(And(HaveField("Kind", "handover"), HaveField("Releases", true))))
	d.injected[1].span.From, d.injected[0].span.To = 14*time.Second, 5*time.Second
	g.Expect(d.historyFaults("drill-02")).To(HaveExactElements(HaveField("Releases", false)), "a session may have to wait after the transfer")
	d.injected = []*fault{{faultKind: faultKind{name: Rewind}, candidate: y}}
	g.Expect(d.historyFaults("drill-02")).To(ConsistOf(HaveField("Candidate", "x"), HaveField("Candidate", "y")), "it ends all sessions")
}

func TestEachKeyOfSessionsIsJudgedByItsOwnHistoryAndRecords(t *testing.T) {
	g := NewWithT(t)
	d := &Drill{Config: Config{Sessions: 2, TTL: 5 * time.Second}}
	d.injected = []*fault{{faultKind: faultKind{name: "kill-server", lanes: laneServers}, servers: []int{1}, span: history.Span{From: 1, To: 2}}}
	run := d.runOf("drill-02", []*history.Candidate{
		{Name: "x", Beliefs: []history.Belief{{Term: 1}}, Works: []history.Belief{{Term: 1}}}, {Name: "y", Beliefs: []history.Belief{{Term: 2}}},
	}, nil, []history.Record{{Key: "drill-01", Sequence: 1}, {Key: "drill-02", Sequence: 2}})
	g.Expect(run.Beliefs).To(HaveLen(2))
	g.Expect(run.Works).To(HaveLen(1))
	g.Expect(run.Records).To(HaveExactElements(HaveField("Sequence", uint64(2))))
	g.Expect(run.Repairs).To(HaveExactElements(history.Span{From: 1, To: 2}))
}
