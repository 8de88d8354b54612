package events

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/cli/terminal"
	"github.com/natscampaign/election/internal/test/clitest"
)

// newLogger returns a logger with a Handler. The Handler writes events to one buffer and all other records to the other.
func newLogger(asJSON bool) (log *slog.Logger, events, rest *bytes.Buffer) {
	events, rest = &bytes.Buffer{}, &bytes.Buffer{}
	w := &Writer{
		Out: events, JSON: asJSON,
		Common: Event{Election: "jobs", Name: "web-1", Bucket: "B", TTLS: 5, Server: "nats://h:1"},
		term:   func() (election.Term, bool) { return election.Term{Number: 7, BucketCreated: time.Unix(1, 0)}, true },
	}
	return slog.New(&Handler{Next: terminal.NewLogHandler(rest, terminal.Style{}, slog.LevelInfo), Take: w.Take}), events, rest
}

// logState logs a change of state as the library does.
func logState(log *slog.Logger, to election.State, reason string, more ...any) {
	log.Info(messageStateChanged, append([]any{"state", to, "reason", reason}, more...)...)
}

// logTerm logs one term of a candidate, from its start to its end.
func logTerm(log *slog.Logger) {
	logState(log, election.CandidateState, "started")
	log.Info(messageLeaderSeen, "leader", "web-2", "state", election.LeaderElectState, "leads-within", 4*time.Second)
	log.Info(messageLeaderSeen, "leader", "web-2", "term", uint64(3))
	logState(log, election.LeaderElectState, "vacant", "term", uint64(7), "stand-down", 5*time.Second, "because", "why")
	logState(log, election.LeaderState, "stood-down", "term", uint64(7))
	logState(log, election.CandidateState, "stopped", "term", uint64(7))
	log.Info(messageKeyReleased, "term", uint64(7))
	logState(log, election.UnknownState, "stopped")
}

func TestEachEventIsOneJSONObjectOnALine(t *testing.T) {
	g := NewWithT(t)
	log, events, rest := newLogger(true)
	logTerm(log)
	var names []string
	for line := range strings.Lines(events.String()) {
		var e map[string]any
		g.Expect(json.Unmarshal([]byte(line), &e)).To(Succeed())
		g.Expect(e).To(And(HaveKeyWithValue("election", "jobs"), HaveKeyWithValue("name", "web-1"), HaveKey("time"), HaveKey("state")))
		names = append(names, e["event"].(string))
		switch e["event"] {
		case Started:
			g.Expect(e).To(And(HaveKeyWithValue("bucket", "B"), HaveKeyWithValue("ttl_s", 5.0), HaveKeyWithValue("server", "nats://h:1")))
		case Following:
			g.Expect(e).To(And(HaveKeyWithValue("leader", "web-2"), HaveKeyWithValue("state", "candidate")))
			if len(names) == 2 { // a leader-elect, which has no term yet
				g.Expect(e).To(And(HaveKeyWithValue("leads_in_s", 4.0), Not(HaveKey("term"))))
			} else {
				g.Expect(e).To(And(HaveKeyWithValue("term", 3.0), Not(HaveKey("leads_in_s"))))
			}
		case Elected:
			g.Expect(e).To(And(HaveKeyWithValue("term", 7.0), HaveKeyWithValue("leads_in_s", 5.0)))
		case Leading:
			g.Expect(e).NotTo(HaveKey("leads_in_s"))
			g.Expect(e).To(And(HaveKeyWithValue("term", 7.0), HaveKeyWithValue("token", "000000003b9aca00-0000000000000007"), HaveKeyWithValue("state", "leader")))
		case Lost:
			g.Expect(e).To(And(HaveKeyWithValue("reason", "stopped"), HaveKey("led_s")))
		}
	}
	g.Expect(names).To(Equal([]string{"started", "following", "following", "elected", "leading", "lost", "released", "stopped"}))
	g.Expect(rest.String()).To(BeEmpty())
}

func TestEventsAreSentencesWithoutJSON(t *testing.T) {
	g := NewWithT(t)
	log, events, _ := newLogger(false)
	logTerm(log)
	for _, sentence := range []string{
		`"web-1" campaigns for "jobs" in bucket "B" (TTL 5s) on nats://h:1`,
		`"web-2" holds "jobs", and leads within 4s unless it loses the key before`,
		`"web-2" leads "jobs", term 3 (a revision: later are larger)`,
		`"web-1" won the key (vacant), term 7, and leads in 5s unless it loses the key before: why`,
		`"web-1" leads "jobs", term 7, token 000000003b9aca00-0000000000000007`,
		`"web-1" no longer leads (stopped), after`,
		`"web-1" released "jobs"`,
		`"web-1" left the election`,
	} {
		g.Expect(events.String()).To(ContainSubstring(sentence))
	}
	g.Expect(events.String()).NotTo(ContainSubstring("\x1b"))
	g.Expect(strings.Count(events.String(), "a revision")).To(Equal(1), "said once")
}

func TestATermIsExplainedOnlyWhereItsNumberIsWritten(t *testing.T) {
	g := NewWithT(t)
	var out bytes.Buffer
	w := &Writer{Out: &out}
	g.Expect(w.write(Event{Event: Lost, Term: 6, Reason: "stopped"})).To(Succeed())
	g.Expect(out.String()).NotTo(ContainSubstring("a revision"))
	g.Expect(w.write(Event{Event: Leading, Term: 7})).To(Succeed())
	g.Expect(out.String()).To(HaveSuffix("term 7 (a revision: later are larger)\n"))
	g.Expect(sentence(Event{Event: Started})).To(ContainSubstring("(no TTL)"))
}

func TestSentenceOfAWinSaysWhenItLeadsAndWhyNotAtOnceOnlyWhereThereIsAStandDown(t *testing.T) {
	g := NewWithT(t)
	log, events, _ := newLogger(false)
	const wait = ", and leads in 5s unless it loses the key before: why\n"
	for _, c := range []struct {
		reason    string
		standDown time.Duration
		want      string
	}{
		{"released", 0, `"web-1" took over the released key, term 7 (a revision: later are larger)` + "\n"},
		{"lapsed", 0, `"web-1" won the key (lapsed), term 7` + "\n"},
		{"lapsed", 5 * time.Second, `"web-1" won the key (lapsed), term 7` + wait},
		{"released", 5 * time.Second, `"web-1" took over the released key, term 7` + wait}, // by a leader-elect, or by one of which nothing is proven
	} {
		events.Reset()
		logState(log, election.LeaderElectState, c.reason, "term", uint64(7), "stand-down", c.standDown, "because", "why")
		g.Expect(events.String()).To(HaveSuffix(c.want))
	}
}

func TestLosingTheKeyBeforeLeadershipCountsHasItsOwnSentence(t *testing.T) {
	g := NewWithT(t)
	log, events, _ := newLogger(false)
	logState(log, election.CandidateState, "started")
	logState(log, election.LeaderElectState, "vacant", "term", uint64(7))
	logState(log, election.CandidateState, "deadline", "term", uint64(7))
	g.Expect(events.String()).To(ContainSubstring("gave up the key before it led (deadline)"))
}

func TestRecordsThatAreNotEventsGoToTheLog(t *testing.T) {
	g := NewWithT(t)
	log, events, rest := newLogger(false)
	log.With("election", "jobs").WithGroup("g").Warn("Renewal failed", "error", errors.New("two words"))
	log.Debug("Campaign lost")
	g.Expect(events.String()).To(BeEmpty())
	g.Expect(rest.String()).To(MatchRegexp(`^\d\d:\d\d:\d\d\.\d{3}  WARN   Renewal failed  election=jobs  g\.error="two words"\n$`))
}

func TestUntrustedTextIsPrintable(t *testing.T) {
	g := NewWithT(t)
	const hostile = "evil\x1b[2J\nname"
	log, events, rest := newLogger(false)
	logState(log, election.CandidateState, "started")
	log.Info(messageLeaderSeen, "leader", hostile, "term", uint64(3))
	log.Info(messageLeaderSeen, "leader", strings.Repeat("x", 5000), "term", uint64(3))
	log.Warn("Something", "leader", hostile)
	for _, out := range []string{events.String(), rest.String()} {
		g.Expect(out).NotTo(ContainSubstring("\x1b"))
		g.Expect(out).To(ContainSubstring(`evil\x1b[2J\nname`))
	}
	g.Expect(len(events.String())).To(BeNumerically("<", 500))
}

func TestUntrustedTextIsPrintableInJSON(t *testing.T) {
	g := NewWithT(t)
	log, events, _ := newLogger(true)
	for _, name := range []string{clitest.HostileText, clitest.HugeText, "\xff\xfe\xc3(\x9b31m"} {
		events.Reset()
		log.Info(messageLeaderSeen, "leader", name, "term", uint64(3))
		clitest.ExpectPrintable(g, events.String(), "the line")
		var e Event
		g.Expect(json.Unmarshal(events.Bytes(), &e)).To(Succeed())
		clitest.ExpectPrintable(g, e.Leader, "the name")
		g.Expect(e.Leader).To(Equal(terminal.Printable(name)))
	}
}
