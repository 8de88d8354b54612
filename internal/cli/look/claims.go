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

// Answers are what the candidates of an election answered, and why they could not be asked, if they could not.
type Answers struct {
	Candidates []admin.Candidate
	Err        error
}

// Leads reports whether a candidate says that it leads.
func (a Answers) Leads() bool { return len(a.leaders()) > 0 }

// leaders returns the candidates that say that they lead.
func (a Answers) leaders() (leaders []admin.Candidate) {
	for _, c := range a.Candidates {
		if c.State == election.LeaderState {
			leaders = append(leaders, c)
		}
	}
	return leaders
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

// Disputed returns, by key, the candidates that say that they lead, where several do by the answers that Ask returned. It asks these again, and counts
// only the candidates that say it twice. Each process counts: copies of a process have one instance.
func (v *View) Disputed(ctx context.Context, answers map[string]Answers) map[string][]admin.Candidate {
	disputed := map[string][]admin.Candidate{}
	for key, a := range answers {
		if leaders := a.leaders(); len(leaders) > 1 {
			disputed[key] = leaders
		}
	}
	if len(disputed) == 0 || timeutil.Pause(ctx, claimRetryDelay) != nil {
		return nil
	}
	for key, a := range v.Ask(ctx, slices.Collect(maps.Keys(disputed))) {
		again := a.leaders()
		disputed[key] = slices.DeleteFunc(disputed[key], func(c admin.Candidate) bool {
			found := slices.IndexFunc(again, func(a admin.Candidate) bool {
				return a.Name == c.Name && a.Instance == c.Instance && a.Host == c.Host && a.Connection == c.Connection
			})
			if found >= 0 {
				again = slices.Delete(again, found, found+1)
			}
			return found < 0
		})
	}
	maps.DeleteFunc(disputed, func(_ string, leaders []admin.Candidate) bool { return len(leaders) < 2 })
	return disputed
}

// Copied reports whether two candidates of a list have one instance: their processes are copies, as of a virtual machine that was cloned.
func Copied(list []admin.Candidate) bool {
	seen := map[string]bool{}
	for _, c := range list {
		if seen[c.Instance] {
			return true
		}
		seen[c.Instance] = true
	}
	return false
}
