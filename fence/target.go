package fence

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/jetstreamext"

	"github.com/natscampaign/election"
)

// target is the stream that is written to.
type target struct {
	js     jetstream.JetStream
	api    string // prefix of the subjects of the JetStream API
	domain string // of the stream, if the JetStream given is of one
	stream string
	config jetstream.StreamConfig // as it was when the stream was opened
}

// ready says why a term cannot begin an epoch, before anything is asked of a server.
func ready(js jetstream.JetStream, t election.Term) error {
	switch {
	case js == nil:
		return errors.New("no JetStream given; jetstream.New makes one of a connection")
	case t.Number == 0:
		return fmt.Errorf("no term given; Election.Run hands one to the work, and Election.Term returns it: %w", election.ErrNotLeader)
	case !t.Valid():
		return over(t)
	}
	return nil
}

// find returns a stream as a target for epochs under the given subject, if it suits.
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
	if err := suits(info, subject, t); err != nil {
		return target{}, err
	}
	return target{js: js, api: apiPrefix(js), domain: js.Options().Domain, stream: info.Config.Name, config: info.Config}, nil
}

// suits says what is wrong with a stream for epochs that begin under the given subject.
func suits(info *jetstream.StreamInfo, subject string, t election.Term) error {
	cfg := info.Config
	switch {
	case cfg.Mirror != nil:
		return fmt.Errorf("it is a mirror; open its origin, stream %q", cfg.Mirror.Name)
	case len(cfg.Sources) > 0:
		return fmt.Errorf("it has sources, stream %q the first, which write to it whatever epoch it is; open one that has none", cfg.Sources[0].Name)
	case cfg.SubjectTransform != nil:
		return fmt.Errorf("it stores messages under other subjects than they are published to (%q under %q), the record of the epoch or others in its place; open one that does not", cmp.Or(cfg.SubjectTransform.Source, ">"), cfg.SubjectTransform.Destination)
	case cfg.NoAck:
		return errors.New("it acknowledges nothing; turn NoAck off")
	case cfg.Sealed:
		return errors.New("it is sealed, and takes no more messages")
	case cfg.Retention == jetstream.InterestPolicy:
		return errors.New("it keeps only what consumers wait for, and would drop the epoch; use a stream with limits, or a work queue whose consumers leave the epoch out")
	case cfg.DiscardNewPerSubject:
		return fmt.Errorf("it takes only %d messages for each subject (DiscardNewPerSubject), and so many epochs; discard the old ones instead", cfg.MaxMsgsPerSubject)
	case !stores(cfg, subject):
		return fmt.Errorf("it does not store the epoch subject %q, only %q; add it to the stream's subjects, or give one of those", subject, cfg.Subjects)
	}
	if bucket, ok := strings.CutPrefix(cfg.Name, bucketPrefix); ok && subject == subjectOf(bucket, t.Key) && info.Created.Equal(t.Bucket) {
		return fmt.Errorf("%q is the key of the election itself, under which the lease is renewed; give another subject for epochs", subject)
	}
	return nil
}

// stores says whether a stream stores what is published to a subject.
func stores(cfg jetstream.StreamConfig, subject string) bool {
	return slices.ContainsFunc(cfg.Subjects, func(pattern string) bool { return matches(pattern, subject) })
}

// foreign says whether another stream may store any of the messages.
func (on *target) foreign(msgs ...*nats.Msg) bool {
	return slices.ContainsFunc(msgs, func(m *nats.Msg) bool { return !stores(on.config, m.Subject) })
}

// isSubject says whether a message can be published to a subject.
func isSubject(s string) bool {
	return !strings.ContainsAny(s, "*> \t\r\n") && !slices.Contains(strings.Split(s, "."), "")
}

// matches says whether a subject without wildcards is one of a pattern.
func matches(pattern, subject string) bool {
	for {
		want, wants, more := strings.Cut(pattern, ".")
		have, left, further := strings.Cut(subject, ".")
		switch {
		case want == ">":
			return true
		case want != "*" && want != have:
			return false
		case !more || !further:
			return more == further
		}
		pattern, subject = wants, left
	}
}

// apiPrefix returns what the subjects of the JetStream API begin with for js.
func apiPrefix(js jetstream.JetStream) string {
	switch o := js.Options(); {
	case o.Domain != "":
		return "$JS." + o.Domain + ".API."
	case o.APIPrefix != "":
		return strings.TrimSuffix(o.APIPrefix, ".") + "."
	}
	return jetstream.DefaultAPIPrefix
}

// limited gives ctx a deadline if it has none: nats.go's own for requests.
func limited(ctx context.Context, js jetstream.JetStream) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, js.Options().DefaultTimeout)
}

const (
	shortestPatience = 250 * time.Millisecond // for an answer, before a request is made again
	longestPatience  = 2 * time.Second
)

// persist makes a request that may safely be made twice, again if it is not answered, or by a server that knows of no leader:
// while a stream has none nobody answers for it, nor later what came then.
func persist(ctx context.Context, request func(ctx context.Context) error) error {
	const noLeader jetstream.ErrorCode = 10008
	for patience := shortestPatience; ; patience = min(2*patience, longestPatience) {
		try, cancel := context.WithTimeout(ctx, patience)
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

// codeOf returns the code of an error of the JetStream API, 0 if it is none.
func codeOf(err error) jetstream.ErrorCode {
	var api *jetstream.APIError
	if err == nil || !errors.As(err, &api) {
		return 0
	}
	return api.ErrorCode
}

// lastUnder returns the last message under a subject as the stream's leader has it, nil if there is none. Other replicas,
// which nats.go asks where it may, lag behind.
func (on *target) lastUnder(ctx context.Context, subject string) (*jetstream.RawStreamMsg, error) {
	request, err := json.Marshal(struct {
		Subject string `json:"last_by_subj"`
	}{subject})
	if err != nil {
		return nil, err
	}
	type message struct {
		Sequence uint64    `json:"seq"`
		Header   []byte    `json:"hdrs"`
		Data     []byte    `json:"data"`
		Time     time.Time `json:"time"`
	}
	var found *message
	err = persist(ctx, func(ctx context.Context) error {
		reply, err := on.js.Conn().RequestWithContext(ctx, on.api+"STREAM.MSG.GET."+on.stream, request)
		if err != nil {
			return err
		}
		var answer struct {
			Error   *jetstream.APIError `json:"error"`
			Message *message            `json:"message"`
		}
		if err := json.Unmarshal(reply.Data, &answer); err != nil {
			return err
		}
		if found = answer.Message; answer.Error != nil {
			return answer.Error
		}
		return nil
	})
	switch {
	case codeOf(err) == jetstream.JSErrCodeMessageNotFound, err == nil && found == nil:
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading %q in stream %q: %w", subject, on.stream, err)
	}
	m := &jetstream.RawStreamMsg{Subject: subject, Sequence: found.Sequence, Data: found.Data, Time: found.Time}
	if len(found.Header) > 0 {
		if m.Header, err = nats.DecodeHeadersMsg(found.Header); err != nil {
			return nil, fmt.Errorf("reading %q in stream %q: %w", subject, on.stream, err)
		}
	}
	return m, nil
}

// publish stores one message.
func (on *target) publish(ctx context.Context, m *nats.Msg) (*jetstream.PubAck, error) {
	ack, err := on.js.PublishMsg(ctx, m)
	if err != nil {
		return nil, err
	}
	return ack, on.acknowledged(m.Subject, ack.Stream, ack.Domain)
}

// unconfirmed is how many messages of a batch may be sent before the server has confirmed that it takes them.
const unconfirmed = 100

// publishBatch stores messages as one and returns the sequence of the last.
func (on *target) publishBatch(ctx context.Context, batch []*nats.Msg) (uint64, error) {
	for _, m := range batch {
		m.Header = maps.Clone(m.Header) // which the numbers of the batch are put into
	}
	flow := jetstreamext.BatchFlowControl{}
	if len(batch) > unconfirmed {
		flow = jetstreamext.BatchFlowControl{AckFirst: true, AckEvery: unconfirmed, AckTimeout: on.js.Options().DefaultTimeout}
		if end, ok := ctx.Deadline(); ok {
			flow.AckTimeout = min(flow.AckTimeout, max(time.Until(end), time.Millisecond))
		}
	}
	ack, err := jetstreamext.PublishMsgBatch(ctx, on.js, batch, flow)
	if err != nil {
		return 0, err
	}
	return ack.Sequence, on.acknowledged(batch[0].Subject, ack.Stream, ack.Domain)
}

// acknowledged says if what was acknowledged was stored elsewhere.
func (on *target) acknowledged(subject, stream, domain string) error {
	if stream != on.stream || on.domain != "" && domain != on.domain {
		return fmt.Errorf("what is published to %q is stored by stream %q of domain %q, not by %q of domain %q; connect where that is", subject, stream, domain, on.stream, on.domain)
	}
	return nil
}

// dropBefore has a work queue forget what was stored under a subject before the given sequence: consumers might take the last of
// it first, and leave an older one as the last.
func (on *target) dropBefore(ctx context.Context, subject string, sequence uint64) error {
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
