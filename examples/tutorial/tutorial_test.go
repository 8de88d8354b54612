//go:build linux || darwin

// Package tutorial_test builds the programs of docs/TUTORIAL.md, and does with them what the page says.
package tutorial_test

import (
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/onsi/gomega/gexec"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/admin"
	"github.com/natscampaign/election/internal/record"

	// The steps are built by a command that go test does not see: with these imports it runs the tests again when the library changed.
	_ "github.com/natscampaign/election/fence"
	"github.com/natscampaign/election/internal/test/clitest"
	"github.com/natscampaign/election/internal/test/natstest"
	_ "github.com/natscampaign/election/witness"
)

const (
	patience = 60 * time.Second
	steps    = 6
)

var folder string // with the programs

func TestMain(m *testing.M) {
	if !flag.Parsed() { // so that -parallel counts if it is given
		_ = flag.Set("test.parallel", "8") // the tests mostly wait
	}
	var err error
	if folder, err = os.MkdirTemp("", "election-tutorial-"); err != nil {
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(folder)
	os.Exit(code)
}

// build builds the steps and the command, once.
var build = sync.OnceValue(func() error {
	out, err := exec.Command("go", "build", "-ldflags=-s -w", "-o", folder+string(filepath.Separator), "./...", "../../cmd/election-cli").CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
})

// tour is a NATS server, and the terminal in which programs that use it write.
type tour struct {
	*testing.T
	*WithT
	url      string
	js       jetstream.JetStream
	terminal *gbytes.Buffer

	begun, sent atomic.Int64 // invoices, as the server sees them: a program begins one when it asks for the last
	renewed     atomic.Int64 // how often the server saw a leader called a renew its lease
}

func begin(t *testing.T) *tour {
	t.Helper()
	if testing.Short() {
		t.Skip("takes 10 s")
	}
	t.Parallel()
	server := natstest.StartTCP(t)
	v := &tour{T: t, WithT: NewWithT(t), url: server.URL(), terminal: gbytes.NewBuffer()}
	nc := natstest.Connect(t, server.Link(t))
	for subject, see := range map[string]func(m *nats.Msg){
		"$JS.API.STREAM.MSG.GET.INVOICES": func(m *nats.Msg) {
			if strings.Contains(string(m.Data), `"invoices.sent"`) { // a fence asks for its epoch in the same way
				v.begun.Add(1)
			}
		},
		"invoices.sent": func(*nats.Msg) { v.sent.Add(1) },
		"$KV.LEADER_ELECTION.billing": func(m *nats.Msg) {
			if r := record.Parse(m.Data, 0); r.Name == "a" && r.Term != 0 && r.Released.IsZero() {
				v.renewed.Add(1)
			}
		},
	} {
		_, err := nc.Subscribe(subject, see)
		v.Expect(err).NotTo(HaveOccurred())
	}
	v.Expect(nc.Flush()).To(Succeed())
	var err error
	v.js, err = jetstream.New(nc)
	v.Expect(err).NotTo(HaveOccurred())
	v.Expect(build()).To(Succeed())
	t.Cleanup(func() {
		if t.Failed() {
			t.Log("\n" + string(v.terminal.Contents()))
		}
	})
	return v
}

// start starts a program, which ends with the test.
func (v *tour) start(program string, args ...string) *gexec.Session {
	v.Helper()
	cmd := exec.Command(filepath.Join(folder, program), args...)
	cmd.Env = append(os.Environ(), "NATS_URL="+v.url)
	s, err := gexec.Start(cmd, nil, v.terminal)
	v.Expect(err).NotTo(HaveOccurred())
	v.Cleanup(func() { <-s.Kill().Exited })
	return s
}

// candidate starts a candidate, again if a busy host does not connect it within the 2 s for which it waits.
func (v *tour) candidate(step, name string) *gexec.Session {
	v.Helper()
	began := regexp.MustCompile("(?m)^" + name + " .* state=candidate reason=started")
	for {
		s := v.start(step, name)
		v.Eventually(func() bool { return s.ExitCode() >= 0 || began.Match(v.terminal.Contents()) }, patience).Should(BeTrue())
		if s.ExitCode() < 0 {
			return s
		}
		v.Expect(v.terminal.Contents()).To(ContainSubstring("i/o timeout"))
	}
}

// two starts two candidates, and returns them when the first has renewed its lease since the second has seen that it leads, and has then begun an invoice.
// Nearly all of the lease is left, so that a witness has time to release the key.
func (v *tour) two(step string) (a, b *gexec.Session) {
	v.Helper()
	a = v.candidate(step, "a")
	v.sees(`a .* invoice \d+`)
	b = v.candidate(step, "b")
	v.sees("b .* Leader seen .* leader=a term")
	v.awaitsNext(&v.renewed)
	v.awaitsNext(&v.begun)
	return a, b
}

// awaitsNext waits until what is counted happens again.
func (v *tour) awaitsNext(count *atomic.Int64) {
	v.Helper()
	before := count.Load()
	v.Eventually(count.Load, patience).Should(BeNumerically(">", before))
}

// lapsed is how a candidate wins the key of a leader that released nothing: it takes over once the lease has lapsed or, on a busy host, finds that the
// server has expired the key before.
const lapsed = "state=leader-elect reason=(lapsed|vacant)"

// sees waits until the terminal shows a line, after those that were seen before.
func (v *tour) sees(line string) {
	v.Helper()
	v.Eventually(v.terminal, patience).Should(gbytes.Say("(?m)^" + line))
}

// invoices returns the numbers of the invoices that were written, in order.
func (v *tour) invoices() (numbers []int) {
	for _, m := range regexp.MustCompile(`(?m)^\w [0-9:]+ invoice (\d+)$`).FindAllStringSubmatch(string(v.terminal.Contents()), -1) {
		n, _ := strconv.Atoi(m[1])
		numbers = append(numbers, n)
	}
	return numbers
}

// expectEachInvoiceOnce checks that no invoice is missing, and none was written twice.
func (v *tour) expectEachInvoiceOnce() {
	v.Helper()
	for i, n := range v.invoices() {
		v.Expect(n).To(Equal(i + 1))
	}
}

func TestStep1WritesInvoicesTwiceIfItRunsTwice(t *testing.T) {
	v := begin(t)
	v.start("step1", "a")
	v.start("step1", "b")
	v.Eventually(func() int {
		writers := map[int]int{}
		for _, n := range v.invoices() {
			writers[n]++
		}
		twice := 0
		for _, w := range writers {
			twice += w / 2
		}
		return twice
	}, patience).Should(BeNumerically(">=", 2))
}

func TestStep2WritesOnTheLeaderOnlyAndWaitsForTheEndOfTheLease(t *testing.T) {
	v := begin(t)
	a, _ := v.two("step2")
	a.Terminate()
	v.sees("b .* " + lapsed)
	v.sees(`b .* invoice \d+`)
	v.Expect(v.terminal.Contents()).NotTo(ContainSubstring("Key released"))
	v.expectEachInvoiceOnce()
}

func TestStep3CompletesItsInvoiceAndThenHandsOver(t *testing.T) {
	v := begin(t)
	a, _ := v.two("step3")
	a.Terminate()
	v.sees("a .* state=candidate reason=stopped")
	v.sees(`a .* invoice \d+`)
	// This line may come before the invoice of a: the terminal does not keep the order of two programs.
	v.Eventually(v.terminal.Contents, patience).Should(MatchRegexp("(?m)^b .* state=leader-elect reason=released"))
	v.sees(`b .* invoice \d+`)
	v.Eventually(a, patience).Should(gexec.Exit(0))
	v.Expect(v.terminal.Contents()).To(ContainSubstring("Key released"))
	v.expectEachInvoiceOnce()
}

func TestStep3HasNoWitness(t *testing.T) {
	v := begin(t)
	a, _ := v.two("step3")
	a.Kill()
	v.sees("b .* " + lapsed)
	v.sees(`b .* invoice \d+`)
	v.expectEachInvoiceOnce()
}

func TestStep4HasAWitnessReleaseTheKeyOfAKilledLeader(t *testing.T) {
	v := begin(t)
	a, _ := v.two("step4")
	a.Kill()
	v.sees("b .* state=leader-elect reason=released .*stand-down=250ms")
	v.sees(`b .* invoice \d+`)
	v.expectEachInvoiceOnce()
}

// freeze freezes a leader while it works until another candidate has written an invoice.
func (v *tour) freeze(step string) {
	v.Helper()
	a, _ := v.two(step)
	bucket, err := election.OpenBucket(v.Context(), v.js, "LEADER_ELECTION")
	v.Expect(err).NotTo(HaveOccurred())
	operator, err := admin.New(bucket)
	v.Expect(err).NotTo(HaveOccurred())
	// A program that is frozen before it has read which invoice is the last gives up when it wakes. One that answers an operator who asked later has read it.
	v.Eventually(func(g Gomega) {
		begun := v.begun.Load()
		candidates, err := operator.Candidates(v.Context(), "billing")
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(candidates).To(ContainElement(HaveField("Name", "a")))
		g.Expect(v.begun.Load()).To(Equal(begun))
		g.Expect(v.sent.Load()).To(BeNumerically("<", begun), "it works")
	}, patience).Should(Succeed())
	a.Signal(syscall.SIGSTOP)
	v.sees("b .* " + lapsed)
	v.sees(`b .* invoice \d+`)
	a.Signal(syscall.SIGCONT)
}

func TestStep4WritesAnInvoiceAgainThatIsLate(t *testing.T) {
	v := begin(t)
	v.freeze("step4")
	v.sees(`a .* invoice \d+`)
	last := 0
	again := 0
	for _, n := range v.invoices() {
		if n <= last {
			again = n
		}
		last = n
	}
	v.Expect(again).NotTo(BeZero())
}

func TestStep5FencesAnInvoiceThatIsLate(t *testing.T) {
	v := begin(t)
	v.freeze("step5")
	// The work and the end of the term come at one time, in either order.
	v.sees(`a .* Work (failed after its term had ended|does not lead by its own account, resigning) .*error="fence: fenced off: term \d+ of `)
	v.sees(`b .* invoice \d+`)
	v.expectEachInvoiceOnce()
}

func TestStep6ReplacesStep5OneByOne(t *testing.T) {
	v := begin(t)
	a, b := v.two("step5")
	deploy := func(old *gexec.Session, name string) (address string, s *gexec.Session) {
		old.Terminate()
		v.Eventually(old, patience).Should(gexec.Exit(0))
		address = fmt.Sprint("127.0.0.1:", natstest.FreePort(v.T))
		s = v.start("step6", name, address)
		v.Eventually(func() int { status, _ := get(address + "/healthz"); return status }, patience).Should(Equal(http.StatusOK))
		v.Eventually(func() int {
			check := v.start("election-cli", "check", "billing")
			<-check.Exited
			return check.ExitCode()
		}, patience).Should(BeZero())
		return address, s
	}
	addressB, _ := deploy(b, "b")
	v.Expect(a).NotTo(gexec.Exit())
	addressA, _ := deploy(a, "a")
	v.sees("b .* state=leader-elect reason=released")
	v.sees(`b .* invoice \d+`)
	v.expectEachInvoiceOnce()

	leads, _ := get(addressB + "/leader")
	standsBy, _ := get(addressA + "/leader")
	v.Expect([]int{leads, standsBy}).To(Equal([]int{http.StatusOK, http.StatusServiceUnavailable}))
	_, metrics := get(addressB + "/metrics")
	v.Expect(metrics).To(ContainSubstring(`election_leader{bucket="LEADER_ELECTION",election="billing",identity="b"} 1`))
}

// get returns the status and the body of a page; 0 if nobody answers.
func get(address string) (status int, body string) {
	answer, err := http.Get("http://" + address)
	if err != nil {
		return 0, ""
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(answer.Body)
	return answer.StatusCode, string(text)
}

// lines counts the lines of a text with a sign, regardless of blanks at their beginnings, and adds them to those that were counted.
func lines(counted map[string]int, text string, sign int) {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			counted[line] += sign
		}
	}
}

func TestThePageShowsEveryChange(t *testing.T) {
	g := NewWithT(t)
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "TUTORIAL.md"))
	g.Expect(err).NotTo(HaveOccurred())
	var diffs []string
	for _, b := range clitest.ParsePage("docs/TUTORIAL.md", string(text)).Blocks {
		if b.Language == "diff" {
			diffs = append(diffs, b.Text)
		}
	}
	g.Expect(diffs).To(HaveLen(steps - 1))
	for i, diff := range diffs {
		shown, made := map[string]int{}, map[string]int{}
		for line := range strings.Lines(diff) {
			switch line[0] {
			case '+':
				lines(shown, line[1:], 1)
			case '-':
				lines(shown, line[1:], -1)
			}
		}
		lines(made, code(g, i+1), -1)
		lines(made, code(g, i+2), 1)
		unchanged := func(_ string, n int) bool { return n == 0 }
		maps.DeleteFunc(shown, unchanged)
		maps.DeleteFunc(made, unchanged)
		g.Expect(shown).To(Equal(made), "step %d", i+2)
	}
}

// code returns the program of a step from its first function on.
func code(g *WithT, step int) string {
	text, err := os.ReadFile(filepath.Join(fmt.Sprint("step", step), "main.go"))
	g.Expect(err).NotTo(HaveOccurred())
	_, after, found := strings.Cut(string(text), "\nfunc ")
	g.Expect(found).To(BeTrue())
	return after
}
