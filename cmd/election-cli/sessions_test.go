package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/cli/checkup"
	"github.com/natscampaign/election/internal/cli/look"
	"github.com/natscampaign/election/internal/test/clitest"
	"github.com/natscampaign/election/internal/test/natstest"
	"github.com/natscampaign/election/observe"
	"github.com/natscampaign/election/session"
)

// sessions is a fixture with a bucket for sessions. Its commands name that bucket.
type sessions struct{ *fixture }

// sessionsTTL outlasts the stalls of a busy host.
const sessionsTTL = 15 * time.Second

// newSessions makes the bucket, which is settled.
func newSessions(t *testing.T) *sessions {
	s := &sessions{newServer(t)}
	js, err := jetstream.New(clitest.Connect(t, s.url, "").Conn)
	s.Expect(err).NotTo(HaveOccurred())
	natstest.SettledBucket(t, js, "SESSIONS", sessionsTTL)
	return s
}

// open opens a session that campaigns for keys.
func (s *sessions) open(name string, keys ...string) *session.Session {
	s.T.Helper()
	js, err := jetstream.New(clitest.Connect(s.T, s.url, "").Conn)
	s.Expect(err).NotTo(HaveOccurred())
	opened, err := session.Open(context.Background(), js, session.Config{Bucket: "SESSIONS", Name: name})
	s.Expect(err).NotTo(HaveOccurred())
	s.T.Cleanup(func() { _ = opened.Close(context.Background()) })
	for _, key := range keys {
		e, err := opened.Election(key)
		s.Expect(err).NotTo(HaveOccurred())
		go func() { _ = e.Start(context.Background()) }()
	}
	return opened
}

// awaitLed waits until a session leads so many keys.
func (s *sessions) awaitLed(by *session.Session, keys int) {
	s.T.Helper()
	s.Eventually(func() int { return by.Status().Led }).Should(Equal(keys))
}

func (s *sessions) run(args ...string) (code int, stdout, stderr string) {
	s.T.Helper()
	return s.fixture.run(append(args, "--bucket", "SESSIONS")...)
}

func (s *sessions) read(into any, args ...string) {
	s.T.Helper()
	s.fixture.read(cli.ExitOK, into, append(args, "--bucket", "SESSIONS")...)
}

func TestKeysOfSessionsAreShownAndOperated(t *testing.T) {
	t.Parallel()
	s := newSessions(t)
	a := s.open("a", "one", "two")
	s.awaitLed(a, 2)
	b := s.open("b", "one", "two")

	var list []look.Holder
	s.Eventually(func() *int { s.read(&list, "ls"); return list[0].Standbys }).Should(HaveValue(Equal(1)))
	s.Expect(list).To(HaveLen(2))
	s.Expect([]any{list[0].Key, list[0].Name, list[0].State, list[0].Term > 0, list[0].Host != ""}).To(Equal([]any{"one", "a", look.StateLeader, true, true}))
	s.Expect(list[0].ExpiresInS).To(And(BeNumerically(">", 0), BeNumerically("<=", sessionsTTL.Seconds())))
	var info look.BucketInfo
	s.read(&info, "info")
	s.Expect([]any{info.Sessions, info.TTLS, len(info.Elections)}).To(Equal([]any{true, sessionsTTL.Seconds(), 2}))
	_, stdout, _ := s.run("info")
	s.Expect(stdout).To(And(ContainSubstring("Elections: 2, led by 1 session\n"), Not(ContainSubstring("Releases"))))
	s.Eventually(func() (candidates []look.Candidate, err error) { // an answer may come too late
		_, stdout, _ := s.run("candidates", "one", "--json")
		err = json.Unmarshal([]byte(stdout), &candidates)
		return candidates, err
	}).Should(HaveLen(2))
	var checked struct{ Findings []checkup.ElectionFinding }
	s.read(&checked, "check", "one", "--as", "observer")
	s.Expect(checked.Findings).To(HaveLen(1))
	s.Expect(checked.Findings[0].Code).To(Equal("session-keys"))

	handOver(s, s.run, "one", "a", "b", "transfer", "one", "--to", "b")
	handOver(s, s.run, "two", "a", "b", "resign", "two")
	s.Eventually(func() int { return b.Status().Led }).Should(Equal(2))

	code, stdout, stderr := s.run("evict", "one", "--force")
	s.Expect(code).To(Equal(cli.ExitOK), stderr)
	s.Expect(stdout).To(HavePrefix(`Evicted "b" from "one", term `))
	s.Eventually(func() int { return b.Status().Led }).Should(Equal(1))

	_ = a.Close(context.Background())
	_ = b.Close(context.Background())
	var ended []observe.Event
	s.read(&ended, "ls", "--ended")
	s.Expect(ended).To(HaveLen(2))
	s.Expect([]any{ended[1].Key, ended[1].Leader.Name, ended[1].Reason}).To(Equal([]any{"two", "b", election.ReasonStopped}))
	code, _, stderr = s.run("info", "two")
	s.Expect(code).To(Equal(cli.ExitNegative))
	s.Expect(stderr).To(ContainSubstring(`"b" led until `))
}

func TestCommandsDoNotHarmABucketForSessions(t *testing.T) {
	t.Parallel()
	s := newSessions(t)
	a := s.open("a", "one")
	s.awaitLed(a, 1)
	for command, says := range map[string]string{
		"bucket edit":                  "would expire while they are led",
		"bucket edit --dry-run":        "would expire while they are led",
		"bucket edit --ttl 5s":         "nats stream edit KV_SESSIONS",
		"bucket add":                   "made for sessions, not for elections; nothing was changed",
		"bucket prune --older-than 1h": "nothing is removed",
		"bucket rm":                    "is for sessions, and 1 is open: 1 election is led right now",
		"pause one":                    "call Election.Pause there, or run 'election-cli transfer one --to NAME --bucket SESSIONS'",
		"resume one":                   "call Election.Pause there",
		"campaign one":                 "made for sessions",
		"transfer one --to nobody --timeout " + clitest.Timeout.String(): "no candidate", // a busy host may be slow to answer
		"evict one --revision 1000 --force":                              "has revision",
	} {
		code, stdout, stderr := s.run(strings.Fields(command)...)
		s.Expect(code).NotTo(Equal(cli.ExitOK), command)
		s.Expect(stdout+stderr).To(ContainSubstring(says), command)
	}
	s.Consistently(func() int { return a.Status().Led }, "3s").Should(Equal(1))
	_, _, stderr := s.run("bucket", "rm", "--force")
	s.Expect(stderr).To(ContainSubstring("removed"))
}

func TestCheckNamesASessionWithoutStandbysOnce(t *testing.T) {
	t.Parallel()
	s := newSessions(t)
	a := s.open("a", "one", "three", "two")
	s.awaitLed(a, 3)
	stdout := ""
	s.Eventually(func() (code int) { // an answer may come too late
		code, stdout, _ = s.run("check")
		return code
	}).Should(Equal(1))
	s.Expect(strings.Count(stdout, "no-standby: ")).To(Equal(1), stdout)
	s.Expect(stdout).To(And(HavePrefix("WARNING  1 problem\n"), ContainSubstring(`nobody would take over "one" from "a": no other candidate answers (and so for 2 other keys of this session)`)))
	s.Eventually(func() ([]checkup.ElectionFinding, error) {
		var checked struct{ Findings []checkup.ElectionFinding }
		code, stdout, _ := s.run("check", "--json")
		if code != 1 {
			return nil, fmt.Errorf("exit code %d", code)
		}
		return checked.Findings, json.Unmarshal([]byte(stdout), &checked)
	}).Should(HaveLen(4), "programs are told of each key")
}
