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
	// claimsAtATime is how many elections are asked about at a time: where nobody answers, each takes a second.
	claimsAtATime = 32
	// claimsPause is how long after two candidates claimed to lead they are asked again: leadership may just have changed
	// hands.
	claimsPause = 250 * time.Millisecond
)

// Claim is that a candidate, asked itself, says that it leads.
type Claim struct{ Key, Name, Instance, Host string }

// Claims asks the candidates themselves which of them lead in the elections of the given keys. Where two do, they are asked
// again, and only who says so twice is believed.
func (v *View) Claims(ctx context.Context, keys []string) []Claim {
	first := v.ask(ctx, keys)
	if len(Disputed(first)) == 0 {
		return first
	}
	if timeutil.Pause(ctx, claimsPause) != nil {
		return nil
	}
	again := v.ask(ctx, keys)
	return slices.DeleteFunc(first, func(c Claim) bool { return !slices.Contains(again, c) })
}

// ask asks once. Candidates that do not answer, as without permission to ask none does, claim nothing.
func (v *View) ask(ctx context.Context, keys []string) []Claim {
	var (
		mu     sync.Mutex
		claims []Claim
		asking sync.WaitGroup
	)
	turns := make(chan struct{}, claimsAtATime)
	for _, key := range keys {
		turns <- struct{}{}
		asking.Go(func() {
			defer func() { <-turns }()
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
	asking.Wait()
	return claims
}

// Disputed returns the claims of each key that more than one candidate claims, by instance: a candidate may answer twice.
func Disputed(claims []Claim) map[string]map[string]Claim {
	byKey := map[string]map[string]Claim{}
	for _, c := range claims {
		if byKey[c.Key] == nil {
			byKey[c.Key] = map[string]Claim{}
		}
		byKey[c.Key][c.Instance] = c
	}
	maps.DeleteFunc(byKey, func(_ string, by map[string]Claim) bool { return len(by) == 1 })
	return byKey
}
