package checkup

import (
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go"

	"github.com/natscampaign/election/admin"
	"github.com/natscampaign/election/internal/look"
	"github.com/natscampaign/election/internal/terminal"
)

// unwritable are the findings about a bucket in which nobody can win, nor renew, in words that say why.
var unwritable = map[string]string{
	"account-full":     "the account has no room for a record",
	"bucket-full":      "the bucket has no room for a further record",
	"no-stream-leader": "the stream has no leader",
	"replicas-offline": "no majority of the replicas is left",
}

// explainVacancies completes the findings about elections without a leader, for which it is not known why, by the answers of the
// candidates and the findings about the bucket. A key whose lease is over stays where the server cannot write the marker of its expiry.
func (r *Result) explainVacancies(answers map[string]look.Answers, bucket []admin.Finding) {
	blocking := slices.IndexFunc(bucket, func(f admin.Finding) bool { return f.Severity == admin.SeverityCritical && unwritable[f.Code] != "" })
	for i := range r.Findings {
		f, cause, fix := &r.Findings[i], "", ""
		switch {
		case f.Code != codeLeaseOver && (f.Code != codeNoLeader || f.Fix != ""):
			continue
		case blocking >= 0:
			cause, fix = ": "+unwritable[bucket[blocking].Code], bucket[blocking].Fix
		case f.Code == codeNoLeader:
			cause, fix = vacancy(f.Key, answers[f.Key], bucket)
		default:
			if cause, fix = failing(answers[f.Key].Candidates); cause == "" {
				continue
			}
		}
		f.Message, f.Short, f.Fix = f.Message+cause, f.Short+cause, fix
	}
}

// vacancy returns why nobody leads an election, in words that follow "nobody leads it", and what to do about that.
func vacancy(key string, a look.Answers, bucket []admin.Finding) (cause, fix string) {
	ready := 0
	for _, c := range a.Candidates {
		if c.Ready {
			ready++
		}
	}
	refused := slices.IndexFunc(bucket, func(f admin.Finding) bool { return f.Code == "write-refused" })
	answer := fmt.Sprintf("%s answer", terminal.Plural(len(a.Candidates), "candidate"))
	if len(a.Candidates) == 1 {
		answer += "s"
	}
	failure, correct := failing(a.Candidates)
	switch {
	case refused >= 0 && ready == 0:
		return ", and this user may not write the key, as a candidate must", bucket[refused].Fix + "; if the user is no candidate's, add --as observer"
	case errors.Is(a.Err, nats.ErrPermissionViolation):
		return "; this user may not ask whether there are candidates", "run 'election-cli candidates " + key + "' as a user who may publish to election-control.BUCKET.candidates.KEY, and subscribe to election-answers.BUCKET.*.KEY"
	case len(a.Candidates) == 0:
		return ": no candidate answers", fmt.Sprintf("start a candidate, such as 'election-cli campaign %s'; 'election-cli ls' shows how the keys of other elections are spelt", key)
	case failure != "":
		return failure, correct
	case ready == 0:
		return ": " + answer + ", and none is ready", fmt.Sprintf("run 'election-cli candidates %s', and see in the log of a candidate what holds it back", key)
	}
	return ": " + answer, fmt.Sprintf("run 'election-cli wait %[1]s'; if nobody leads then, run 'election-cli check %[1]s' with the credentials of a candidate", key)
}

// failing returns why requests of candidates fail, if a candidate says so, and what to do about that.
func failing(candidates []admin.Candidate) (cause, fix string) {
	for _, c := range candidates {
		if c.LastError != "" {
			return fmt.Sprintf(": requests of %s fail: %s", terminal.Quote(c.Name), terminal.PrintableUpTo(c.LastError, terminal.MaxValue)),
				"correct what the error names; if resources are insufficient or exceeded, the server or the account has no room: grant it more storage, or remove what fills it"
		}
	}
	return "", ""
}
