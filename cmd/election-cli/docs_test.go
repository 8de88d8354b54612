package main

import (
	"cmp"
	"errors"
	"io"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/choria-io/fisk"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/test/clitest"
	"github.com/natscampaign/election/internal/test/natstest"
)

// docPages returns README.md and the pages of docs.
func docPages(t *testing.T) []clitest.Page {
	t.Helper()
	pages, err := clitest.Pages(filepath.Join("..", ".."))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return pages
}

// errParsed ends the parser before it runs a command.
var errParsed = errors.New("parsed")

// parseOnly parses a command line as the command does, with every check of its flags and arguments, and runs nothing.
func parseOnly(args []string) error {
	own, argv := cutProgram(args)
	a := app(&cli.Env{Stdout: io.Discard, Stderr: io.Discard, Argv: argv})
	if asksForHelp(args) {
		_, err := a.ParseContext(own)
		return err
	}
	_, err := a.Validate(func(*fisk.Application) error { return errParsed }).Parse(own)
	if errors.Is(err, errParsed) {
		return nil
	}
	return cmp.Or(err, errors.New("it ran"))
}

func asksForHelp(args []string) bool {
	return len(args) == 0 || args[0] == "help" || slices.ContainsFunc(args, func(arg string) bool {
		return arg == "--help" || arg == "--help-long" || arg == "--version" || strings.HasPrefix(arg, "--completion") || arg == "--help-man"
	})
}

func TestTheDocumentsGiveCommandLinesThatTheCommandTakes(t *testing.T) {
	natstest.SkipIfShort(t)
	t.Parallel()
	missing := regexp.MustCompile(`required (argument|flag)`)
	blocks, spans := 0, 0
	for _, p := range docPages(t) {
		for _, b := range p.Blocks {
			for _, c := range b.Commands() {
				if args, ok := c.CLI(); ok {
					blocks++
					if err := parseOnly(args); err != nil {
						t.Errorf("%s:%d: election-cli %s: %v", c.Page, c.Line, strings.Join(args, " "), err)
					}
				}
			}
		}
		for _, s := range p.Spans {
			for _, c := range s.Commands() {
				if args, ok := c.CLI(); ok && c.Args[0] == "election-cli" && len(args) > 0 {
					spans++
					if err := parseOnly(args); err != nil && !missing.MatchString(err.Error()) { // prose may name a command without its arguments
						t.Errorf("%s:%d: election-cli %s: %v", c.Page, c.Line, strings.Join(args, " "), err)
					}
				}
			}
		}
	}
	NewWithT(t).Expect([]int{blocks, spans}).To(HaveEach(BeNumerically(">", 5)), "there are commands to try")
}

func TestACommandLineThatTheCommandRefusesIsFound(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	for line, want := range map[string]string{
		"ls --jsn": "jsn", "lss": "lss", "wait": "required argument", "wait x --max-wait 3": "max-wait", "drill --ttl x": "ttl", "bucket": "must select",
		"ls extra": "extra", "transfer x": "required flag", "check --format y": "--format",
	} {
		g.Expect(parseOnly(strings.Fields(line))).To(MatchError(ContainSubstring(want)), line)
	}
	for _, line := range []string{"ls", "help run", "run --help", "run x -- y --z", "--version", "wait x --max-wait 3s"} {
		g.Expect(parseOnly(strings.Fields(line))).To(Succeed(), line)
	}
}

// notRun says why a command of the documents is parsed and not run.
var notRun = map[string]string{
	"campaign": "it campaigns until it is interrupted",
	"file":     "it maintains a file until it is interrupted",
	"watch":    "it prints events until it is interrupted",
	"server":   "it serves until it is interrupted",
	"run":      "the program of the example is not there",
	"drill":    "it takes half a minute and more; tests of its own run it",
}

// notRunWith says the same of flags.
var notRunWith = map[string]string{
	"--serve":    "it serves until it is interrupted",
	"--context":  "the context is the reader's",
	"--replicas": "the test has one server",
	"--vacant":   "it waits for what does not happen here",
	"--leader":   "it waits for what does not happen here",
}

// runs reports whether the command line of a document is run by a test.
func runs(args []string) bool {
	return !asksForHelp(args) && notRun[commandOf(args)] == "" &&
		!slices.ContainsFunc(args, func(arg string) bool { return notRunWith[arg] != "" })
}

func TestTheCommandsOfTheDocumentsRun(t *testing.T) {
	t.Parallel()
	d := newReader(t)
	ran := 0
	for _, p := range docPages(t) {
		for _, b := range p.Blocks {
			var paused []string
			for _, c := range b.Commands() {
				args, ok := c.CLI()
				if !ok || !runs(args) {
					continue
				}
				ran++
				code, output := d.execute(args)
				if commandOf(args) == "pause" {
					paused = append(paused, args[1])
				}
				if code != 0 {
					t.Errorf("%s:%d: election-cli %s: exit code %d\n%s", c.Page, c.Line, strings.Join(args, " "), code, output)
				}
			}
			for _, key := range paused { // else nobody leads in the next block
				d.execute([]string{"resume", key})
			}
		}
	}
	NewWithT(t).Expect(ran).To(BeNumerically(">", 5), "there are commands to try")
}

// reader runs what the documents say, on a server where three candidates campaign in each election that they name.
type reader struct {
	*fixture
	candidates map[string][]*election.Election
}

// newReader returns a reader whose leases are so long that no leader loses one on a busy host. They are not longer, because nobody
// leads for up to one campaign interval after a pause in which the leader resigned.
func newReader(t *testing.T) *reader {
	t.Helper()
	return &reader{newFixture(t, 10*time.Second), map[string][]*election.Election{}}
}

// execute runs a command line of the documents. Commands that make or remove a bucket have a server of their own, and so has evict: after
// it nobody leads for a TTL.
func (r *reader) execute(args []string) (code int, output string) {
	r.T.Helper()
	args = withoutServer(args)
	server := r.Server.URL()
	switch name := commandOf(args); name {
	case "bucket add", "bucket rm":
		own, _ := clitest.ServerWithoutBucket(r.T)
		if server = own.URL(); name == "bucket rm" {
			_, _, _ = runInProcess("bucket", "add", "-s", server)
			args = append(args, "--force")
		}
	case "evict":
		own := newReader(r.T)
		own.elect(args[1])
		server, args = own.Server.URL(), append(args, "--force")
	case "candidates", "check", "info", "pause", "resign", "transfer", "wait":
		if len(args) > 1 && !strings.HasPrefix(args[1], "-") {
			r.elect(args[1])
		}
	}
	code, stdout, stderr := runInProcess(append(args, "-s", server)...) // with the race detector a process takes a second to end
	return code, stdout + stderr
}

// withoutServer returns a copy of the arguments without the server of the reader.
func withoutServer(args []string) (kept []string) {
	for i := 0; i < len(args); i++ {
		if args[i] == "-s" || args[i] == "--server" {
			i++
			continue
		}
		kept = append(kept, args[i])
	}
	return kept
}

// elect waits until a candidate leads, and starts the candidates before that if there are none.
func (r *reader) elect(key string) {
	r.T.Helper()
	if r.candidates[key] == nil {
		for _, name := range []string{"web-1", "web-2", "web-3"} {
			r.candidates[key] = append(r.candidates[key], clitest.Campaign(r.T, r.Bucket, name, key))
		}
	}
	r.Eventually(func() bool { return slices.ContainsFunc(r.candidates[key], (*election.Election).IsLeader) }).Should(BeTrue(), "somebody leads in %s", key)
}
