package cli

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"time"

	"github.com/choria-io/fisk"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/cli/terminal"
)

const (
	defaultHealthMaxAge   = 30 * time.Second
	defaultHealthFailures = 3
	// healthWaitDelay is how long a health command that was killed may leave its output open, by a process outside its group.
	healthWaitDelay = time.Second
	// maxHealthOutput is how many bytes of the output of a health command an error has.
	maxHealthOutput = 200
)

// HealthHelp explains the flags of HealthFlags.
const HealthHelp = `Health: with --health-url, --health-file or --health-command this candidate leads only while the check succeeds. It is checked
four times per --interval. Before its first success the candidate does not campaign. After --health-failures in a row a leader hands over in order,
for the reason unhealthy, and campaigns again after as many successes, and after more if it fails soon again, as a program does that crashes
again and again. --health-url succeeds by a status from 200 to 399; a redirect is not followed. --health-file succeeds while the file was
changed within --health-max-age. --health-command succeeds by exit code 0; it is split at blanks and runs without a shell. A check
that takes longer than 3/16 of the TTL has failed, and its command is killed. If several are given, all must succeed.`

// HealthFlags are the flags that tie leadership to the health of a program.
type HealthFlags struct {
	url, file, command string
	maxAge             time.Duration
	failures           int

	maxAgeSet, failuresSet bool
}

// Register adds the flags to a command.
func (h *HealthFlags) Register(cmd *fisk.CmdClause) {
	cmd.Flag("health-url", "Lead only while a GET of this URL succeeds").PlaceHolder("URL").StringVar(&h.url)
	cmd.Flag("health-file", "Lead only while this file is changed again and again").PlaceHolder("PATH").StringVar(&h.file)
	DurationVar(cmd.Flag("health-max-age", fmt.Sprintf("Time within which the file of --health-file must have changed (default %v)", defaultHealthMaxAge)).IsSetByUser(&h.maxAgeSet), &h.maxAge)
	cmd.Flag("health-command", "Lead only while this command succeeds; it is split at blanks").PlaceHolder("COMMAND").StringVar(&h.command)
	IntVar(cmd.Flag("health-failures", fmt.Sprintf("Failures in a row after which the candidate is unhealthy (default %d)", defaultHealthFailures)).IsSetByUser(&h.failuresSet), &h.failures, defaultHealthFailures)
}

// given reports whether there is a check.
func (h *HealthFlags) given() bool { return h.url != "" || h.file != "" || h.command != "" }

// Check validates the flags, and fills in defaults.
func (h *HealthFlags) Check() error {
	var problems Problems
	problems.If(h.failuresSet && !h.given(), "--health-failures needs a check: give --health-url, --health-file or --health-command too, or leave it out")
	problems.If(h.maxAgeSet && h.file == "", "--health-max-age needs --health-file: give that flag too, or leave it out")
	problems.If(h.maxAgeSet && h.maxAge <= 0, "--health-max-age %v: give a positive duration such as 30s", h.maxAge)
	problems.If(h.failuresSet && (h.failures < 1 || h.failures > 1000), "--health-failures %d: give a number from 1 to 1000", h.failures)
	if h.url != "" {
		u, err := url.Parse(h.url)
		problems.If(err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https", "--health-url %q cannot be used: give a URL such as http://127.0.0.1:8080/healthz", h.url)
	}
	if h.command != "" {
		args := strings.Fields(h.command)
		problems.If(len(args) == 0, "--health-command %q is empty: give a command such as /usr/local/bin/healthy", h.command)
		if len(args) > 0 {
			_, err := exec.LookPath(args[0])
			problems.If(err != nil, "--health-command: %w: give the path of a program", err)
		}
	}
	if !h.maxAgeSet {
		h.maxAge = defaultHealthMaxAge
	}
	if !h.failuresSet {
		h.failures = defaultHealthFailures
	}
	return problems.Err()
}

// Options returns the options for the checks that are given, if any. The function run runs a command until its end.
func (h *HealthFlags) Options(log *slog.Logger, run func(*exec.Cmd) error) []election.Option {
	if !h.given() {
		return nil
	}
	checks := []func(context.Context) error{}
	if h.url != "" {
		checks = append(checks, h.checkURL)
	}
	if h.file != "" {
		checks = append(checks, h.checkFile)
	}
	if h.command != "" {
		checks = append(checks, func(ctx context.Context) error { return h.checkCommand(ctx, run) })
	}
	var told atomic.Bool // whether the log says something of the checks; the library logs what follows the first success
	check := func(ctx context.Context) error {
		for _, check := range checks {
			if err := check(ctx); err != nil {
				if !told.Swap(true) {
					log.Warn("Health check fails, not campaigning before it succeeds", "error", err)
				}
				return err
			}
		}
		told.Store(true)
		return nil
	}
	return []election.Option{election.WithHealthCheck(check), election.WithHealthThreshold(h.failures)}
}

// healthClient makes a connection for each check, as a new client of the program does.
var healthClient = &http.Client{
	Transport:     &http.Transport{DisableKeepAlives: true},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

func (h *HealthFlags) checkURL(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, h.url, nil)
	if err != nil {
		return fmt.Errorf("--health-url: %w", err)
	}
	response, err := healthClient.Do(request)
	if err != nil {
		return fmt.Errorf("--health-url: %w", err)
	}
	_ = response.Body.Close()
	if response.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("--health-url: GET %s: status %s", request.URL.Redacted(), terminal.Printable(response.Status))
	}
	return nil
}

func (h *HealthFlags) checkFile(context.Context) error {
	info, err := os.Stat(h.file)
	if err != nil {
		return fmt.Errorf("--health-file: %w", err)
	}
	switch age := time.Since(info.ModTime()); {
	case age > h.maxAge:
		return fmt.Errorf("--health-file: %s was last changed %v ago, and must change within %v", h.file, age.Round(time.Millisecond), h.maxAge)
	case age < -h.maxAge:
		return fmt.Errorf("--health-file: %s was changed in the future, in %v: correct the clock of this host, or change the file again", h.file, -age.Round(time.Millisecond))
	}
	return nil
}

func (h *HealthFlags) checkCommand(ctx context.Context, run func(*exec.Cmd) error) error {
	args := strings.Fields(h.command)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	var output firstBytes
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &output, &output, healthWaitDelay
	ownGroup(cmd)
	err := run(cmd)
	text := terminal.Printable(strings.TrimSpace(string(output)))
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("--health-command: %s took too long and was killed", h.command)
	case text != "":
		return fmt.Errorf("--health-command: %s: %w: %s", h.command, err, text)
	}
	return fmt.Errorf("--health-command: %s: %w", h.command, err)
}

// firstBytes keeps the beginning of what is written.
type firstBytes []byte

func (b *firstBytes) Write(p []byte) (int, error) {
	*b = append(*b, p[:min(len(p), maxHealthOutput-len(*b))]...)
	return len(p), nil
}
