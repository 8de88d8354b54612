package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/record"
)

const (
	// firstAnswerTimeout is how long the first answer about candidates is waited for.
	firstAnswerTimeout = time.Second
	// nextAnswerTimeout is how long the next answer is waited for, until the last is thought to be in.
	nextAnswerTimeout = 150 * time.Millisecond
	// answersTimeout is how long answers are taken in any case.
	answersTimeout = 5 * time.Second
	// beginTimeout is how long the answer of a leader is waited for that begins to hand over. Its host may be busy.
	beginTimeout = 3 * time.Second
	// HandoverTimeout is how long a leader that was asked to hand over is waited for, beyond the time that its work may take: by default the TTL.
	HandoverTimeout = 5 * time.Second
	// longestHandover bounds how long a leader may say that it takes.
	longestHandover = time.Hour
)

// Client sends requests to the candidates of a bucket. Its bucket must know its connection.
type Client struct {
	Bucket  *kv.Bucket
	Created time.Time // when the bucket was created; zero asks the candidates of any bucket of that name
}

// Candidates passes each candidate of a key to found, with the time at which its answer came, until found returns true or no further
// answers come. A process that answers twice counts once, and copies of a process, which have one instance, are several candidates. The error
// is nats.ErrNoResponders if no process answers for any candidate of the bucket. If only this key has none, no answer comes, and the error is
// nil after a second.
func (c Client) Candidates(ctx context.Context, key string, found func(c Candidate, came time.Time) (enough bool)) error {
	return c.candidates(ctx, key, request{}, 0, found)
}

// CandidatesWithin does that, and waits for answers for at least the given time: a candidate may be far away.
func (c Client) CandidatesWithin(ctx context.Context, key string, least time.Duration, found func(c Candidate, came time.Time) (enough bool)) error {
	return c.candidates(ctx, key, request{}, least, found)
}

// candidates does that for those that the request concerns. It waits for answers for at least the given time.
func (c Client) candidates(ctx context.Context, key string, r request, least time.Duration, found func(Candidate, time.Time) (enough bool)) error {
	began := time.Now()
	type process struct{ instance, connection, server string }
	seen := map[process]bool{}
	return c.ask(ctx, verbCandidates, key, r, firstAnswerTimeout, func(m *nats.Msg) time.Duration {
		came := time.Now()
		wait := max(nextAnswerTimeout, time.Until(began.Add(least)))
		var a answer
		if a.parse(m) != nil {
			return wait // this one cannot be read; others may be
		}
		var of []process
		for _, candidate := range a.Candidates {
			p := process{candidate.Instance, candidate.Connection, candidate.ServerID}
			if seen[p] { // by an earlier answer
				continue
			}
			of = append(of, p)
			if found(candidate, came) {
				return 0
			}
		}
		for _, p := range of {
			seen[p] = true
		}
		return wait
	})
}

// Refresh has all candidates of a key read the bucket's info again, and waits for the answers of those that have, until no other comes for a moment: one that
// the server answers late may not have. Where there are none it returns as [Client.Candidates] does.
func (c Client) Refresh(ctx context.Context, key string) error {
	return c.ask(ctx, verbRefresh, key, request{}, firstAnswerTimeout, func(*nats.Msg) time.Duration { return nextAnswerTimeout })
}

// Resign has the leader of the given instance resign, and returns when the key is released. The timeout is for a leader that does not say how
// long it may take. An error that wraps ctx's means that ctx ended before; the leader may go on and resign all the same. The error is
// [ErrUnderWay] if the leader goes on, and [ErrNoAnswer] if nothing is known of it.
func (c Client) Resign(ctx context.Context, key, instance string, timeout time.Duration) error {
	return c.handOver(ctx, verbResign, key, request{Instance: instance}, timeout)
}

// Transfer has the leader of the given instance transfer leadership, and returns when the target leads; see Resign. If ctx ended before, the leader may not go
// on: it may have been looking for the target.
func (c Client) Transfer(ctx context.Context, key, instance, target string, timeout time.Duration) error {
	return c.handOver(ctx, verbTransfer, key, request{Instance: instance, To: target}, timeout)
}

func (c Client) handOver(ctx context.Context, verb, key string, r request, timeout time.Duration) error {
	began, err, begun, done := time.Now(), error(nil), false, false
	if ends, limited := ctx.Deadline(); limited {
		r.WaitMs = max(1, time.Until(ends).Milliseconds())
	}
	ends := began.Add(timeout)
	failed := c.ask(ctx, verb, key, r, beginTimeout, func(m *nats.Msg) time.Duration {
		var a answer
		err = a.parse(m)
		switch {
		case err == nil && a.Begun:
			if !begun && a.WithinMs > 0 {
				timeout = time.Duration(min(a.WithinMs, longestHandover.Milliseconds())) * time.Millisecond
				ends = time.Now().Add(timeout)
			}
			begun = true
		case err == nil && !a.Done: // of somebody else who receives what is sent to candidates, such as a stream that stores it
		default:
			done = true
			return 0
		}
		if !begun {
			return time.Until(began.Add(beginTimeout))
		}
		return time.Until(ends)
	})
	switch {
	case done:
		return err
	case begun && ctx.Err() != nil && verb == verbTransfer:
		return fmt.Errorf("the leader was asked to hand over to %q, and may still do: %w", r.To, ctx.Err())
	case begun && ctx.Err() != nil:
		return fmt.Errorf("%w: %w", ErrUnderWay, ctx.Err())
	case begun:
		return fmt.Errorf("%w, but was not done within %v", ErrUnderWay, timeout)
	case failed != nil && !errors.Is(failed, nats.ErrNoResponders):
		return failed
	}
	return ErrNoAnswer
}

// ask sends a request to all processes with candidates in the bucket, and passes their answers on. It waits for the first answer; what each
// returns is how long to wait for another: not at all if it is 0. The error is nats.ErrNoResponders if there is no such process, and wraps
// nats.ErrPermissionViolation if the request may not be sent, or its answers may not be received.
func (c Client) ask(ctx context.Context, verb, key string, r request, first time.Duration, each func(*nats.Msg) time.Duration) error {
	nc := c.Bucket.Conn()
	r.Bucket = c.Created
	answersTo := AnswerSubject(c.Bucket.Bucket(), record.NewID(), key)
	to := Subject(c.Bucket.Bucket(), verb, key)
	body, err := json.Marshal(r)
	if err != nil {
		return err
	}
	answers, done := make(chan *nats.Msg), make(chan struct{})
	defer close(done)
	// A subscription without a callback would allocate half a megabyte for its channel.
	sub, err := nc.Subscribe(answersTo, func(m *nats.Msg) {
		select {
		case answers <- m:
		case <-done:
		}
	})
	if err != nil {
		return err
	}
	defer func() { _ = sub.Unsubscribe() }()
	sub.SetClosedHandler(func(string) { close(answers) })
	began, before := time.Now(), nc.LastError()
	if err := nc.PublishRequest(to, answersTo, body); err != nil {
		return err
	}
	if err := refused(ctx, nc, before, to); err != nil {
		return fmt.Errorf("asking candidates is not permitted: permit to publish to %s: %w", to, err)
	}
	if err := nc.LastError(); errors.Is(err, nats.ErrPermissionViolation) && strings.Contains(err.Error(), fmt.Sprintf("Subscription to %q", answersTo)) {
		return fmt.Errorf("candidates were asked, but receiving their answers is not permitted: permit to subscribe to %s: %w", AnswerSubject(c.Bucket.Bucket(), "*", key), err)
	}
	for wait := time.Until(began.Add(first)); wait > 0; {
		if verb == verbCandidates || verb == verbRefresh {
			wait = min(wait, time.Until(began.Add(answersTimeout)))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
			return nil
		case m, open := <-answers:
			switch {
			case !open:
				return nats.ErrConnectionClosed
			case len(m.Data) == 0 && m.Header.Get("Status") == "503":
				return nats.ErrNoResponders
			}
			wait = each(m)
		}
	}
	return nil
}

// Refused returns the verbs of the requests about a key that the server does not permit to send. The messages that it sends do nothing:
// they cannot be answered.
func (c Client) Refused(ctx context.Context, key string) (verbs []string) {
	nc := c.Bucket.Conn()
	for _, verb := range []string{verbCandidates, verbResign, verbTransfer} {
		to, before := Subject(c.Bucket.Bucket(), verb, key), nc.LastError()
		if nc.Publish(to, []byte("?")) == nil && refused(ctx, nc, before, to) != nil {
			verbs = append(verbs, verb)
		}
	}
	return verbs
}

// refused returns the server's refusal of a request that was published to a subject, if there is one. The messages that it sends to find
// out do nothing: their body cannot be read, and there is no reply subject.
func refused(ctx context.Context, nc *nats.Conn, before error, to string) error {
	ctx, cancel := context.WithTimeout(ctx, firstAnswerTimeout/2)
	defer cancel()
	return kv.FindRefusal(ctx, nc, before, fmt.Sprintf("Publish to %q", to), func() error { return nc.Publish(to, []byte("?")) })
}
