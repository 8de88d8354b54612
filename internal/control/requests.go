package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natscampaign/election/internal/wakeup"
)

// laterPause is how often requests that name a later bucket may have candidates refreshed: who may only ask for the candidates must not keep
// all of them busy.
const laterPause = time.Second

// maxRelease is how far ahead the release may be that a candidate is told to expect.
const maxRelease = time.Second

// isRequest reports whether a message may be a request, by its headers. Requests of this package have none. The server gives headers to its
// own messages, such as the heartbeats of a consumer, and to what a stream has stored, and a client can have it send those to any subject, even
// to one on which the client must not publish. Two kinds of headers are allowed: the server says of a request from another account who sent
// it, and requests may be traced.
func isRequest(m *nats.Msg) bool {
	for name := range m.Header {
		switch {
		case name == "Nats-Request-Info", strings.HasPrefix(name, "Nats-Trace-"):
		case name == "Status", strings.HasPrefix(name, "Nats-"):
			return false
		}
	}
	return true
}

// errDropped is counted for a message that is no request, or cannot be answered.
var errDropped = errors.New("a message that is no request, or has no subject for answers, was dropped")

// handle handles one request of this protocol. It drops what cannot be answered: every caller waits for an answer, so that is no request, but
// something that a client had the server or another program put there.
func (s *service) handle(ctx context.Context, m *nats.Msg) {
	verb, key, ok := parseSubject(s.bucket.Bucket(), m.Subject)
	if !ok || !slices.Contains(verbs, verb) {
		return
	}
	began := time.Now()
	err := s.carryOut(ctx, verb, key, m)
	s.count(verb, time.Since(began), err)
}

// carryOut carries out a request. The error is what was wrong with the request.
func (s *service) carryOut(ctx context.Context, verb, key string, m *nats.Msg) error {
	var r request
	var wrong error
	switch {
	case !isRequest(m):
		return errDropped
	case m.Size() > maxRequestBytes:
		wrong = errTooLarge
	case len(m.Data) > 0 && json.Unmarshal(m.Data, &r) != nil:
		wrong = errInvalidBody
	case (verb == verbResign || verb == verbTransfer) && r.Instance == "":
		wrong = errNoInstance
	}
	if !answerable(m.Reply, s.bucket.Bucket(), key) {
		return errDropped
	}
	if wrong != nil {
		reject(m, codeOf(wrong), wrong.Error())
		return wrong
	}
	addressed := s.addressed(key, r)
	switch verb {
	case verbCandidates:
		s.describe(m, r, addressed)
		if s.behind(key, r) {
			s.refreshFor(key, func(bool) {
				s.describe(m, r, slices.DeleteFunc(s.addressed(key, r), func(m *Member) bool { return slices.Contains(addressed, m) }))
			})
		}
	case verbRefresh:
		if len(addressed) > 0 {
			s.refreshFor(key, func(refreshed bool) {
				if refreshed { // else others may answer
					reply(m, answer{Done: true})
				}
			})
		}
	case verbResign, verbTransfer:
		for _, member := range addressed {
			if member.served.HoldsKey() && r.Instance == member.served.Describe().Instance {
				return s.handOver(ctx, member.served, verb, r, m)
			}
		}
	}
	return nil
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
	connection, server := s.connection()
	for _, member := range members {
		c := member.served.Describe()
		c.Connection, c.ServerID = connection, server
		if r.Instance == "" || r.Instance == c.Instance {
			a.Candidates = append(a.Candidates, c)
		}
		if after := r.ReleaseMs; (r.To == c.Name || r.To == c.Instance) && c.Ready && after > 0 && after <= maxRelease.Milliseconds() {
			member.served.ExpectRelease(time.Duration(after) * time.Millisecond)
		}
	}
	if len(a.Candidates) > 0 {
		reply(m, a)
	}
}

// connection returns what the server calls the connection of this process, and the id of that server; empty if there is none just now.
func (s *service) connection() (name, server string) {
	nc := s.bucket.Conn()
	client, err := nc.GetClientID()
	if err != nil {
		return "", ""
	}
	return fmt.Sprintf("%d@%s", client, nc.ConnectedServerName()), nc.ConnectedServerId()
}

// refreshFor has the candidates of the key read the bucket's info again, and then calls the function, which is told whether all could. It drops a request
// too many.
func (s *service) refreshFor(key string, then func(refreshed bool)) {
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
		s.refreshes = map[string][]func(bool){}
		s.mu.Unlock()
		for key, requests := range waiting {
			refreshed := true
			for _, member := range s.of(key) {
				refreshed = member.served.Refresh(ctx) && refreshed
			}
			for _, answer := range requests {
				answer(refreshed)
			}
		}
	}
}

// handOver has the leader hand over, in a goroutine of its own, because the work may take its time to return. When ctx ends the handover
// is not waited for any longer. The error is that it did not begin.
func (s *service) handOver(ctx context.Context, leader Served, verb string, r request, m *nats.Msg) error {
	select {
	case s.handovers <- struct{}{}:
	default:
		err := errors.New("too many handovers are under way: ask again later")
		reject(m, codeFailed, err.Error())
		return err
	}
	wait := leader.HandoverTimeout()
	reply(m, answer{Begun: true, WithinMs: wait.Milliseconds()})
	if r.WaitMs > 0 && r.WaitMs < wait.Milliseconds() {
		wait = time.Duration(r.WaitMs) * time.Millisecond
	}
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
			reply(m, answer{Done: true})
			return
		case errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, ErrNoCandidate): // the caller's time is over; the handover goes on
			reply(m, answer{Begun: true})
			return
		case errors.Is(err, context.Canceled):
			err = errors.New("the leader stopped before the handover was complete")
			reject(m, codeFailed, err.Error())
		default:
			reject(m, codeOf(err), err.Error())
		}
		s.log.Info("Handover refused", "verb", verb, "target", r.To, "error", err)
		s.countError(verb, err)
	})
	return nil
}
