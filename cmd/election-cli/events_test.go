package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
)

// tale returns a narrator and what it writes.
func tale(asJSON bool) (log *slog.Logger, events, rest *bytes.Buffer) {
	events, rest = &bytes.Buffer{}, &bytes.Buffer{}
	s := &story{
		out: events, json: asJSON,
		about: event{Election: "jobs", Name: "web-1", Bucket: "B", TTLS: 5, Server: "nats://h:1"},
		token: func() (election.Term, bool) { return election.Term{Number: 7, BucketCreated: time.Unix(1, 0)}, true },
	}
	return slog.New(&narrator{next: newLogHandler(rest, style{}, slog.LevelInfo), story: s}), events, rest
}

func moved(log *slog.Logger, to election.State, reason string, more ...any) {
	log.Info(messageMoved, append([]any{"state", to, "reason", reason}, more...)...)
}

func life(log *slog.Logger) {
	moved(log, election.CandidateState, "started")
	log.Info(messageSeen, "leader", "web-2", "term", uint64(3))
	moved(log, election.LeaderElectState, "vacant", "term", uint64(7))
	moved(log, election.LeaderState, "stood-down", "term", uint64(7))
	moved(log, election.CandidateState, "stopped", "term", uint64(7))
	log.Info(messageReleased, "term", uint64(7))
	moved(log, election.UnknownState, "stopped")
}

func TestEachEventIsOneJSONObjectOnALine(t *testing.T) {
	g := NewWithT(t)
	log, events, rest := tale(true)
	life(log)
	var names []string
	for line := range strings.Lines(events.String()) {
		var e map[string]any
		g.Expect(json.Unmarshal([]byte(line), &e)).To(Succeed())
		g.Expect(e).To(And(HaveKeyWithValue("election", "jobs"), HaveKeyWithValue("name", "web-1"), HaveKey("time"), HaveKey("state")))
		names = append(names, e["event"].(string))
		switch e["event"] {
		case eventStarted:
			g.Expect(e).To(And(HaveKeyWithValue("bucket", "B"), HaveKeyWithValue("ttl_s", 5.0), HaveKeyWithValue("server", "nats://h:1")))
		case eventFollowing:
			g.Expect(e).To(And(HaveKeyWithValue("leader", "web-2"), HaveKeyWithValue("term", 3.0), HaveKeyWithValue("state", "candidate")))
		case eventLeading:
			g.Expect(e).To(And(HaveKeyWithValue("term", 7.0), HaveKeyWithValue("token", "000000003b9aca00-0000000000000007"), HaveKeyWithValue("state", "leader")))
		case eventLost:
			g.Expect(e).To(And(HaveKeyWithValue("reason", "stopped"), HaveKey("led_s")))
		}
		for field := range e {
			g.Expect(campaignHelp).To(ContainSubstring(`"`+field+`"`), "documented in the help")
		}
	}
	g.Expect(names).To(Equal([]string{"started", "following", "elected", "leading", "lost", "released", "stopped"}))
	for _, name := range names {
		g.Expect(campaignHelp).To(ContainSubstring("    "+name), "documented in the help")
	}
	g.Expect(rest.String()).To(BeEmpty())
}

func TestEventsReadAsSentences(t *testing.T) {
	g := NewWithT(t)
	log, events, _ := tale(false)
	life(log)
	for _, sentence := range []string{
		"web-1 campaigns for jobs in bucket B (TTL 5s) on nats://h:1",
		"web-2 leads jobs, term 3",
		"web-1 won the key (vacant)",
		"web-1 leads jobs, term 7, token 000000003b9aca00-0000000000000007",
		"web-1 no longer leads (stopped), after",
		"web-1 released jobs",
		"web-1 left the election",
	} {
		g.Expect(events.String()).To(ContainSubstring(sentence))
	}
	g.Expect(events.String()).NotTo(ContainSubstring("\x1b"))
}

func TestLosingBeforeLeadingIsToldAsSuch(t *testing.T) {
	g := NewWithT(t)
	log, events, _ := tale(false)
	moved(log, election.CandidateState, "started")
	moved(log, election.LeaderElectState, "vacant", "term", uint64(7))
	moved(log, election.CandidateState, "deadline", "term", uint64(7))
	g.Expect(events.String()).To(ContainSubstring("gave up the key before it led (deadline)"))
}

func TestWhatIsNoEventGoesToTheLog(t *testing.T) {
	g := NewWithT(t)
	log, events, rest := tale(false)
	log.With("election", "jobs").WithGroup("g").Warn("Renewal failed", "error", errors.New("two words"))
	log.Debug("Campaign lost")
	g.Expect(events.String()).To(BeEmpty())
	g.Expect(rest.String()).To(MatchRegexp(`^\d\d:\d\d:\d\d\.\d{3}  WARN   Renewal failed  election=jobs  g\.error="two words"\n$`))
}

func TestTextFromElsewhereCannotReachTheTerminal(t *testing.T) {
	g := NewWithT(t)
	const nasty = "evil\x1b[2J\nname"
	log, events, rest := tale(false)
	moved(log, election.CandidateState, "started")
	log.Info(messageSeen, "leader", nasty, "term", uint64(3))
	log.Info(messageSeen, "leader", strings.Repeat("x", 5000), "term", uint64(3))
	log.Warn("Something", "leader", nasty)
	for _, out := range []string{events.String(), rest.String()} {
		g.Expect(out).NotTo(ContainSubstring("\x1b"))
		g.Expect(out).To(ContainSubstring(`evil\x1b[2J\nname`))
	}
	g.Expect(len(events.String())).To(BeNumerically("<", 500))
}

func TestTextFromElsewhereIsPrintableInJSONToo(t *testing.T) {
	g := NewWithT(t)
	log, events, _ := tale(true)
	for _, name := range []string{malice, huge, "\xff\xfe\xc3(\x9b31m"} {
		events.Reset()
		log.Info(messageSeen, "leader", name, "term", uint64(3))
		harmless(g, events.String(), "the line")
		var e event
		g.Expect(json.Unmarshal(events.Bytes(), &e)).To(Succeed())
		harmless(g, e.Leader, "the name")
		g.Expect(e.Leader).To(Equal(printable(name)))
	}
}

func TestDefaultNamesAreUnlikeEachOther(t *testing.T) {
	g := NewWithT(t)
	a, b := defaultName(), defaultName()
	g.Expect(a).NotTo(Equal(b))
	g.Expect(a).To(MatchRegexp(`^.+-\d+-[0-9A-Za-z]{6}$`))
	_, err := election.NewElection(a, "key", unbound{})
	g.Expect(err).NotTo(HaveOccurred())
}

// stuck is a writer that takes nothing until it is released.
type stuck struct {
	release chan struct{}
	entered chan struct{} // tells of each write that begins; nil if nobody asks
	bytes.Buffer
}

func (s *stuck) Write(p []byte) (int, error) {
	if s.entered != nil {
		s.entered <- struct{}{}
	}
	<-s.release
	return s.Buffer.Write(p)
}

func TestOutputNeverMakesAnElectionWait(t *testing.T) {
	g := NewWithT(t)
	w := &stuck{release: make(chan struct{})}
	q := newQueue(w, gapInText, func(error) {})
	line := []byte(strings.Repeat("x", 1023) + "\n")
	for range 3 * queuedLimit / len(line) {
		g.Expect(q.Write(line)).To(Equal(len(line)))
	}
	close(w.release)
	q.Close()
	g.Expect(w.Len()).To(BeNumerically("<=", 2*queuedLimit+len(line)), "what nobody reads is dropped")
	g.Expect(w.Len()).To(BeNumerically(">=", queuedLimit-len(line)))
}

func TestOutputThatEndsInAGapSaysSo(t *testing.T) {
	g := NewWithT(t)
	w := &stuck{release: make(chan struct{}), entered: make(chan struct{}, 10)}
	q := newQueue(w, gapInText, func(error) {})
	line := []byte(strings.Repeat("x", 1023) + "\n")
	_, _ = q.Write(line)
	<-w.entered // and does not return: from here on lines are kept, and then dropped
	for range queuedLimit/len(line) + 7 {
		_, _ = q.Write(line)
	}
	closed := make(chan struct{})
	go func() { q.Close(); close(closed) }()
	g.Eventually(q.isClosed).Should(BeTrue())
	_, _ = q.Write(line) // after its end there is no output that it could be missing from
	close(w.release)
	<-closed
	g.Expect(w.String()[w.Len()-60:]).To(HaveSuffix("x\n... 7 lines dropped here, for nobody read them\n"))
}

// isClosed says whether the queue takes no more.
func (q *queue) isClosed() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.closed
}

func TestOutputThatCannotBeWrittenIsReportedOnce(t *testing.T) {
	g := NewWithT(t)
	r, w := io.Pipe()
	g.Expect(r.Close()).To(Succeed())
	failed := make(chan error, 2)
	q := newQueue(w, gapInText, func(err error) { failed <- err })
	_, _ = q.Write([]byte("a"))
	_, _ = q.Write([]byte("b"))
	q.Close()
	g.Expect(failed).To(Receive(MatchError(io.ErrClosedPipe)))
	g.Expect(failed).NotTo(Receive())
}

func TestDurationsAreRoundedToWhatMatters(t *testing.T) {
	g := NewWithT(t)
	for d, text := range map[time.Duration]string{
		1234567 * time.Nanosecond:       "1ms",
		2 * time.Second:                 "2s",
		3141592653 * time.Nanosecond:    "3.14s",
		75400 * time.Millisecond:        "1m15s",
		100*time.Minute + 8*time.Second: "1h40m0s",
	} {
		g.Expect(human(d)).To(Equal(text))
	}
}
