package fence

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/jetstreamext"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/validate"
)

// target is the stream that a handle writes to.
type target struct {
	js      jetstream.JetStream
	api     string // prefix of the subjects of the JetStream API
	domain  string // of the stream, if the JetStream given has one
	stream  string
	created time.Time
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
	return target{js: js, api: kv.APIPrefix(js), domain: js.Options().Domain, stream: info.Config.Name, created: info.Created, config: info.Config}, checkStream(info, subject, t)
}

// checkStream returns what makes a stream unfit for epochs that begin under the given subject.
func checkStream(info *jetstream.StreamInfo, subject string, t election.Term) error {
	cfg := info.Config
	if err := checkServer(cfg.Metadata[serverVersion]); err != nil {
		return err
	}
	switch {
	case cfg.Mirror != nil:
		return fmt.Errorf("it is a mirror: open its origin, stream %q", cfg.Mirror.Name)
	case len(cfg.Sources) > 0:
		return fmt.Errorf("it has sources, stream %q the first, which write to it in any epoch: open a stream that has none", cfg.Sources[0].Name)
	case cfg.SubjectTransform != nil:
		return fmt.Errorf("it stores messages under other subjects than they are published to (%q under %q), and so the record of the epoch or others in its place: open a stream that does not", cmp.Or(cfg.SubjectTransform.Source, ">"), cfg.SubjectTransform.Destination)
	case cfg.NoAck:
		return errors.New("it acknowledges nothing: turn NoAck off")
	case cfg.Sealed:
		return errors.New("it is sealed, and stores no more messages: open another")
	case cfg.Retention == jetstream.InterestPolicy:
		return errors.New("it keeps only what consumers wait for, and would drop the epoch: use a stream with limits, or a work queue whose consumers leave the epoch out")
	case cfg.Retention == jetstream.WorkQueuePolicy && cfg.DenyPurge:
		return errors.New("it is a work queue that cannot be purged (DenyPurge), and consumers of which might leave an older epoch as the last: use one that can be")
	case cfg.DiscardNewPerSubject:
		return fmt.Errorf("it stores only %d messages for each subject (DiscardNewPerSubject), and so many epochs: discard the old messages instead", cfg.MaxMsgsPerSubject)
	case !stores(cfg, subject):
		return fmt.Errorf("it does not store the epoch subject %q, only %q: add it to the stream's subjects, or give one of those", subject, cfg.Subjects)
	}
	if bucket, ok := strings.CutPrefix(cfg.Name, kv.StreamName("")); ok && subject == kv.Subject(bucket, t.Key) && info.Created.Equal(t.BucketCreated) {
		return fmt.Errorf("%q is the key of the election itself, under which the lease is renewed: give another subject for epochs", subject)
	}
	return nil
}

// serverVersion is the key under which a server says its version when it describes a stream. Servers before 2.11 do not.
const serverVersion = "_nats.ver"

// checkServer returns an error for a server that stores writes of older epochs. Servers before 2.11 do not know the demand of the last
// sequence of another subject. Servers before 2.11.7 overlook the demand if its two headers come in a certain order, and nats.go sends
// headers in random order.
func checkServer(version string) error {
	const known = "2.11.7"
	var major, minor, patch int
	if _, err := fmt.Sscanf(version, "%d.%d.%d", &major, &minor, &patch); err == nil && slices.Compare([]int{major, minor, patch}, []int{2, 11, 7}) >= 0 {
		return nil
	}
	return fmt.Errorf("its server has version %s and would store writes of older epochs: upgrade all servers to %s or newer", cmp.Or(version, "2.10 or older"), known)
}

// storeFailed is the server's answer when a stream is full, among others.
const storeFailed jetstream.ErrorCode = 10077

// checkBucketLimits is checkLimits for the stream of a bucket.
func (on *target) checkBucketLimits(t election.Term, subject string) error {
	messages, cfg := int64(1), on.config
	if cfg.AllowAtomicPublish {
		messages = 2 // with the witness
	}
	if cfg.Discard == jetstream.DiscardOld && (cfg.MaxMsgs > 0 || cfg.MaxBytes > 0) {
		return fmt.Errorf("at its limits (MaxMsgs %d, MaxBytes %d) it drops the oldest keys, the record of the epoch among them: discard new messages instead", cfg.MaxMsgs, cfg.MaxBytes)
	}
	return on.checkLimits(t, subject, messages)
}

// checkLimits returns which limit of the stream cannot keep both the record of a term's epoch and a write of so many messages, or cannot keep
// the record as long as an older leader's lease may last.
func (on *target) checkLimits(t election.Term, subject string, messages int64) error {
	const overhead = 34 // of a message in a file
	m, err := on.recordOf(t, subject, math.MaxUint64)
	if err != nil {
		return err
	}
	cfg, least, size := on.config, 1+messages, int64(m.Size()+overhead)
	switch {
	case cfg.MaxMsgs > 0 && cfg.MaxMsgs < least:
		return fmt.Errorf("it keeps at most %d messages (MaxMsgs), and the record of the epoch and one write are %d: raise the limit", cfg.MaxMsgs, least)
	case cfg.MaxBytes > 0 && cfg.MaxBytes < least*size:
		return fmt.Errorf("it keeps at most %d bytes (MaxBytes), and the record of the epoch alone takes %d: raise the limit to %d at least", cfg.MaxBytes, size, least*size)
	case cfg.MaxAge > 0 && cfg.MaxAge < kv.MaxTTL && !cfg.AllowMsgTTL:
		return fmt.Errorf("it keeps messages for %v (MaxAge), and the record of the epoch no longer, while the lease of an older leader may last %v: allow TTLs per message (AllowMsgTTL, of a bucket LimitMarkerTTL), which exempt the record, or raise the limit to %[2]v at least", cfg.MaxAge, kv.MaxTTL)
	}
	return nil
}

// stores reports whether a stream stores what is published to a subject.
func stores(cfg jetstream.StreamConfig, subject string) bool {
	return slices.ContainsFunc(cfg.Subjects, func(pattern string) bool { return matches(pattern, subject) })
}

// foreign reports whether another stream may store any of the messages.
func (on *target) foreign(msgs ...*nats.Msg) bool {
	return slices.ContainsFunc(msgs, func(m *nats.Msg) bool { return !stores(on.config, m.Subject) })
}

// isSubject reports whether a message can be published to a subject.
func isSubject(s string) bool {
	return !strings.ContainsAny(s, "*> \t\r\n") && !slices.Contains(strings.Split(s, "."), "")
}

// matches reports whether a subject without wildcards matches a pattern.
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

// limited gives ctx a deadline if it has none: nats.go's own for requests.
func limited(ctx context.Context, js jetstream.JetStream) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, js.Options().DefaultTimeout)
}

const (
	minAnswerTimeout = 250 * time.Millisecond // before a request is made again
	maxAnswerTimeout = kv.RequestTimeout
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
	case err == nil && len(found.Header) > 0:
		last.Header, err = nats.DecodeHeadersMsg(found.Header)
	}
	if err != nil {
		return last, fmt.Errorf("reading %q in stream %q: %w", subject, on.stream, err)
	}
	last.Sequence, last.Data, last.Time = found.Sequence, found.Data, found.Time
	return last, nil
}

// publishMsg stores one message.
func (on *target) publishMsg(ctx context.Context, m *nats.Msg) (*jetstream.PubAck, error) {
	ack, err := on.js.PublishMsg(ctx, m)
	if err == nil {
		err = on.checkAck(m.Subject, ack.Stream, ack.Domain)
	}
	if err != nil {
		return nil, on.withSize(ctx, err, m)
	}
	return ack, nil
}

// publish stores one message, and returns its sequence.
func (on *target) publish(ctx context.Context, m *nats.Msg) (uint64, error) {
	ack, err := on.publishMsg(ctx, m)
	if err != nil {
		return 0, err
	}
	return ack.Sequence, nil
}

// unconfirmed is how many messages of a batch may be sent before the server confirms them.
const unconfirmed = 100

// publishBatch stores messages as one and returns the sequence of the last.
func (on *target) publishBatch(ctx context.Context, batch []*nats.Msg) (uint64, error) {
	for _, m := range batch {
		m.Header = maps.Clone(m.Header) // the client adds the numbers of the batch
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
		return 0, on.withSize(ctx, err, batch...)
	}
	return ack.Sequence, on.checkAck(batch[0].Subject, ack.Stream, ack.Domain)
}

// tooLargeError is why a message was refused that is too large, by the client or the server. Either is nats.ErrMaxPayload.
type tooLargeError struct{ error }

// Is reports whether target is nats.ErrMaxPayload.
func (tooLargeError) Is(target error) bool { return target == nats.ErrMaxPayload }

// Unwrap returns the error of the client or the server.
func (e tooLargeError) Unwrap() error { return e.error }

// withSize returns the error of messages that were published, with the size and the limit if one of the messages was too large. The limit is
// that of now: the stream may have been changed since it was opened.
func (on *target) withSize(ctx context.Context, err error, msgs ...*nats.Msg) error {
	var limit int
	var receiver, setting string
	switch {
	case errors.Is(err, nats.ErrMaxPayload):
		limit, receiver, setting = int(on.js.Conn().MaxPayload()), "the server", "max_payload"
	case codeOf(err) == kv.MessageExceedsMaximum, codeOf(err) == jetstreamext.JSErrCodeBatchPublishIncomplete:
		limit, receiver, setting = int(on.config.MaxMsgSize), fmt.Sprintf("stream %q", on.stream), "MaxMsgSize, of a bucket MaxValueSize"
		if s, err := on.js.Stream(ctx, on.stream); err == nil {
			limit = int(s.CachedInfo().Config.MaxMsgSize)
		}
	}
	for _, m := range msgs {
		headers := m.Size() - len(m.Subject) - len(m.Reply) - len(m.Data)
		if limit > 0 && headers+len(m.Data) > limit {
			if codeOf(err) == jetstreamext.JSErrCodeBatchPublishIncomplete { // the server does not say why
				err = &jetstream.APIError{Code: 400, ErrorCode: kv.MessageExceedsMaximum, Description: "message size exceeds maximum allowed"}
			}
			return fmt.Errorf("the message to %q is too large, with %d bytes of data and %d of headers: %s takes %d bytes (%s): write less, or raise the limit: %w", m.Subject, len(m.Data), headers, receiver, limit, setting, tooLargeError{err})
		}
	}
	return err
}

// checkAck returns an error if another stream stored the message.
func (on *target) checkAck(subject, stream, domain string) error {
	if stream != on.stream || on.domain != "" && domain != on.domain {
		return fmt.Errorf("stream %q of domain %q stored the message to %q, not %q of domain %q: connect to that domain", stream, domain, subject, on.stream, on.domain)
	}
	return nil
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
