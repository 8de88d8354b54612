package look

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/admin"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/timeutil"
)

const (
	// claimRequests limits the concurrent requests to candidates. A request without an answer takes a second.
	claimRequests = 32
	// claimRetryDelay separates two rounds of requests. After a regular handover only one candidate still claims to lead.
	claimRetryDelay = 250 * time.Millisecond
)

// Claim is the answer of a candidate that says that it leads the election of the key.
type Claim struct{ Key, Name, Instance, Host, Connection string }

// Answers are what the candidates of an election answered, and why they could not be asked, if they could not.
type Answers struct {
	Candidates []admin.Candidate
	Err        error
}

// Leads reports whether a candidate says that it leads.
func (a Answers) Leads() bool {
	return slices.ContainsFunc(a.Candidates, func(c admin.Candidate) bool { return c.State == election.LeaderState })
}

// Ask asks the candidates of each election, and returns their answers by key. A candidate that does not answer may exist all the same.
func (v *View) Ask(ctx context.Context, keys []string) map[string]Answers {
	var mu sync.Mutex
	answers := map[string]Answers{}
	kv.Together(len(keys), claimRequests, func(i int) {
		candidates, err := v.Admin.Candidates(ctx, keys[i])
		mu.Lock()
		defer mu.Unlock()
		answers[keys[i]] = Answers{candidates, err}
	})
	return answers
}

// Disputed returns the claims of each key that several candidates claim to lead, by the answers that Ask returned. It asks again if there
// are such, and counts only the candidates that claim the key twice. Each process counts: copies of a process have one instance.
func (v *View) Disputed(ctx context.Context, answers map[string]Answers) map[string][]Claim {
	first := claimsOf(answers)
	if len(first) == 0 {
		return nil
	}
	if timeutil.Pause(ctx, claimRetryDelay) != nil {
		return nil
	}
	second := claimsOf(v.Ask(ctx, slices.Collect(maps.Keys(first))))
	return disputed(first, func(c Claim) bool {
		again := slices.Index(second[c.Key], c)
		if again >= 0 {
			second[c.Key] = slices.Delete(second[c.Key], again, again+1)
		}
		return again >= 0
	})
}

// claimsOf returns the claims of the candidates that say that they lead, of each key that several say of.
func claimsOf(answers map[string]Answers) map[string][]Claim {
	claims := map[string][]Claim{}
	for key, a := range answers {
		for _, c := range a.Candidates {
			if c.State == election.LeaderState {
				claims[key] = append(claims[key], Claim{key, c.Name, c.Instance, c.Host, c.Connection})
			}
		}
	}
	return disputed(claims, func(Claim) bool { return true })
}

// disputed returns the claims that count, of each key that has several of them.
func disputed(claims map[string][]Claim, counts func(Claim) bool) map[string][]Claim {
	several := map[string][]Claim{}
	for key, of := range claims {
		of = slices.DeleteFunc(slices.Clone(of), func(c Claim) bool { return !counts(c) })
		if len(of) > 1 {
			several[key] = of
		}
	}
	return several
}

// Copied reports whether two of a list have one instance: their processes are copies, as of a virtual machine that was cloned.
func Copied[T any](list []T, instance func(T) string) bool {
	seen := map[string]bool{}
	for _, of := range list {
		if seen[instance(of)] {
			return true
		}
		seen[instance(of)] = true
	}
	return false
}
