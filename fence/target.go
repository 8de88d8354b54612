package fence

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/timing"
	"github.com/natscampaign/election/internal/validate"
)

// target is the stream that a handle writes to.
type target struct {
	js      jetstream.JetStream
	api     string // prefix of the subjects of the JetStream API
	domain  string // of the stream, if the JetStream given has one
	stream  string
	created time.Time              // see [kv.CreatedOf]
	config  jetstream.StreamConfig // as it was when the stream was opened
}

// ready returns why a term cannot begin an epoch, before any request is sent.
func ready(js jetstream.JetStream, t election.Term) error {
	switch {
	case validate.IsNil(js):
		return errors.New("no JetStream given: pass the one that jetstream.New returned")
	case t.Number == 0:
		return fmt.Errorf("no term given: pass the one that Run gives to the work, or that Election.Term returns: %w", election.ErrNotLeader)
	case !t.Valid():
		return over(t)
	}
	return nil
}

// find returns a stream as a target for epochs under the given subject, if it is fit for that.
func find(ctx context.Context, js jetstream.JetStream, stream, subject string, t election.Term) (target, error) {
	var found jetstream.Stream
	err := persist(ctx, func(ctx context.Context) (err error) {
		found, err = js.Stream(ctx, stream)
		return err
	})
	if err != nil {
		return target{}, err
	}
	info := found.CachedInfo()
	created, _ := kv.CreatedOf(info)
	return target{js: js, api: kv.APIPrefix(js), domain: js.Options().Domain, stream: info.Config.Name, created: created, config: info.Config}, checkStream(info, subject, t)
}

// limited gives ctx a deadline if it has none: nats.go's own for requests.
func limited(ctx context.Context, js jetstream.JetStream) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, js.Options().DefaultTimeout)
}

const (
	minAnswerTimeout = 250 * time.Millisecond // before a request is made again
	maxAnswerTimeout = timing.RequestTimeout
)

// persist makes a request that may safely be made twice, and makes it again if nobody answers, or a server that knows of no leader: while a
// stream has no leader nobody answers its requests, and nobody answers them later.
func persist(ctx context.Context, request func(ctx context.Context) error) error {
	const noLeader jetstream.ErrorCode = 10008
	for timeout := minAnswerTimeout; ; timeout = min(2*timeout, maxAnswerTimeout) {
		try, cancel := context.WithTimeout(ctx, timeout)
		err := request(try)
		switch {
		case errors.Is(err, nats.ErrNoResponders), errors.Is(err, jetstream.ErrNoStreamResponse), codeOf(err) == noLeader:
			<-try.Done()
		case !errors.Is(err, context.DeadlineExceeded):
			cancel()
			return err
		}
		cancel()
		if ctx.Err() != nil {
			return err
		}
	}
}

// storeFailed is the server's answer when a stream is full, among others.
const storeFailed jetstream.ErrorCode = 10077

// codeOf returns the code of an error of the JetStream API, 0 for any other error.
func codeOf(err error) jetstream.ErrorCode {
	if api, ok := errors.AsType[*jetstream.APIError](err); ok {
		return api.ErrorCode
	}
	return 0
}

// lastUnder returns the last message under a subject as the stream's leader has it, with sequence 0 if there is none. Other replicas, which
// nats.go may ask, lag behind.
func (on *target) lastUnder(ctx context.Context, subject string) (last jetstream.RawStreamMsg, err error) {
	last.Subject = subject
	request, err := json.Marshal(map[string]string{"last_by_subj": subject})
	if err != nil {
		return last, err
	}
	var answer struct {
		Error   *jetstream.APIError `json:"error"`
		Message struct {
			Sequence uint64    `json:"seq"`
			Header   []byte    `json:"hdrs"`
			Data     []byte    `json:"data"`
			Time     time.Time `json:"time"`
		} `json:"message"`
	}
	err = persist(ctx, func(ctx context.Context) error {
		reply, err := on.js.Conn().RequestWithContext(ctx, on.api+"STREAM.MSG.GET."+on.stream, request)
		if err != nil {
			return err
		}
		answer.Error = nil
		if err := json.Unmarshal(reply.Data, &answer); err != nil || answer.Error == nil {
			return err
		}
		return answer.Error
	})
	found := answer.Message
	switch {
	case codeOf(err) == jetstream.JSErrCodeMessageNotFound:
		return last, nil
	case err != nil:
		return last, fmt.Errorf("reading %q in stream %q: %w", subject, on.stream, err)
	}
	last.Header, _ = kv.PlainHeader(found.Header) // what is not plain removes nothing
	last.Sequence, last.Data, last.Time = found.Sequence, found.Data, found.Time
	return last, nil
}

// purgeBefore purges a work queue of what was stored under a subject before the given sequence: consumers might consume the last message
// first, and leave an older one as the last.
func (on *target) purgeBefore(ctx context.Context, subject string, sequence uint64) error {
	if on.config.Retention != jetstream.WorkQueuePolicy {
		return nil
	}
	return persist(ctx, func(ctx context.Context) error {
		stream, err := on.js.Stream(ctx, on.stream)
		if err != nil {
			return err
		}
		return stream.Purge(ctx, jetstream.WithPurgeSubject(subject), jetstream.WithPurgeSequence(sequence))
	})
}
