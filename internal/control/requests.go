package control

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natscampaign/election/internal/wakeup"
)

// laterPause is how often requests that name a later bucket may have candidates refreshed: who may only ask for the candidates must not keep
// all of them busy.
const laterPause = time.Second

// maxRelease is how far ahead the release may be that a candidate is told to expect.
const maxRelease = time.Second

// handle handles one request of this protocol.
func (s *service) handle(ctx context.Context, m *nats.Msg) {
	verb, key, ok := parseSubject(s.bucket.Bucket(), m.Subject)
	if !ok {
		return
	}
	var r request
	invalid := len(m.Data) > 0 && json.Unmarshal(m.Data, &r) != nil
	s.restrict(m, r.InboxPrefix)
	if invalid {
		reject(m, codeOf(errInvalidBody), errInvalidBody.Error())
		return
	}
	addressed := s.addressed(key, r)
	switch verb {
	case verbCandidates:
		s.describe(m, r, addressed)
		if s.behind(key, r) {
			s.refreshFor(key, func() {
				s.describe(m, r, slices.DeleteFunc(s.addressed(key, r), func(m *Member) bool { return slices.Contains(addressed, m) }))
			})
		}
	case verbRefresh:
		if len(addressed) > 0 {
			s.refreshFor(key, func() { reply(m, answer{}) })
		}
	case verbResign, verbTransfer:
		for _, member := range addressed {
			if member.served.HoldsKey() && (r.Instance == "" || r.Instance == member.served.Describe().Instance) {
				s.handOver(ctx, member.served, verb, r, m)
				return
			}
		}
	}
}

// addressed returns the candidates of the key that a request concerns.
func (s *service) addressed(key string, r request) (members []*Member) {
	for _, member := range s.of(key) {
		if r.Bucket.IsZero() || r.Bucket.Equal(member.served.BucketCreated()) {
			members = append(members, member)
		}
	}
	return members
}

// behind reports whether a request names a later bucket than a candidate of the key knows, once in a while: the bucket may have been
// deleted and made again.
func (s *service) behind(key string, r request) bool {
	if !slices.ContainsFunc(s.of(key), func(m *Member) bool { return r.Bucket.After(m.served.BucketCreated()) }) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); now.Sub(s.laterAt) >= laterPause {
		s.laterAt = now
		return true
	}
	return false
}

// describe answers which of the candidates there are.
func (s *service) describe(m *nats.Msg, r request, members []*Member) {
	var a answer
	for _, member := range members {
		c := member.served.Describe()
		if r.Instance == "" || r.Instance == c.Instance {
			a.Candidates = append(a.Candidates, c)
		}
		if after := r.ReleaseMs; r.To == c.Name && c.Ready && after > 0 && after <= maxRelease.Milliseconds() {
			member.served.ExpectRelease(time.Duration(after) * time.Millisecond)
		}
	}
	if len(a.Candidates) > 0 {
		reply(m, a)
	}
}

// refreshFor has the candidates of the key read the bucket's info again, and then calls the function. It drops a request too many.
func (s *service) refreshFor(key string, then func()) {
	s.mu.Lock()
	if len(s.refreshes[key]) < maxRequests {
		s.refreshes[key] = append(s.refreshes[key], then)
	}
	s.mu.Unlock()
	wakeup.Send(s.stale)
}

// refresh has candidates read the bucket's info again, one request after the other: other requests must not wait for the server.
func (s *service) refresh(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.stale:
		}
		s.mu.Lock()
		waiting := s.refreshes
		s.refreshes = map[string][]func(){}
		s.mu.Unlock()
		for key, requests := range waiting {
			for _, member := range s.of(key) {
				member.served.Refresh(ctx)
			}
			for _, answer := range requests {
				answer()
			}
		}
	}
}

// handOver has the leader hand over, in a goroutine of its own, because the work may take its time to return. When ctx ends the handover
// is not waited for any longer.
func (s *service) handOver(ctx context.Context, leader Served, verb string, r request, m *nats.Msg) {
	select {
	case s.handovers <- struct{}{}:
	default:
		reject(m, codeFailed, "too many handovers are under way: ask again later")
		return
	}
	wait := time.Duration(r.WaitMs) * time.Millisecond
	if most := leader.HandoverTimeout(); r.WaitMs <= 0 || r.WaitMs > most.Milliseconds() {
		wait = most
	}
	reply(m, answer{Begun: true})
	s.log.Info("Handover requested", "verb", verb, "target", r.To)
	s.pending.Go(func() {
		defer func() { <-s.handovers }()
		ctx, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		var err error
		if verb == verbTransfer {
			err = leader.Transfer(ctx, r.To)
		} else {
			err = leader.Resign(ctx)
		}
		switch {
		case err == nil:
			reply(m, answer{})
		case errors.Is(err, context.DeadlineExceeded): // the caller's time is over; the handover goes on
			reply(m, answer{Begun: true})
		case errors.Is(err, context.Canceled):
			reject(m, codeFailed, "the leader stopped before the handover was complete")
		default:
			reject(m, codeOf(err), err.Error())
		}
	})
}
