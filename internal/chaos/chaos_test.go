package chaos

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/history"
	"github.com/natscampaign/election/internal/processes"
	"github.com/natscampaign/election/internal/terminal"
)

func TestEachKindOfFaultHasItsTurnInEachCycle(t *testing.T) {
	g := NewWithT(t)
	s := &script{random: rand.New(rand.NewPCG(1, 0)), kinds: breakages}
	for range 3 {
		seen := map[string]int{}
		for range breakages {
			b, ok := s.next(allLanes)
			g.Expect(ok).To(BeTrue())
			seen[b.name]++
		}
		g.Expect(seen).To(HaveLen(len(breakages)))
	}
}

func TestOnlyFaultsInFreeLanesAreChosen(t *testing.T) {
	g := NewWithT(t)
	s := &script{random: rand.New(rand.NewPCG(1, 0)), kinds: breakages}
	seen := map[string]int{}
	for range 12 {
		b, ok := s.next(laneServers)
		g.Expect(ok).To(BeTrue())
		seen[b.name]++
	}
	g.Expect(seen).To(Equal(map[string]int{"step-down": 3, "kill-server": 3, "restart-servers": 3, "lose-quorum": 3}))
	for range 10 { // those that had to wait have their turns next
		b, ok := s.next(allLanes)
		g.Expect(ok).To(BeTrue())
		g.Expect(b.lanes &^ laneServers).NotTo(BeZero())
	}
	s.kinds, s.bag = s.kinds[:2], nil
	_, ok := s.next(laneServers)
	g.Expect(ok).To(BeFalse())
}

// planned returns the kinds, victims and times of a script while candidate leader leads.
func planned(seed uint64, leader int) (all []string) {
	d := &Drill{Config: Config{TTL: 5 * time.Second}, board: &processes.Board{Leading: make([]processes.Believed, 5)}}
	d.board.Leading[leader] = processes.Believed{Term: 1}
	for i := range 5 {
		d.fleet = append(d.fleet, &processes.Candidate{Name: string(rune('a' + i)), Index: i})
	}
	d.script = &script{random: rand.New(rand.NewPCG(seed, 0)), kinds: breakages[:6]} // those that look at no server
	for range 30 {
		b, _ := d.script.next(allLanes)
		i := d.script.plan(b, d)
		victim := i.candidate.Name
		if i.led {
			victim = "leader"
		}
		all = append(all, b.name+" "+victim+" "+i.hold.String())
	}
	return all
}

func TestASeedTellsTheWholeScript(t *testing.T) {
	g := NewWithT(t)
	g.Expect(planned(1, 2)).To(Equal(planned(1, 2)))
	g.Expect(planned(1, 2)).NotTo(Equal(planned(2, 2)))
	g.Expect(planned(1, 2)).To(ContainElement(ContainSubstring("leader")))
	g.Expect(planned(1, 2)).To(ContainElement(Not(ContainSubstring("leader"))))
}

func TestFaultsThatLastOutlastTheTTL(t *testing.T) {
	g := NewWithT(t)
	d := &Drill{Config: Config{TTL: 5 * time.Second}, board: &processes.Board{}, fleet: []*processes.Candidate{{}}}
	s := &script{random: rand.New(rand.NewPCG(1, 0))}
	for range 100 {
		g.Expect(s.plan(breakages[0], d).hold).To(BeNumerically(">", d.TTL))
	}
}

func TestRevokesTakeEachRightInTurnAndNeverThatToWrite(t *testing.T) {
	g := NewWithT(t)
	denied := map[string]int{}
	for variant := range len(rights) + 1 {
		taken := takenBy(variant).taken
		for _, subject := range slices.Concat(taken.Publish.Deny, taken.Subscribe.Deny) {
			denied[subject]++
		}
		g.Expect(taken.Publish.Deny).NotTo(ContainElement(HavePrefix("$KV.")))
		g.Expect(taken.Publish.Allow).To(BeEmpty())
		g.Expect(taken.Subscribe.Allow).To(BeEmpty())
	}
	g.Expect(denied).To(HaveKeyWithValue("$JS.API.STREAM.INFO.KV_"+processes.Bucket, 2))
	g.Expect(denied).To(HaveEach(2), "by itself, and with all others")
}

func TestOutagesAreTimesBetweenProbesThatSucceeded(t *testing.T) {
	g := NewWithT(t)
	p := &probe{last: 0, done: make(chan struct{})}
	close(p.done)
	for _, ms := range []int{100, 200, 310, 1500, 1600, 1949, 2350} {
		p.succeeded(time.Duration(ms) * time.Millisecond)
	}
	g.Expect(p.found()).To(Equal([]history.Span{
		{From: 310 * time.Millisecond, To: 1500 * time.Millisecond}, {From: 1949 * time.Millisecond, To: 2350 * time.Millisecond},
	}))
}

// sampleReport is the report of a drill in which a leader was cut off, with what else is done to the run.
func sampleReport(change func(*history.Run)) *Report {
	d := &Drill{Config: Config{TTL: 5 * time.Second, StandDown: 3750 * time.Millisecond}}
	span := history.Span{From: 10 * time.Second, To: 17 * time.Second}
	d.injuries = []*injury{{breakage: breakages[2], candidate: &processes.Candidate{Name: "x"}, led: true, span: span}}
	run := &history.Run{
		Timing: d.timing(), To: 30 * time.Second,
		Beliefs: []history.Belief{
			{Candidate: "x", Term: 1, Token: "1", From: 4 * time.Second, To: 14 * time.Second, Deadline: 14 * time.Second, Reason: "deadline"},
			{Candidate: "y", Term: 2, Token: "2", From: 18 * time.Second, To: 30 * time.Second, Deadline: 30 * time.Second},
		},
		Records: []history.Record{{Sequence: 1, Token: "1"}, {Sequence: 2, Token: "2"}},
		Faults:  []history.Fault{d.injuries[0].fault()},
	}
	change(run)
	p := &Report{TTL: 5, Candidates: 5, Servers: 3, Seed: 9, Changes: []changeResult{}, Late: []lateResult{}, Outages: []float64{}}
	f := run.Check()
	p.fill(run, f)
	p.kinds(d, f)
	return p
}

func TestAReportOnProcessesNamesEachFailoverAndItsBound(t *testing.T) {
	g := NewWithT(t)
	p := sampleReport(func(*history.Run) {})
	g.Expect(p.Complaint()).To(BeEmpty())
	var out bytes.Buffer
	g.Expect(p.Print(&out, terminal.Style{})).To(Succeed())
	g.Expect(out.String()).To(MatchRegexp(`cut \(link is cut\) +1 +1 +8\.00 s +8\.00 s +10\.15 s +1\.60 / 1\.60`))
	g.Expect(out.String()).To(MatchRegexp(`two believed at once for +0 ms`))
	g.Expect(out.String()).NotTo(ContainSubstring("wrong"))
	g.Expect(p.Changes).To(Equal([]changeResult{{At: 14, From: "x", To: "y", Term: 2, Reason: "deadline", Cause: "cut"}}))
}

func TestADrillOnProcessesIsPassedOnlyWithoutViolation(t *testing.T) {
	g := NewWithT(t)
	overlap := sampleReport(func(r *history.Run) { r.Beliefs[0].To = 19 * time.Second })
	g.Expect(overlap.Complaint()).To(ContainSubstring("two candidates believed at once for 1000 ms"))
	g.Expect(overlap.details[0].text).To(ContainSubstring("at 18.000 s x (term 1) and y (term 2)"))
	unneeded := sampleReport(func(r *history.Run) { r.Faults = nil })
	g.Expect(unneeded.Complaint()).To(ContainSubstring("1 change of leader without need"))
	late := sampleReport(func(r *history.Run) { r.Beliefs[1].From = 21 * time.Second })
	g.Expect(late.Complaint()).To(ContainSubstring("nobody led within 10.15s (cut)"))
	terms := sampleReport(func(r *history.Run) { r.Beliefs[1].Token = "0" })
	g.Expect(terms.Complaint()).To(ContainSubstring("1 term out of order"))
	records := sampleReport(func(r *history.Run) {
		r.Records = []history.Record{{Sequence: 1, Token: "2"}, {Sequence: 2, Token: "1"}}
	})
	g.Expect(records.Complaint()).To(ContainSubstring("1 record out of order"))
	var out bytes.Buffer
	g.Expect(records.Print(&out, terminal.Style{})).To(Succeed())
	g.Expect(out.String()).To(ContainSubstring("wrong  record 2 of the stream"))
}

func TestALeaderThatBelievesThoughALaterOneHasLedFailsTheDrill(t *testing.T) {
	g := NewWithT(t)
	p := sampleReport(func(r *history.Run) {
		r.Overtaken = []history.Overtaking{{Candidate: "x", Term: 1, Later: "2", At: 19 * time.Second}}
	})
	g.Expect(p.OverlapMS).To(BeZero(), "no two answers show it")
	g.Expect(p.Complaint()).To(Equal("the drill was not passed: 1 belief in a term although a later one had been led"))
	var out bytes.Buffer
	g.Expect(p.Print(&out, terminal.Style{})).To(Succeed())
	g.Expect(out.String()).To(MatchRegexp(`(?m)^believed although a later one had led +1$`))
	g.Expect(out.String()).To(ContainSubstring("wrong  at 19.000 s x believed in term 1 although there was a record under 2"))
}

func TestADrillInWhichNobodyAppendedARecordIsNotPassed(t *testing.T) {
	g := NewWithT(t)
	p := sampleReport(func(r *history.Run) { r.Records = nil })
	g.Expect(p.Complaint()).To(ContainSubstring("no record was stored in 2 terms"))
	p = sampleReport(func(r *history.Run) { r.Records, r.Beliefs = nil, nil })
	g.Expect(p.Complaint()).NotTo(ContainSubstring("record"), "nobody led who could have")
}

func TestAViolationIsToldWithWhatHappenedAround(t *testing.T) {
	g := NewWithT(t)
	d := &Drill{Config: Config{TTL: 2 * time.Second}}
	x := &processes.Candidate{Name: "x"}
	d.injuries = []*injury{
		{breakage: breakages[2], candidate: x, led: true, note: "what is sent is lost", span: history.Span{From: 10 * time.Second, To: 13 * time.Second}},
		{breakage: breakages[0], candidate: x, span: history.Span{From: 40 * time.Second, To: 41 * time.Second}},
	}
	run := &history.Run{
		Beliefs: []history.Belief{{Candidate: "x", Term: 7, From: time.Second, To: 12 * time.Second, Deadline: 12 * time.Second, Reason: "deadline"}},
		Outages: []history.Span{{From: 14 * time.Second, To: 14500 * time.Millisecond}},
	}
	g.Expect(d.around(run, 13*time.Second)).To(Equal([]string{
		"  10.000 s  cut of x, which led: what is sent is lost",
		"  12.000 s  x no longer believes in term 7 (deadline), of which the deadline is at 12.000 s",
		"  13.000 s  cut of x, which led: over",
		"  14.000 s  the bucket takes no writes",
		"  14.500 s  the bucket takes writes again",
	}))
}

func TestJSONOfADrillOnProcessesHasNoNulls(t *testing.T) {
	g := NewWithT(t)
	var out bytes.Buffer
	g.Expect(terminal.WriteJSON(&out, sampleReport(func(*history.Run) {}))).To(Succeed())
	g.Expect(out.String()).NotTo(ContainSubstring("null"))
}
