package main

import (
	"io"
	"os"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/test/clitest"
)

// wayOut is a command line that is refused, the text that says so and what to do, and the same command line after that was done, in each way
// that the text names.
type wayOut struct {
	refused string
	says    string
	done    []string
}

// waysOut has the errors about command lines. Where the way out is a command for a bucket, see fixes.
var waysOut = []wayOut{
	{"bucket add --replicas 2", "--replicas 2: give 1, 3 or 5", []string{"bucket add --replicas 3"}},
	{"bucket add --ttl 500ms", "give at least 1s, better 2s", []string{"bucket add --ttl 1s", "bucket add --ttl 2s"}},
	{"bucket add --ttl 2h", "give at most 1h", []string{"bucket add --ttl 1h"}},
	{"bucket prune --older-than=-1s --force", "give a positive duration, such as 720h", []string{"bucket prune --older-than 720h --force"}},
	{"drill --alert ElectionNoLeader", "--alert requires --alerts: give both, or leave --alert out", nil},
	{"drill --every 1s", "--every requires --processes: give both, or leave --every out", nil},
	{"drill --processes --every 1ms", "--every 1ms: give at least 500ms, or leave it out", nil},
	{"drill --processes --rounds 2", "leave out --server, --context, --embedded and --rounds", nil},
	{"drill --candidates 1", "--candidates 1: give 2 to", nil},
	{"drill --rounds 0", "--rounds 0: give 1 to", nil},
	{"drill --replicas 2", "--replicas 2: give 1, 3 or 5", nil},
	{"wait k --leader a --vacant", "--leader and --vacant exclude each other: give one of them", []string{"wait k --leader a", "wait k --vacant"}},
	{"wait k --max-wait 0s", "give a positive duration such as 30s, or leave out --max-wait", []string{"wait k --max-wait 30s", "wait k"}},
	{"watch k --count 0", "give a positive number, or leave out --count", []string{"watch k --count 1", "watch k"}},
	{"check k --expect k", "KEY and --expect exclude each other", []string{"check k", "check --expect k"}},
	{"check --json --format nagios", "--json and --format nagios exclude each other: give one of them", []string{"check --json", "check --format nagios"}},
	{"check --grace=-1s", "give a positive duration such as 5s", []string{"check --grace 5s"}},
	{"check --overdue 0s", "give a positive duration such as 25s, or leave it out", []string{"check --overdue 25s", "check"}},
	{"campaign k --ttl 5s", "add --embedded, or leave them out", []string{"campaign k"}},
	{"campaign k --metrics-choria", "add --metrics, or leave them out", []string{"campaign k --metrics-choria --metrics 127.0.0.1:0", "campaign k"}},
	{"campaign k --web-config w", "add one of them, or leave it out", []string{"campaign k"}},
	{"campaign k --health-failures 3", "give --health-url, --health-file or --health-command too, or leave it out", []string{"campaign k --health-failures 3 --health-file FILE", "campaign k"}},
	{"campaign k --health-max-age 3s", "give that flag too, or leave it out", []string{"campaign k --health-max-age 3s --health-file FILE", "campaign k"}},
	{"campaign k --health-url nohost", "give a URL such as http://127.0.0.1:8080/healthz", []string{"campaign k --health-url http://127.0.0.1:8080/healthz"}},
	{"campaign k --health-command /nowhere", "give the path of a program", []string{"campaign k --health-command FILE"}},
	{"campaign k --health-failures 0 --health-file FILE", "give a number from 1 to 1000", []string{"campaign k --health-failures 1 --health-file FILE"}},
	{"file k", "give election-cli file KEY PATH, or election-cli file --check PATH", []string{"file k PATH", "file --check PATH"}},
	{"dashboard --web-config w", "--web-config is for --serve: add it, or leave --web-config out", []string{"dashboard"}},
	{"dashboard --expect k", "add --serve, or leave --expect out", []string{"dashboard", "rules --expect k"}},
	{"run k /bin/true --flag", "-- is missing before the program", []string{"run k -- /bin/true --flag"}},
	{"run k /bin/true -- /bin/true", "give all of the program after the first --", []string{"run k -- /bin/true /bin/true"}},
	{"run k --", "as in 'election-cli run [<flags>] <key> -- <program> [<args>...]'", []string{"run k -- /bin/true"}},
	{"run k --no-wait --max-wait 1s -- /bin/true", "--no-wait and --max-wait exclude each other: give only one of them", []string{"run k --no-wait -- /bin/true", "run k --max-wait 1s -- /bin/true"}},
	{"run k --on-lost signal --no-wait -- /bin/true", "leave out --no-wait and --max-wait", []string{"run k --on-lost signal -- /bin/true"}},
	{"run k --won USR1 -- /bin/true", "--won and --lost need --on-lost=signal", []string{"run k --won USR1 --on-lost signal -- /bin/true", "run k -- /bin/true"}},
	{"run k --won NOPE --on-lost signal -- /bin/true", "give one such as USR1 or HUP", []string{"run k --won HUP --on-lost signal -- /bin/true"}},
	{"run k --conflict-exit-code 3 -- /bin/true", "--conflict-exit-code needs --no-wait: give that flag too, or leave it out", []string{"run k --conflict-exit-code 3 --no-wait -- /bin/true", "run k -- /bin/true"}},
	{"run k --conflict-exit-code 300 --no-wait -- /bin/true", "give a number from 0 to 255", []string{"run k --conflict-exit-code 255 --no-wait -- /bin/true"}},
	{"run k --hold-at-least 1s --restart always -- /bin/true", "leave out --on-lost=signal and --restart, or --hold-at-least", []string{"run k --hold-at-least 1s -- /bin/true", "run k --restart always -- /bin/true"}},
	{"run k --on-exit keep -- /bin/true", "--on-exit needs --restart: give that flag too, or leave it out", []string{"run k --on-exit keep --restart always -- /bin/true", "run k -- /bin/true"}},
	{"run k --verbose --quiet -- /bin/true", "give only one of them", []string{"run k --verbose -- /bin/true", "run k --quiet -- /bin/true"}},
	{"witness --socket s", "give one that begins with /", []string{"witness --socket PATH"}},
	{"witness --socket PATH --socket-mode rw", "give one in octal, such as 0600, 0660 or 0666", []string{"witness --socket PATH --socket-mode 0660"}},
	{"ls --password x", "--password needs --user", []string{"ls --user u --password x"}},
	{"ls --tlscert FILE", "give both or neither", []string{"ls"}},
	{"ls --js-domain d --js-api-prefix p", "give one of them", []string{"ls --js-domain d", "ls --js-api-prefix p"}},
	{"ls --context c --no-context", "give one of them", []string{"ls --no-context"}},
	{"ls --timeout 0s", "give a positive duration such as 5s", []string{"ls --timeout 5s"}},
	{"campaign k --connect-timeout 0s", "give a positive duration such as 30s, or leave it out", []string{"campaign k --connect-timeout 30s", "campaign k"}},
}

func TestWhatAnErrorAboutACommandLineSaysToDoIsAccepted(t *testing.T) {
	for _, w := range waysOut {
		t.Run(w.refused, func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			g.Expect(firstWords(t, w.refused, clitest.Timeout)).To(ContainSubstring(w.says)) // it ends by itself
			for _, line := range w.done {
				g.Expect(firstWords(t, line, 2*time.Second)).NotTo(ContainSubstring(w.says), line)
			}
		})
	}
}

// firstWords runs a command line where no server is, and returns what it writes to stderr until it has ended, or for the given time: it may wait for a
// server. FILE stands for a file that can be run, PATH for a path where none is.
func firstWords(t *testing.T, line string, most time.Duration) string {
	t.Helper()
	cmd, _, _ := command(t, strings.Fields(strings.NewReplacer("FILE", "/bin/true", "PATH", t.TempDir()+"/x").Replace(line))...)
	cmd.Env = append(os.Environ(), "NATS_URL=nats://127.0.0.1:1")
	cmd.Stderr = nil
	stderr, err := cmd.StderrPipe()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	NewWithT(t).Expect(cmd.Start()).To(Succeed())
	defer time.AfterFunc(most, func() { _ = cmd.Process.Kill() }).Stop()
	text, _ := io.ReadAll(stderr)
	_ = cmd.Wait()
	return string(text)
}
