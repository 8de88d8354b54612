package main

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/natscampaign/election"
)

const (
	// claimsAtATime is how many elections are asked about at a time: where nobody answers, each takes a second.
	claimsAtATime = 32
	// claimsPause is how long after two candidates claimed to lead they are asked again: leadership may just have changed
	// hands.
	claimsPause = 250 * time.Millisecond
)

// claim is that a candidate, asked itself, says that it leads.
type claim struct{ Key, Name, Instance, Host string }

// claims asks the candidates themselves which of them lead in the elections of the given keys. Where two do, they are asked
// again, and only who says so twice is believed.
func (v *view) claims(ctx context.Context, keys []string) []claim {
	first := v.ask(ctx, keys)
	doubted := judgeClaims(first)
	if len(doubted) == 0 {
		return first
	}
	if pause(ctx, claimsPause) != nil {
		return nil
	}
	again := v.ask(ctx, keys)
	return slices.DeleteFunc(first, func(c claim) bool { return !slices.Contains(again, c) })
}

// ask asks once. Candidates that do not answer, as without permission to ask none does, claim nothing.
func (v *view) ask(ctx context.Context, keys []string) []claim {
	var (
		mu     sync.Mutex
		claims []claim
		asking sync.WaitGroup
	)
	turns := make(chan struct{}, claimsAtATime)
	for _, key := range keys {
		turns <- struct{}{}
		asking.Go(func() {
			defer func() { <-turns }()
			candidates, _ := v.admin.Candidates(ctx, key)
			mu.Lock()
			defer mu.Unlock()
			for _, c := range candidates {
				if c.State == election.LeaderState {
					claims = append(claims, claim{key, c.Name, c.Instance, c.Host})
				}
			}
		})
	}
	asking.Wait()
	return claims
}
