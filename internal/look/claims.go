package look

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/natscampaign/election"
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

// Claims asks the candidates of each election whether they lead. If two candidates claim the same election, Claims asks
// again and returns only the claims of both rounds.
func (v *View) Claims(ctx context.Context, keys []string) []Claim {
	first := v.requestClaims(ctx, keys)
	if len(DisputedClaims(first)) == 0 {
		return first
	}
	if timeutil.Pause(ctx, claimRetryDelay) != nil {
		return nil
	}
	second := v.requestClaims(ctx, keys)
	return slices.DeleteFunc(first, func(c Claim) bool { return !slices.Contains(second, c) })
}

// requestClaims asks the candidates once. A candidate that does not answer claims nothing, and without the permission to
// send the request no candidate answers.
func (v *View) requestClaims(ctx context.Context, keys []string) []Claim {
	var (
		mu       sync.Mutex
		claims   []Claim
		requests sync.WaitGroup
	)
	slots := make(chan struct{}, claimRequests)
	for _, key := range keys {
		slots <- struct{}{}
		requests.Go(func() {
			defer func() { <-slots }()
			candidates, _ := v.Admin.Candidates(ctx, key)
			mu.Lock()
			defer mu.Unlock()
			for _, c := range candidates {
				if c.State == election.LeaderState {
					claims = append(claims, Claim{key, c.Name, c.Instance, c.Host})
				}
			}
		})
	}
	requests.Wait()
	return claims
}

// DisputedClaims returns the claims of each key that several candidates claim, by instance. It counts a candidate that
// answers twice once.
func DisputedClaims(claims []Claim) map[string]map[string]Claim {
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
