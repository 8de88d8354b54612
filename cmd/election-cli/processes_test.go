package main

import (
	"bytes"
	"context"
	"encoding/json"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/history"
)

func TestFlagsOfADrillOnProcessesAreChecked(t *testing.T) {
	for _, c := range []struct {
		args []string
		says []string
	}{
		{[]string{"--for", "1m"}, []string{"--for", "--processes"}},
		{[]string{"--seed", "1", "--keep"}, []string{"--seed", "--keep", "--processes"}},
		{[]string{"--processes", "--for", "3s"}, []string{"--for 3s", "10s to 24h"}},
		{[]string{"--processes", "--for", "30s", "--ttl", "10s"}, []string{"--for 30s", "4 times", "10s"}},
		{[]string{"--processes", "--every", "1ms"}, []string{"--every 1ms", "500ms"}},
		{[]string{"--processes", "--fault", "bogus"}, []string{"bogus"}},
		{[]string{"--processes", "--lose-replies", "101%"}, []string{"--lose-replies 101%", "50%"}},
		{[]string{"--processes", "--lose-replies", "NaN"}, []string{"--lose-replies NaN"}},
		{[]string{"--processes", "--stand-down=-1s"}, []string{"--stand-down -1s"}},
		{[]string{"--processes", "--ttl", "1ms"}, []string{"--ttl 1ms"}},
		{[]string{"--processes", "--candidates", "1"}, []string{"--candidates 1"}},
		{[]string{"--processes", "--fault", "rewind"}, []string{"--fault rewind", "--replicas 1"}},
		{[]string{"--processes", "--fault", "step-down", "--replicas", "1"}, []string{"--fault step-down", "--replicas 3"}},
		{[]string{"--processes", "--replicas", "5"}, []string{"--replicas 5"}},
		{[]string{"--processes", "--rounds", "2"}, []string{"--processes", "--rounds"}},
		{[]string{"--processes", "-s", "h:1"}, []string{"--processes", "--server"}},
	} {
		g := NewWithT(t)
		code, stdout, stderr := try(append([]string{"drill"}, c.args...)...)
		g.Expect(code).To(Equal(exitError), "%q", c.args)
		g.Expect(stdout).To(BeEmpty(), "%q", c.args)
		for _, text := range c.says {
			g.Expect(stderr).To(ContainSubstring(text), "%q", c.args)
		}
	}
}

func TestRatesAreReadAsPartOrPercent(t *testing.T) {
	g := NewWithT(t)
	for text, want := range map[string]float64{"0": 0, "0%": 0, "1%": 0.01, "0.01": 0.01, "2.5%": 0.025, "50%": 0.5} {
		g.Expect(parseRate(text)).To(BeNumerically("~", want, 1e-9), text)
	}
	for _, text := range []string{"", "%", "-1%", "51%", "x", "1%%", "NaN", "Inf"} {
		_, err := parseRate(text)
		g.Expect(err).To(HaveOccurred(), text)
	}
}

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
	d := &processDrill{ttl: 5 * time.Second, board: &board{leading: make([]believed, 5)}}
	d.board.leading[leader] = believed{term: 1}
	for i := range 5 {
		d.candidates = append(d.candidates, &candidateProcess{name: string(rune('a' + i)), index: i})
	}
	d.script = &script{random: rand.New(rand.NewPCG(seed, 0)), kinds: breakages[:6]} // those that look at no server
	for range 30 {
		b, _ := d.script.next(allLanes)
		i := d.script.plan(b, d)
		victim := i.candidate.name
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
	d := &processDrill{ttl: 5 * time.Second, board: &board{}, candidates: []*candidateProcess{{}}}
	s := &script{random: rand.New(rand.NewPCG(1, 0))}
	for range 100 {
		g.Expect(s.plan(breakages[0], d).hold).To(BeNumerically(">", d.ttl))
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
	g.Expect(denied).To(HaveKeyWithValue("$JS.API.STREAM.INFO.KV_"+processBucket, 2))
	g.Expect(denied).To(HaveEach(2), "by itself, and with all others")
}

func TestTheBoardShowsTheLatestTerm(t *testing.T) {
	g := NewWithT(t)
	var turns []uint64
	b := &board{leading: make([]believed, 2), turn: func(_ int, term uint64) { turns = append(turns, term) }}
	who, _ := b.leader()
	g.Expect(who).To(Equal(-1))
	b.note(0, history.Event{What: history.Believes, Term: 3, At: 1})
	b.note(1, history.Event{What: history.Believes, Term: 5, At: 2}) // 0 was stopped and cannot tell
	who, l := b.leader()
	g.Expect(who).To(Equal(1))
	g.Expect(l).To(Equal(believed{term: 5, since: 2}))
	b.note(1, history.Event{What: history.Doubts})
	b.note(0, history.Event{What: history.Stopped})
	who, _ = b.leader()
	g.Expect(who).To(Equal(-1))
	g.Expect(turns).To(Equal([]uint64{3, 5}))
}

func TestAnswersToRecordsAreTold(t *testing.T) {
	g := NewWithT(t)
	parse := func(data string) answer {
		return parseAnswer(&nats.Msg{Subject: "_INBOX.x.00ab-01.7", Data: []byte(data)}, "_INBOX.x")
	}
	g.Expect(parse(`{"stream":"S","seq":12}`)).To(Equal(answer{token: "00ab-01", number: 7, sequence: 12}))
	g.Expect(parse(`{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 4"}}`).err).To(MatchError(errRefused))
	g.Expect(parse(`{"error":{"code":400,"err_code":10164,"description":"wrong last sequence"}}`).err).To(MatchError(errRefused))
	g.Expect(parse(`{"error":{"code":503,"err_code":10077}}`).err).To(And(HaveOccurred(), Not(MatchError(errRefused))))
	g.Expect(parse("").err).To(HaveOccurred(), "nobody listens")
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
func sampleReport(change func(*history.Run)) *processReport {
	d := &processDrill{ttl: 5 * time.Second, processFlags: processFlags{standDown: 3750 * time.Millisecond}}
	span := history.Span{From: 10 * time.Second, To: 17 * time.Second}
	d.injuries = []*injury{{breakage: breakages[2], candidate: &candidateProcess{name: "x"}, led: true, span: span}}
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
	p := &processReport{TTL: 5, Candidates: 5, Servers: 3, Seed: 9, Changes: []changeResult{}, Late: []lateResult{}, Outages: []float64{}}
	f := run.Check()
	p.fill(run, f)
	p.kinds(d, f)
	return p
}

func TestAReportOnProcessesNamesEachFailoverAndItsBound(t *testing.T) {
	g := NewWithT(t)
	p := sampleReport(func(*history.Run) {})
	g.Expect(p.complaint()).To(BeEmpty())
	var out bytes.Buffer
	g.Expect(p.table(&out, style{})).To(Succeed())
	g.Expect(out.String()).To(MatchRegexp(`cut \(link is cut\) +1 +1 +8\.00 s +8\.00 s +10\.15 s +1\.60 / 1\.60`))
	g.Expect(out.String()).To(MatchRegexp(`two believed at once for +0 ms`))
	g.Expect(out.String()).NotTo(ContainSubstring("wrong"))
	g.Expect(p.Changes).To(Equal([]changeResult{{At: 14, From: "x", To: "y", Term: 2, Reason: "deadline", Cause: "cut"}}))
}

func TestADrillOnProcessesIsPassedOnlyWithoutViolation(t *testing.T) {
	g := NewWithT(t)
	overlap := sampleReport(func(r *history.Run) { r.Beliefs[0].To = 19 * time.Second })
	g.Expect(overlap.complaint()).To(ContainSubstring("two candidates believed at once for 1000 ms"))
	g.Expect(overlap.details[0].text).To(ContainSubstring("at 18.000 s x (term 1) and y (term 2)"))
	unneeded := sampleReport(func(r *history.Run) { r.Faults = nil })
	g.Expect(unneeded.complaint()).To(ContainSubstring("1 change of leader without need"))
	late := sampleReport(func(r *history.Run) { r.Beliefs[1].From = 21 * time.Second })
	g.Expect(late.complaint()).To(ContainSubstring("nobody led within 10.15s (cut)"))
	terms := sampleReport(func(r *history.Run) { r.Beliefs[1].Token = "0" })
	g.Expect(terms.complaint()).To(ContainSubstring("1 term out of order"))
	records := sampleReport(func(r *history.Run) {
		r.Records = []history.Record{{Sequence: 1, Token: "2"}, {Sequence: 2, Token: "1"}}
	})
	g.Expect(records.complaint()).To(ContainSubstring("1 record out of order"))
	var out bytes.Buffer
	g.Expect(records.table(&out, style{})).To(Succeed())
	g.Expect(out.String()).To(ContainSubstring("wrong  record 2 of the stream"))
}

func TestALeaderThatBelievesThoughALaterOneHasLedFailsTheDrill(t *testing.T) {
	g := NewWithT(t)
	p := sampleReport(func(r *history.Run) {
		r.Overtaken = []history.Overtaking{{Candidate: "x", Term: 1, Later: "2", At: 19 * time.Second}}
	})
	g.Expect(p.OverlapMS).To(BeZero(), "no two answers show it")
	g.Expect(p.complaint()).To(Equal("the drill was not passed: 1 belief in a term although a later one had been led"))
	var out bytes.Buffer
	g.Expect(p.table(&out, style{})).To(Succeed())
	g.Expect(out.String()).To(MatchRegexp(`(?m)^believed although a later one had led +1$`))
	g.Expect(out.String()).To(ContainSubstring("wrong  at 19.000 s x believed in term 1 although there was a record under 2"))
}

func TestADrillInWhichNobodyAppendedARecordIsNotPassed(t *testing.T) {
	g := NewWithT(t)
	p := sampleReport(func(r *history.Run) { r.Records = nil })
	g.Expect(p.complaint()).To(ContainSubstring("no record was stored in 2 terms"))
	p = sampleReport(func(r *history.Run) { r.Records, r.Beliefs = nil, nil })
	g.Expect(p.complaint()).NotTo(ContainSubstring("record"), "nobody led who could have")
}

func TestALeaderThatFindsARecordOfALaterTermSaysWhetherItBelievesStill(t *testing.T) {
	t.Parallel()
	a := newArena(t, quiet)
	_, err := a.s.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: processStream, Subjects: []string{processSubject}})
	a.Expect(err).NotTo(HaveOccurred())
	var past bytes.Buffer
	appends := &appender{session: a.s, config: &candidateConfig{Stream: processStream, Subject: processSubject}, history: history.NewWriter(&past)}
	e, err := election.NewElection("x", "jobs", a.bucket, election.WithSplay(0), election.WithStandDown(0))
	a.Expect(err).NotTo(HaveOccurred())
	go func() { _ = e.Start(context.Background()) }()
	defer shutDown(t, e)
	a.Eventually(e.IsLeader).WithTimeout(patience).Should(BeTrue())
	led, _ := e.Term()
	later := election.Term{BucketCreated: led.BucketCreated, Number: led.Number + 6}
	store := func(of election.Term) {
		_, err := a.s.js.PublishMsg(t.Context(), &nats.Msg{Subject: processSubject, Header: nats.Header{headerToken: {of.Token()}}})
		a.Expect(err).NotTo(HaveOccurred())
	}
	find := func() *position {
		at, err := appends.find(t.Context(), led, -1)
		a.Expect(err).NotTo(HaveOccurred())
		return at
	}
	store(led)
	a.Expect(find().fenced).To(BeFalse())
	a.Expect(past.String()).To(BeEmpty())
	store(later)
	a.Expect(find().fenced).To(BeTrue())
	c, err := history.Read(&past, "x", history.Now())
	a.Expect(err).NotTo(HaveOccurred())
	a.Expect(c.Overtaken).To(HaveLen(1))
	a.Expect(c.Overtaken[0].Term).To(Equal(led.Number))
	a.Expect(c.Overtaken[0].Later).To(Equal(later.Token()))
	shutDown(t, e)
	a.Expect(find().fenced).To(BeTrue())
	a.Expect(past.String()).To(BeEmpty(), "it no longer believes")
}

func TestAViolationIsToldWithWhatHappenedAround(t *testing.T) {
	g := NewWithT(t)
	d := &processDrill{ttl: 2 * time.Second}
	x := &candidateProcess{name: "x"}
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

func TestJSONOfADrillOnProcessesHasTheDocumentedFieldsAndNoNulls(t *testing.T) {
	g := NewWithT(t)
	var out bytes.Buffer
	g.Expect(writeJSON(&out, sampleReport(func(*history.Run) {}))).To(Succeed())
	g.Expect(out.String()).NotTo(ContainSubstring("null"))
	var fields map[string]any
	g.Expect(json.Unmarshal(out.Bytes(), &fields)).To(Succeed())
	documented := func(name string) { g.Expect(processHelp).To(ContainSubstring(`"` + name + `"`)) }
	for name, value := range fields {
		documented(name)
		if list, ok := value.([]any); ok && len(list) > 0 {
			if object, ok := list[0].(map[string]any); ok {
				for inner := range object {
					documented(inner)
				}
			}
		}
	}
}
