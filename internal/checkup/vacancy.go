package checkup

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natscampaign/election/admin"
	"github.com/natscampaign/election/internal/control"
	"github.com/natscampaign/election/internal/look"
	"github.com/natscampaign/election/internal/terminal"
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
func (r *Result) explainVacancies(bucket string, answers map[string]look.Answers, about []admin.Finding) {
	blocked := slices.IndexFunc(about, func(f admin.Finding) bool { return f.Severity == admin.SeverityCritical && blocking[f.Code] != "" })
	for i := range r.Findings {
		f, cause, fix := &r.Findings[i], "", ""
		switch {
		case f.Code != codeLeaseOver && f.Code != codeNoLeader || f.Fix != "":
			continue
		case blocked >= 0:
			cause, fix = ": "+blocking[about[blocked].Code], about[blocked].Fix
		default:
			cause, fix = r.vacancy(bucket, f.Key, answers[f.Key], about)
		}
		f.Message, f.Short, f.Fix = f.Message+cause, f.Short+cause, fix
	}
}

// inItsLog is where a candidate says what nobody else can find out.
const inItsLog = "or read its log, which says why: a candidate that cannot connect, or may not write or answer, looks the same from here"

// vacancy returns why nobody leads an election, in words that follow "nobody leads it", and what to do about that.
func (r *Result) vacancy(bucket, key string, a look.Answers, about []admin.Finding) (cause, fix string) {
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
	failure, correct := failing(a.Candidates)
	switch {
	case a.Leads():
		return ", but a candidate says that it leads", fmt.Sprintf("run 'election-cli check %s' again; if this stays, run 'election-cli info': a replica is far behind", key)
	case failure != "":
		return failure, correct
	case ready > 0:
		return ": " + answer, fmt.Sprintf("run 'election-cli wait %[1]s --max-wait %[2]v'; if nobody leads then, run 'election-cli check %[1]s' with the credentials of a candidate", key, r.patience())
	case len(a.Candidates) > 0:
		return ": " + answer + ", and none is ready", notReady(key)
	case refused >= 0:
		return ", and this user may not write the key, as a candidate must", about[refused].Fix
	case errors.Is(a.Err, nats.ErrPermissionViolation):
		return "; this user may not ask whether there are candidates", fmt.Sprintf("run 'election-cli check %s --as operator' as a user who may publish to %s, and subscribe to %s",
			key, control.Subject(bucket, "*", key), control.AnswerSubject(bucket, "*", key))
	}
	return ": no candidate answers", "start the program that campaigns, " + inItsLog + "; 'election-cli ls' shows how the keys of other elections are spelt"
}

// patience is how long it takes at most, in whole seconds, until a candidate leads that polls.
func (r *Result) patience() time.Duration { return time.Duration(math.Ceil(4*r.TTLS)) * time.Second }

// notReady is what to do about candidates that answer, and would not take over.
func notReady(key string) string {
	return fmt.Sprintf("run 'election-cli candidates %s', and see in the log of a candidate what holds it back", key)
}

// failing returns why requests of candidates fail, if a candidate says so, and what to do about that.
func failing(candidates []admin.Candidate) (cause, fix string) {
	for _, c := range candidates {
		if c.LastError != "" {
			return fmt.Sprintf(": requests of %s fail: %s", terminal.Quote(c.Name), terminal.PrintableUpTo(c.LastError, terminal.MaxValue)),
				"correct what the error names, or the log of that candidate, which says what the server does not permit; if resources are insufficient or exceeded, the server or the account has no room: grant it more storage, or remove what fills it"
		}
	}
	return "", ""
}
