package main

import (
	"encoding/json"
	"os"
	"runtime"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
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
	w.g.Eventually(w.lines).WithTimeout(patience).Should(Receive(&line), "%v %s: %s", kind, name, w.stderr)
	w.g.Expect(json.Unmarshal([]byte(line), &e)).To(Succeed(), line)
	w.g.Expect([]any{e.Kind, e.Leader.Name}).To(Equal([]any{kind, name}), line)
	return e
}

func TestWatchShowsTheCurrentStateAndThenEachChange(t *testing.T) {
	skipWithoutInterrupts(t)
	t.Parallel()
	a := newArena(t, quiet)
	a.put("jobs", leading("web-1", nil))
	a.put("other", leading("db-1", nil))
	w := startWatch(t, a.server.url(), "jobs")
	a.Expect(w.next(observe.Leading, "web-1").Leader.Term).To(Equal(uint64(7)))
	a.put("jobs", leading("web-1", nil)) // a renewal, of which nothing is told
	a.put("other", leading("db-2", nil))
	a.put("jobs", leading("web-1", fields{"released": time.Now()}))
	w.next(observe.Released, "web-1")
	a.put("jobs", leading("web-2", fields{"term": 0}))
	w.next(observe.Elected, "web-2")
	a.put("jobs", leading("web-2", fields{"term": 9}))
	w.next(observe.Leading, "web-2")
	a.Expect(a.bucket.Delete(t.Context(), "jobs")).To(Succeed())
	w.next(observe.Evicted, "web-2")
	a.Expect(w.cmd.Process.Signal(os.Interrupt)).To(Succeed())
	a.Expect(w.cmd.Wait()).To(Succeed(), "to be interrupted is its normal end: %s", w.stderr)
}

func TestWatchShowsRenewalsIfAskedToAndEndsAfterAsManyEventsAsWanted(t *testing.T) {
	t.Parallel()
	a := newArena(t, quiet)
	record := leading("web-1", nil)
	a.put("jobs", record)
	w := startWatch(t, a.server.url(), "*", "--verbose", "--count", "3")
	w.next(observe.Leading, "web-1")
	a.put("jobs", record)
	w.next(observe.Renewed, "web-1")
	a.put("jobs", record)
	w.next(observe.Renewed, "web-1")
	a.Expect(w.cmd.Wait()).To(Succeed(), w.stderr.String())
}

func TestWatchIsReadableWithoutJSON(t *testing.T) {
	t.Parallel()
	a := newArena(t, quiet)
	a.put("jobs", leading("web-1", nil))
	code, stdout, stderr := a.run("watch", "--count", "1")
	a.Expect(code).To(Equal(exitOK), stderr)
	a.Expect(stdout).To(MatchRegexp(`^\S+ \S+  leading   web-1 leads jobs, term 7\n$`))
}

func TestEachKindOfEventHasASentenceOfItsOwn(t *testing.T) {
	g := NewWithT(t)
	at := time.Now()
	told := map[string]bool{}
	for k := observe.Elected; k <= observe.Evicted; k++ {
		text := sentenceOf(observe.Event{Kind: k, Key: "jobs", At: at, Leader: election.Leader{Name: "web-1", Term: 7, Since: at.Add(-time.Minute)}})
		g.Expect(text).To(And(ContainSubstring("web-1"), ContainSubstring("jobs")))
		told[text] = true
		if k >= observe.Released {
			g.Expect(text).To(HaveSuffix(", term 7, 1m0s after it was elected"))
		}
	}
	g.Expect(told).To(HaveLen(6))
}

func TestWatchGoesOnWhenItsServerRestarts(t *testing.T) {
	if testing.Short() {
		t.Skip("a server is restarted")
	}
	t.Parallel()
	g := NewWithT(t)
	s := natstest.StartTCP(t)
	nc := s.Connect(t)
	bucket := s.Bucket(t, nc, quiet)
	put := func(name string) func() error {
		return func() error {
			text, err := json.Marshal(leading(name, nil))
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
	g.Eventually(put("web-2")).WithTimeout(patience).Should(Succeed())
	w.next(observe.Evicted, "web-1")
	w.next(observe.Elected, "web-2")
	w.next(observe.Leading, "web-2")
}

func TestWatchWaitsForAServerThatIsNotThereYet(t *testing.T) {
	skipWithoutInterrupts(t)
	t.Parallel()
	g := NewWithT(t)
	s := natstest.StartTCP(t)
	bucket := s.Bucket(t, s.Connect(t), quiet)
	_, err := bucket.Put(t.Context(), "jobs", []byte("web-1"))
	g.Expect(err).NotTo(HaveOccurred())
	s.Stop()
	cmd, stdout, _ := command(t, "watch", "-s", s.URL(), "--bucket", bucket.Bucket(), "--count", "1")
	lines, err := progressOf(&cmd.Stderr, cmd.StderrPipe)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(cmd.Start()).To(Succeed())
	g.Eventually(lines).WithTimeout(patience).Should(Receive(ContainSubstring("Server cannot be reached yet")))
	s.Resume(t)
	g.Expect(cmd.Wait()).To(Succeed())
	g.Expect(stdout.String()).To(ContainSubstring("elected   web-1 won jobs"))
}

func TestWatchEndsWhenNobodyReadsIt(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there is no such signal there")
	}
	t.Parallel()
	a := newArena(t, quiet)
	a.put("jobs", leading("web-1", nil))
	cmd, _, stderr := a.command("watch", "--json")
	cmd.Stdout = nil
	r, err := cmd.StdoutPipe()
	a.Expect(err).NotTo(HaveOccurred())
	a.Expect(cmd.Start()).To(Succeed())
	_, err = r.Read(make([]byte, 1))
	a.Expect(err).NotTo(HaveOccurred())
	a.Expect(r.Close()).To(Succeed())
	a.put("jobs", leading("web-2", nil))
	a.Expect(cmd.Wait()).NotTo(Succeed())
	a.Expect(cmd.ProcessState.ExitCode()).To(Equal(exitError), stderr.String())
	a.Expect(stderr.String()).To(ContainSubstring("broken pipe"))
}

func TestDroppedEventsLeaveAGapThatIsValidJSON(t *testing.T) {
	g := NewWithT(t)
	var e map[string]any
	g.Expect(json.Unmarshal([]byte((&watch{json: true}).gap(3)), &e)).To(Succeed())
	g.Expect(e).To(And(HaveKeyWithValue("kind", "dropped"), HaveKeyWithValue("dropped", 3.0), HaveKey("at")))
	g.Expect((&watch{}).gap(3)).To(ContainSubstring("3 lines dropped"))
}

func TestPatternsThatCannotBeUsedAreRefusedBeforeAnythingIsDialled(t *testing.T) {
	g := NewWithT(t)
	for _, pattern := range []string{"jobs", "*", ">", "a.*.b", "a.>"} {
		g.Expect(checkKey(pattern, true)).To(Succeed(), pattern)
	}
	for _, pattern := range []string{"", "a b", "a.", ".a", "a>", "a*", "a.*b.c", ">.a", "a..b"} {
		g.Expect(checkKey(pattern, true)).To(MatchError(ContainSubstring("neither a key nor a pattern")), pattern)
	}
	g.Expect(checkKey("*", false)).NotTo(Succeed())
}

func TestNobodyWaitsForABucketThatIsNotThere(t *testing.T) {
	t.Parallel()
	a := newArena(t, quiet)
	for _, args := range [][]string{{"watch"}, {"wait", "jobs"}} {
		code, stdout, stderr := a.run(append(args, "--bucket", "NONE")...)
		a.Expect([]any{code, stdout}).To(Equal([]any{exitError, ""}), "%q", args)
		a.Expect(stderr).To(ContainSubstring(`no bucket "NONE"`), "%q", args)
	}
}
