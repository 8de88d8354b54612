package look

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/admin"
	"github.com/natscampaign/election/internal/timeutil"
)

const (
	// claimRequests limits the concurrent requests to candidates. A request without an answer takes a second.
	claimRequests = 32
	// claimRetryDelay separates two rounds of requests. After a regular handover only one candidate still claims to lead.
	claimRetryDelay = 250 * time.Millisecond
)

// Claim is the answer of a candidate that says that it leads the election of the key.
type Claim struct{ Key, Name, Instance, Host string }

// Answers are what the candidates of an election answered, and why they could not be asked, if they could not.
type Answers struct {
	Candidates []admin.Candidate
	Err        error
}

// Ask asks the candidates of each election, and returns their answers by key. A candidate that does not answer may exist all the same.
func (v *View) Ask(ctx context.Context, keys []string) map[string]Answers {
	var (
		mu       sync.Mutex
		requests sync.WaitGroup
	)
	answers, slots := map[string]Answers{}, make(chan struct{}, claimRequests)
	for _, key := range keys {
		slots <- struct{}{}
		requests.Go(func() {
			defer func() { <-slots }()
			candidates, err := v.Admin.Candidates(ctx, key)
			mu.Lock()
			defer mu.Unlock()
			answers[key] = Answers{candidates, err}
		})
	}
	requests.Wait()
	return answers
}

// Disputed returns the claims of each key that several candidates claim to lead, by instance, by the answers that Ask returned. It
// asks again if there are such, and counts only the candidates that claim the key twice.
func (v *View) Disputed(ctx context.Context, answers map[string]Answers) map[string]map[string]Claim {
	first := claimsOf(answers)
	disputed := disputedClaims(first)
	if len(disputed) == 0 {
		return nil
	}
	if timeutil.Pause(ctx, claimRetryDelay) != nil {
		return nil
	}
	second := claimsOf(v.Ask(ctx, slices.Collect(maps.Keys(disputed))))
	return disputedClaims(slices.DeleteFunc(first, func(c Claim) bool { return !slices.Contains(second, c) }))
}

// claimsOf returns the answers of the candidates that say that they lead.
func claimsOf(answers map[string]Answers) (claims []Claim) {
	for key, a := range answers {
		for _, c := range a.Candidates {
			if c.State == election.LeaderState {
				claims = append(claims, Claim{key, c.Name, c.Instance, c.Host})
			}
		}
	}
	return claims
}

// disputedClaims returns the claims of each key that several candidates claim, by instance. It counts a candidate that answers twice
// once.
func disputedClaims(claims []Claim) map[string]map[string]Claim {
	byKey := map[string]map[string]Claim{}
	for _, c := range claims {
		if byKey[c.Key] == nil {
			byKey[c.Key] = map[string]Claim{}
		}
		byKey[c.Key][c.Instance] = c
	}
	maps.DeleteFunc(byKey, func(_ string, claims map[string]Claim) bool { return len(claims) == 1 })
	return byKey
}
