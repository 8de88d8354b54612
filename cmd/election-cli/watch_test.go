package main

import (
	"encoding/json"
	"os"
	"runtime"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/clitest"
	"github.com/natscampaign/election/internal/natstest"
	"github.com/natscampaign/election/observe"
)

// watcher is a watch that runs as a process of its own.
type watcher struct {
	*campaigner
}

// startWatch runs the command on the server at the URL; it tells JSON.
func startWatch(t *testing.T, url string, args ...string) *watcher {
	t.Helper()
	g := NewWithT(t)
	cmd, _, stderr := command(t, append([]string{"watch", "--json", "-s", url}, args...)...)
	lines, err := progressOf(&cmd.Stdout, cmd.StdoutPipe)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(cmd.Start()).To(Succeed())
	return &watcher{&campaigner{g: g, cmd: cmd, lines: lines, stderr: stderr}}
}

// next waits for the next event, which must be of that kind and about that leader.
func (w *watcher) next(kind observe.EventKind, name string) (e observe.Event) {
	var line string
	w.g.Eventually(w.lines).WithTimeout(clitest.Patience).Should(Receive(&line), "%v %s: %s", kind, name, w.stderr)
	w.g.Expect(json.Unmarshal([]byte(line), &e)).To(Succeed(), line)
	w.g.Expect([]any{e.Kind, e.Leader.Name}).To(Equal([]any{kind, name}), line)
	return e
}

func TestWatchShowsTheCurrentStateAndThenEachChange(t *testing.T) {
	skipWithoutInterrupts(t)
	t.Parallel()
	a := newArena(t, clitest.Quiet)
	a.Put("jobs", clitest.Leading("web-1", nil))
	a.Put("other", clitest.Leading("db-1", nil))
	w := startWatch(t, a.Server.URL(), "jobs")
	a.Expect(w.next(observe.Leading, "web-1").Leader.Term).To(Equal(uint64(7)))
	a.Put("jobs", clitest.Leading("web-1", nil)) // a renewal, of which nothing is told
	a.Put("other", clitest.Leading("db-2", nil))
	a.Put("jobs", clitest.Leading("web-1", clitest.Fields{"released": time.Now()}))
	w.next(observe.Released, "web-1")
	a.Put("jobs", clitest.Leading("web-2", clitest.Fields{"term": 0}))
	w.next(observe.Elected, "web-2")
	a.Put("jobs", clitest.Leading("web-2", clitest.Fields{"term": 9}))
	w.next(observe.Leading, "web-2")
	a.Expect(a.Bucket.Delete(t.Context(), "jobs")).To(Succeed())
	w.next(observe.Evicted, "web-2")
	a.Expect(w.cmd.Process.Signal(os.Interrupt)).To(Succeed())
	a.Expect(w.cmd.Wait()).To(Succeed(), "to be interrupted is its normal end: %s", w.stderr)
}

func TestWatchShowsRenewalsIfAskedToAndEndsAfterAsManyEventsAsWanted(t *testing.T) {
	t.Parallel()
	a := newArena(t, clitest.Quiet)
	record := clitest.Leading("web-1", nil)
	a.Put("jobs", record)
	w := startWatch(t, a.Server.URL(), "*", "--verbose", "--count", "3")
	w.next(observe.Leading, "web-1")
	a.Put("jobs", record)
	w.next(observe.Renewed, "web-1")
	a.Put("jobs", record)
	w.next(observe.Renewed, "web-1")
	a.Expect(w.cmd.Wait()).To(Succeed(), w.stderr.String())
}

func TestWatchIsReadableWithoutJSON(t *testing.T) {
	t.Parallel()
	a := newArena(t, clitest.Quiet)
	a.Put("jobs", clitest.Leading("web-1", nil))
	code, stdout, stderr := a.run("watch", "--count", "1")
	a.Expect(code).To(Equal(cli.ExitOK), stderr)
	a.Expect(stdout).To(MatchRegexp(`^\S+ \S+  leading   web-1 leads jobs, term 7\n$`))
}

func TestWatchGoesOnWhenItsServerRestarts(t *testing.T) {
	if testing.Short() {
		t.Skip("a server is restarted")
	}
	t.Parallel()
	g := NewWithT(t)
	s := natstest.StartTCP(t)
	nc := s.Connect(t)
	bucket := s.Bucket(t, nc, clitest.Quiet)
	put := func(name string) func() error {
		return func() error {
			text, err := json.Marshal(clitest.Leading(name, nil))
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
	g.Eventually(put("web-2")).WithTimeout(clitest.Patience).Should(Succeed())
	w.next(observe.Evicted, "web-1")
	w.next(observe.Elected, "web-2")
	w.next(observe.Leading, "web-2")
}

func TestWatchWaitsForAServerThatIsNotThereYet(t *testing.T) {
	skipWithoutInterrupts(t)
	t.Parallel()
	g := NewWithT(t)
	s := natstest.StartTCP(t)
	bucket := s.Bucket(t, s.Connect(t), clitest.Quiet)
	_, err := bucket.Put(t.Context(), "jobs", []byte("web-1"))
	g.Expect(err).NotTo(HaveOccurred())
	s.Stop()
	cmd, stdout, _ := command(t, "watch", "-s", s.URL(), "--bucket", bucket.Bucket(), "--count", "1")
	lines, err := progressOf(&cmd.Stderr, cmd.StderrPipe)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(cmd.Start()).To(Succeed())
	g.Eventually(lines).WithTimeout(clitest.Patience).Should(Receive(ContainSubstring("Server cannot be reached yet")))
	s.Resume(t)
	g.Expect(cmd.Wait()).To(Succeed())
	g.Expect(stdout.String()).To(ContainSubstring("elected   web-1 won jobs"))
}

func TestWatchEndsWhenNobodyReadsIt(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there is no such signal there")
	}
	t.Parallel()
	a := newArena(t, clitest.Quiet)
	a.Put("jobs", clitest.Leading("web-1", nil))
	cmd, _, stderr := a.command("watch", "--json")
	cmd.Stdout = nil
	r, err := cmd.StdoutPipe()
	a.Expect(err).NotTo(HaveOccurred())
	a.Expect(cmd.Start()).To(Succeed())
	_, err = r.Read(make([]byte, 1))
	a.Expect(err).NotTo(HaveOccurred())
	a.Expect(r.Close()).To(Succeed())
	a.Put("jobs", clitest.Leading("web-2", nil))
	a.Expect(cmd.Wait()).NotTo(Succeed())
	a.Expect(cmd.ProcessState.ExitCode()).To(Equal(cli.ExitFailure), stderr.String())
	a.Expect(stderr.String()).To(ContainSubstring("broken pipe"))
}

func TestDroppedEventsLeaveAGapThatIsValidJSON(t *testing.T) {
	g := NewWithT(t)
	var e map[string]any
	g.Expect(json.Unmarshal([]byte((&watchCommand{json: true}).gap(3)), &e)).To(Succeed())
	g.Expect(e).To(And(HaveKeyWithValue("kind", "dropped"), HaveKeyWithValue("dropped", 3.0), HaveKey("at")))
	g.Expect((&watchCommand{}).gap(3)).To(ContainSubstring("3 lines dropped"))
}

func TestNobodyWaitsForABucketThatIsNotThere(t *testing.T) {
	t.Parallel()
	a := newArena(t, clitest.Quiet)
	for _, args := range [][]string{{"watch"}, {"wait", "jobs"}} {
		code, stdout, stderr := a.run(append(args, "--bucket", "NONE")...)
		a.Expect([]any{code, stdout}).To(Equal([]any{cli.ExitFailure, ""}), "%q", args)
		a.Expect(stderr).To(ContainSubstring(`no bucket "NONE"`), "%q", args)
	}
}
