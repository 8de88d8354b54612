package main

import (
	"encoding/json"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/cli/checkup"
	"github.com/natscampaign/election/internal/cli/look"
	"github.com/natscampaign/election/internal/drill/faultproxy"
	"github.com/natscampaign/election/internal/test/clitest"
	"github.com/natscampaign/election/internal/test/natstest"
	"github.com/natscampaign/election/observe"
)

// watcher is the command watch in a separate process.
type watcher struct{ *process }

// startWatch starts the command watch with --json on the server at url.
func startWatch(t *testing.T, url string, args ...string) *watcher {
	t.Helper()
	return &watcher{startCandidate(t, append([]string{"watch", "--json", "-s", url}, args...)...)}
}

// next waits for the next event, and expects its kind and its leader.
func (w *watcher) next(kind observe.EventKind, name string) (e observe.Event) {
	var line string
	w.g.Eventually(w.lines).Should(Receive(&line), "%v %s: %s", kind, name, w.stderr)
	expectSchema(w.g, "watch", line)
	w.g.Expect(json.Unmarshal([]byte(line), &e)).To(Succeed(), line)
	w.g.Expect([]any{e.Kind, e.Leader.Name}).To(Equal([]any{kind, name}), line)
	return e
}

func TestWatchPrintsTheCurrentStateAndThenEachChange(t *testing.T) {
	skipWithoutInterrupts(t)
	t.Parallel()
	f := newFixture(t, clitest.LongTTL)
	f.Put("jobs", clitest.LeaderRecord("web-1", nil))
	f.Put("other", clitest.LeaderRecord("db-1", nil))
	w := startWatch(t, f.Server.URL(), "jobs")
	f.Expect(w.next(observe.Leading, "web-1").Leader.Term).To(Equal(uint64(7)))
	f.Put("jobs", clitest.LeaderRecord("web-1", nil)) // a renewal, which watch does not print
	f.Put("other", clitest.LeaderRecord("db-2", nil))
	f.Put("jobs", clitest.LeaderRecord("web-1", clitest.Record{"released": time.Now()}))
	w.next(observe.Released, "web-1")
	f.Put("jobs", clitest.LeaderRecord("web-2", clitest.Record{"term": 0}))
	w.next(observe.Elected, "web-2")
	f.Put("jobs", clitest.LeaderRecord("web-2", clitest.Record{"term": 9}))
	w.next(observe.Leading, "web-2")
	f.Expect(f.Bucket.Delete(t.Context(), "jobs")).To(Succeed())
	w.next(observe.Evicted, "web-2")
	f.Expect(w.cmd.Process.Signal(os.Interrupt)).To(Succeed())
	f.Expect(w.cmd.Wait()).To(Succeed(), "an interrupt is the normal end: %s", w.stderr)
}

func TestWatchPrintsRenewalsWithVerboseAndEndsAfterCountEvents(t *testing.T) {
	t.Parallel()
	f := newFixture(t, clitest.LongTTL)
	record := clitest.LeaderRecord("web-1", nil)
	f.Put("jobs", record)
	w := startWatch(t, f.Server.URL(), "*", "--verbose", "--count", "3")
	w.next(observe.Leading, "web-1")
	f.Put("jobs", record)
	w.next(observe.Renewed, "web-1")
	f.Put("jobs", record)
	w.next(observe.Renewed, "web-1")
	f.Expect(w.cmd.Wait()).To(Succeed(), w.stderr.String())
}

func TestWatchPrintsSentencesWithoutJSON(t *testing.T) {
	t.Parallel()
	f := newFixture(t, clitest.LongTTL)
	f.Put("jobs", clitest.LeaderRecord("web-1", nil))
	stdout := f.ok("watch", "--count", "1")
	f.Expect(stdout).To(MatchRegexp(`^\S+ \S+  leading   "web-1" leads "jobs", term 7, for \S+\n$`))
}

func TestWatchContinuesAfterARestartOfTheServer(t *testing.T) {
	if testing.Short() {
		t.Skip("a server is restarted")
	}
	t.Parallel()
	g := NewWithT(t)
	s := natstest.StartTCP(t)
	nc := s.Connect(t)
	bucket := s.Bucket(t, nc, clitest.LongTTL)
	put := func(name string) func() error {
		return func() error {
			text, err := json.Marshal(clitest.LeaderRecord(name, nil))
			if err == nil {
				_, err = bucket.Put(t.Context(), "jobs", text)
			}
			return err
		}
	}
	g.Expect(put("web-1")()).To(Succeed())
	w := startWatch(t, s.URL(), "--bucket", bucket.Bucket())
	w.next(observe.Leading, "web-1")
	s.Restart(t, 0)
	g.Eventually(put("web-2")).Should(Succeed())
	w.next(observe.Evicted, "web-1")
	w.next(observe.Elected, "web-2")
	w.next(observe.Leading, "web-2")
}

func TestWatchWaitsForAnUnreachableServer(t *testing.T) {
	skipWithoutInterrupts(t)
	t.Parallel()
	g := NewWithT(t)
	s, bucket := stoppedServer(t)
	cmd, stdout, _ := command(t, "watch", "-s", s.URL(), "--bucket", bucket, "--count", "1")
	followLog(g, cmd).says("Server cannot be reached yet")
	s.Resume(t)
	g.Expect(cmd.Wait()).To(Succeed())
	g.Expect(stdout.String()).To(ContainSubstring("elected   \"web-1\" won \"jobs\""))
}

func TestWatchEndsWhenItsOutputIsClosed(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no broken pipes")
	}
	t.Parallel()
	f := newFixture(t, clitest.LongTTL)
	f.Put("jobs", clitest.LeaderRecord("web-1", nil))
	cmd, _, stderr := f.command("watch", "--json")
	cmd.Stdout = nil
	r, err := cmd.StdoutPipe()
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(cmd.Start()).To(Succeed())
	_, err = r.Read(make([]byte, 1))
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(r.Close()).To(Succeed())
	f.Put("jobs", clitest.LeaderRecord("web-2", nil))
	f.Expect(cmd.Wait()).NotTo(Succeed())
	f.Expect(cmd.ProcessState.ExitCode()).To(Equal(cli.ExitFailure), stderr.String())
	f.Expect(stderr.String()).To(ContainSubstring("broken pipe"))
}

func TestCommandsThatOnlyPrintEndSilentlyWhenTheirOutputIsClosed(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no broken pipes")
	}
	t.Parallel()
	f := newFixture(t, clitest.LongTTL)
	f.Put("jobs", clitest.LeaderRecord("web-1", nil))
	for args, want := range map[string]int{"ls": cli.ExitFailure, "info jobs": cli.ExitFailure, "rules": cli.ExitFailure, "check": int(checkup.StatusUnknown)} {
		cmd, _, stderr := f.command(strings.Fields(args)...)
		r, w, err := os.Pipe()
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(r.Close()).To(Succeed())
		cmd.Stdout = w
		f.Expect(cmd.Run()).NotTo(Succeed())
		f.Expect(w.Close()).To(Succeed())
		f.Expect([]any{cmd.ProcessState.ExitCode(), stderr.String()}).To(Equal([]any{want, ""}), args)
	}
}

func TestTheNoticeForDroppedEventsIsValidJSON(t *testing.T) {
	g := NewWithT(t)
	var e map[string]any
	line := (&look.EventWriter{JSON: true}).DroppedEvents(3)
	expectSchema(g, "watch", line)
	g.Expect(json.Unmarshal([]byte(line), &e)).To(Succeed())
	g.Expect(e).To(And(HaveKeyWithValue("kind", "dropped"), HaveKeyWithValue("dropped", 3.0), HaveKey("at")))
	g.Expect((&look.EventWriter{}).DroppedEvents(3)).To(ContainSubstring("3 lines dropped"))
}

func TestWatchGivesTheReasonOfAChangeAndTheOperatorOfAnEviction(t *testing.T) {
	t.Parallel()
	f := newFixture(t, clitest.LongTTL)
	link := faultproxy.New(nil) // of web-2
	t.Cleanup(link.Close)
	var leader *election.Election
	leader = clitest.Campaign(t, f.Bucket, "web-1", "jobs", election.OnLost(func() {
		leader.Pause()      // else it may win again
		link.StallReplies() // so that the release is stored until it was seen
	}))
	f.Eventually(leader.IsLeader).Should(BeTrue())
	w := startWatch(t, f.Server.URL(), "jobs")
	w.next(observe.Leading, "web-1")
	nc, err := nats.Connect(f.Server.URL(), nats.SetCustomDialer(link), nats.Timeout(20*time.Second))
	f.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	f.Expect(err).NotTo(HaveOccurred())
	bucket, err := election.OpenBucket(t.Context(), js, f.Bucket.Bucket())
	f.Expect(err).NotTo(HaveOccurred())
	e := clitest.Campaign(t, bucket, "web-2", "jobs")
	f.Eventually(func() string { _, _, stderr := f.run("transfer", "jobs", "--to", "web-2"); return stderr }).ShouldNot(Or(ContainSubstring("no candidate"), ContainSubstring("does not answer")))
	f.Expect(w.next(observe.Released, "web-1").Reason).To(Equal(election.ReasonTransferred))
	link.Heal()
	f.Expect(w.next(observe.Elected, "web-2").Reason).To(Equal(election.ReasonReleased))
	w.next(observe.Leading, "web-2")
	f.Eventually(e.IsLeader).Should(BeTrue()) // its record may be seen before it has the answer
	f.Expect(e.Resign(t.Context())).To(Succeed())
	f.Expect(w.next(observe.Released, "web-2").Reason).To(Equal(election.ReasonResigned))

	f.Put("other", clitest.LeaderRecord("db-1", nil))
	w = startWatch(t, f.Server.URL(), "other")
	w.next(observe.Leading, "db-1")
	f.Put("other", clitest.LeaderRecord("db-2", nil))
	overwritten := w.next(observe.Evicted, "db-1")
	f.Expect([]any{overwritten.Reason, overwritten.By}).To(Equal([]any{election.ReasonOverwritten, "db-2"}))
	w.next(observe.Elected, "db-2")
	w.next(observe.Leading, "db-2")
	f.ok("evict", "other", "--force")
	evicted := w.next(observe.Evicted, "db-2")
	f.Expect(evicted.Reason).To(Equal(election.ReasonDeleted))
	f.Expect(evicted.By).To(MatchRegexp(`^\S+@\S+$`))
}
