package checkup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natscampaign/election/admin"
	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/cli/look"
	"github.com/natscampaign/election/internal/cli/terminal"
	"github.com/natscampaign/election/internal/control"
	"github.com/natscampaign/election/internal/forecast"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/timing"
	"github.com/natscampaign/election/internal/validate"
)

// blocking are the findings about a bucket in which nobody can win, nor renew, in words that say why.
var blocking = map[string]string{
	"account-full":     "the account has no room for a record",
	"bucket-full":      "the bucket has no room for a further record",
	"no-stream-leader": "the stream has no leader",
	"replicas-offline": "no majority of the replicas is left",
	"message-size":     "no record fits into a message",
	"no-ttl":           "the bucket has no TTL",
	"ttl-out-of-range": "the bucket has no fit TTL",
	"history":          "the bucket keeps a history",
	"stream-settings":  "the bucket's stream is not fit for elections",
	"copied-bucket":    "the bucket is a copy of another",
}

// explainVacancies completes the findings about elections without a leader, for which it is not known why, by the answers of the
// candidates and the findings about the bucket. A key whose lease is over stays where the server cannot write the marker of its expiry.
func (r *Result) explainVacancies(answers map[string]look.Answers, about []admin.Finding) {
	blocked := slices.IndexFunc(about, func(f admin.Finding) bool { return f.Severity == admin.SeverityCritical && blocking[f.Code] != "" })
	for i := range r.Findings {
		f, cause, fix := &r.Findings[i], "", ""
		switch {
		case f.Code != codeLeaseOver && f.Code != codeNoLeader || f.Fix != "":
			continue
		case blocked >= 0:
			cause, fix = ": "+blocking[about[blocked].Code], about[blocked].Fix
		default:
			cause, fix = r.vacancy(f.Key, answers[f.Key], about)
		}
		f.Message, f.Short, f.Fix = f.Message+cause, f.Short+cause, fix
	}
}

// addEnds adds to the findings about elections without a leader who led last, until when, and why that ended, as far as that is known: an election that
// ended in order and has no candidate was stopped, and one whose leader vanished was not.
func (r *Result) addEnds(ctx context.Context, v *look.View) {
	for i := range r.Findings {
		f := &r.Findings[i]
		if f.Code != codeNoLeader {
			continue
		}
		if e, known := v.LastEnd(ctx, f.Key); known {
			end := "; " + v.DescribeEnd(e)
			f.Message, f.Short = f.Message+end, f.Short+end
			f.Fix = strings.TrimSuffix(f.Fix, r.spelling()) // as this key is
		}
	}
}

// inItsLog is where a candidate says what nobody else can find out.
const inItsLog = "or read its log, which says why: a candidate that cannot connect, or may not write or answer, looks the same from here"

// vacancy returns why nobody leads an election, in words that follow "nobody leads it", and what to do about that.
func (r *Result) vacancy(key string, a look.Answers, about []admin.Finding) (cause, fix string) {
	ready := 0
	for _, c := range a.Candidates {
		if c.Ready {
			ready++
		}
	}
	refused := slices.IndexFunc(about, func(f admin.Finding) bool { return f.Code == "write-refused" })
	answer := fmt.Sprintf("%s answer", terminal.Plural(len(a.Candidates), "candidate"))
	if len(a.Candidates) == 1 {
		answer += "s"
	}
	failure, correct := r.failing(a.Candidates, about)
	switch {
	case a.Leads():
		return ", but a candidate says that it leads", fmt.Sprintf("run %s again; if this stays, run %s: a replica is far behind", r.command("check "+key), r.command("info"))
	case ready > 0:
		return ": " + answer, fmt.Sprintf("run %s; if nobody leads then, run %s with the credentials of a candidate", r.command(fmt.Sprintf("wait %s --max-wait %v", key, r.patience())), r.command("check "+key))
	case failure != "":
		return failure, correct
	case len(a.Candidates) > 0:
		return ": " + answer + ", and none is ready", r.notReady(key)
	case refused >= 0:
		return ", and this user may not write the key, as a candidate must", about[refused].Fix
	case errors.Is(a.Err, nats.ErrPermissionViolation):
		return "; this user may not ask whether there are candidates", fmt.Sprintf("run %s as a user who may publish to %s, and subscribe to %s",
			r.command("check "+key+" --as operator"), control.Subject(r.Bucket, "*", key), control.AnswerSubject(r.Bucket, "*", key))
	}
	return ": no candidate answers", fmt.Sprintf("start the program that campaigns, %s", inItsLog) + r.spelling()
}

// spelling is what to do if the key of an election may be misspelt, in words that follow a fix.
func (r *Result) spelling() string {
	return fmt.Sprintf("; %s shows how the keys of other elections are spelt", r.command("ls"))
}

// command names a command, with the bucket unless that is the default.
func (r *Result) command(command string) string {
	return cli.NameCommand(command, r.Bucket)
}

// patience is how long it takes at most, in whole seconds, until a candidate leads that polls, whatever its interval is.
func (r *Result) patience() time.Duration {
	ttl := r.ttl()
	slowest, _ := (&timing.Durations{Interval: new(timing.LongestInterval(ttl))}).Timing(ttl)
	worst := forecast.Candidates{Backoff: true, Unreadable: true, Markers: kv.MarkerTTL}.Failovers(slowest).Crash.Worst
	return (worst + time.Second - 1).Truncate(time.Second)
}

// notReady is what to do about candidates that answer, and would not take over.
func (r *Result) notReady(key string) string {
	return fmt.Sprintf("run %s, and see in the log of a candidate what holds it back", r.command("candidates "+key))
}

// failing returns why the writes of candidates fail, if a candidate says so that is not ready, and what to do about that. An error that is older than a
// candidate takes to try again is no reason: something else holds the candidate back.
func (r *Result) failing(candidates []admin.Candidate, about []admin.Finding) (cause, fix string) {
	latest := timing.RequestTimeout + 2*r.ttl()
	for _, c := range candidates {
		if c.LastError == "" || c.Ready || c.LastErrorAge > latest {
			continue
		}
		ago := ""
		if c.LastErrorAge > 0 { // a candidate of an earlier version does not say when
			ago = ", " + terminal.FormatRoughly(c.LastErrorAge) + " ago"
		}
		return fmt.Sprintf(": requests of %s fail%s: %s", terminal.Quote(c.Name), ago, terminal.PrintableUpTo(c.LastError, terminal.MaxValue)), r.correction(c, about)
	}
	return "", ""
}

// correction returns what to do about the last error of a candidate.
func (r *Result) correction(c admin.Candidate, about []admin.Finding) string {
	name, says := terminal.Quote(c.Name), func(text string) bool { return strings.Contains(c.LastError, text) }
	subject, message := cli.Refused(c.LastError)
	switch {
	case message:
		return fmt.Sprintf("permit the user of %s to publish to %s", name, terminal.Printable(subject))
	case subject != "":
		return fmt.Sprintf("have %s connect with the inbox prefix that its permissions name, by --inbox-prefix, ELECTION_INBOX_PREFIX or nats.CustomInboxPrefix", name)
	case says("resource limits exceeded for account"):
		return cmp.Or(fixOf("account-full", about), "raise max_file of the account, or max_mem for a bucket in memory, or remove messages or streams of the account, which 'nats stream report' lists")
	case says("insufficient"): // storage, or resources
		return "raise max_file of the servers, or max_mem for a bucket in memory, or remove what fills them, which 'nats stream report' lists, or their disks"
	case says("maximum bytes exceeded"), says("maximum messages exceeded"):
		return cmp.Or(fixOf("bucket-full", about), "wait until it tries again: the bucket has room now")
	case says(validate.ErrInvalidOption.Error()):
		return fmt.Sprintf("change that option of %s, or the bucket's TTL", name)
	case says(kv.ErrUnsuitable.Error()):
		return cmp.Or(fixOf("memory-replicated", about), "wait until it looks again: the bucket is fit now")
	}
	return fmt.Sprintf("read the log of %s, and mend its connection or what that error names", name)
}

// fixOf returns the fix of the finding with the code; empty if there is none.
func fixOf(code string, about []admin.Finding) string {
	if i := slices.IndexFunc(about, func(f admin.Finding) bool { return f.Code == code }); i >= 0 {
		return about[i].Fix
	}
	return ""
}
