package kv

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natscampaign/election/internal/timeutil"
)

const (
	// refusalCheckDelay is how long to wait at most until the connection is asked again whether a message was refused.
	refusalCheckDelay = 20 * time.Millisecond
	// refusalPoll is the time between two looks at the last error of a connection while a request has no answer.
	refusalPoll = 5 * time.Millisecond
)

// Permission is the permission to publish to a subject, which a request needs.
type Permission struct {
	Subject string   // to grant; it may contain wildcards
	matches []string // a refused subject ends with one of these, or contains one that ends with a dot
}

// ToRead returns the permission to read a key.
func (b *Bucket) ToRead(key string) Permission {
	get := "GET." + b.Stream()
	return Permission{b.api() + "DIRECT." + get + "." + b.Subject(key), []string{get, get + "." + b.Subject(key)}}
}

// ToWrite returns the permission to write a key.
func (b *Bucket) ToWrite(key string) Permission {
	subject := SubjectToWrite(b.api(), b.Bucket(), key)
	return Permission{subject, []string{`"` + subject}}
}

// ToWatch returns the permission to create a consumer of the keys of a pattern.
func (b *Bucket) ToWatch(pattern string) Permission {
	p := ToFollow(b.api(), b.Bucket())
	p.Subject += "." + b.Subject(pattern)
	return p
}

// ToFollow returns the permission to create a consumer of all keys of a bucket.
func ToFollow(api, bucket string) Permission {
	create := "CONSUMER.CREATE." + StreamName(bucket) + "."
	return Permission{api + create + "*", []string{create}}
}

// toUnwatch returns the permission to remove a consumer.
func (b *Bucket) toUnwatch() Permission {
	remove := "CONSUMER.DELETE." + b.Stream() + "."
	return Permission{b.api() + remove + "*", []string{remove}}
}

// ToChange returns the permission to change the stream behind the bucket.
func (b *Bucket) ToChange() Permission { return ToChange(b.api(), b.Bucket()) }

// ToChange returns the permission to change the stream behind a bucket.
func ToChange(api, bucket string) Permission { return onStream(api, "UPDATE", bucket) }

// ToInspect returns the permission to read the info of the bucket.
func (b *Bucket) ToInspect() Permission { return ToInspect(b.api(), b.Bucket()) }

// ToInspect returns the permission to read the info of a bucket; api is the prefix of the JetStream API.
func ToInspect(api, bucket string) Permission { return onStream(api, "INFO", bucket) }

// ToCreate returns the permission to create a bucket.
func ToCreate(api, bucket string) Permission { return onStream(api, "CREATE", bucket) }

// ToRemove returns the permission to remove a bucket.
func ToRemove(api, bucket string) Permission { return onStream(api, "DELETE", bucket) }

// onStream returns the permission for a request about the stream behind a bucket.
func onStream(api, request, bucket string) Permission {
	subject := "STREAM." + request + "." + StreamName(bucket)
	return Permission{api + subject, []string{subject}}
}

// api returns the prefix of the JetStream API; the default if the connection is not known.
func (b *Bucket) api() string {
	if b.js == nil {
		return "$JS.API."
	}
	return APIPrefix(b.js)
}

// refusedBy reports whether a refusal of the server is about the permission.
func (p Permission) refusedBy(refusal error) bool {
	text := refusal.Error()
	for _, m := range p.matches {
		if strings.HasSuffix(m, ".") && strings.Contains(text, m) || strings.Contains(text, m+`"`) {
			return true
		}
	}
	return false
}

// ExplainSilence adds to the error of a request that was not answered the server's refusal, if that is why, and reports whether the permission was
// refused, and not the answer. before is the last error of the connection from before the request was sent.
func (b *Bucket) ExplainSilence(p Permission, before, err error) (refused bool, explained error) {
	nc := b.Conn()
	refusal := newRefusal(nc, p, before)
	if refusal == nil {
		refusal = inboxRefused(nc, nc.LastError()) // of an earlier request: the client subscribes once
	}
	if refusal == nil {
		return false, err
	}
	return p.refusedBy(refusal), fmt.Errorf("%w: %w", refusal, err)
}

// newRefusal returns the last error of a connection, if that is the server's refusal of a permission or of any answer, and was not its last error before;
// else nil.
func newRefusal(nc *nats.Conn, p Permission, before error) error {
	last := nc.LastError()
	switch {
	case !isNewViolation(last, before):
		return nil
	case p.refusedBy(last):
		return last
	}
	return inboxRefused(nc, last)
}

// UntilRefused makes a request that needs a permission, and ends it as soon as the server refuses the permission: a server does not
// answer what it refuses. The error wraps nats.ErrPermissionViolation then, and also if the connection may not receive answers. The error
// of a request without an answer names the permission, because some servers refuse without a sign. The connection may be nil.
func UntilRefused(ctx context.Context, nc *nats.Conn, p Permission, request func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	return untilRefused(ctx, cancel, nc, p, request)
}

// LoadUntilRefused is [Bucket.Load], and ends as soon as the server refuses the request; see [UntilRefused].
func (b *Bucket) LoadUntilRefused(ctx context.Context) (info Info, err error) {
	err = UntilRefused(ctx, b.Conn(), b.ToInspect(), func(ctx context.Context) (err error) {
		info, err = b.Load(ctx)
		return err
	})
	return info, err
}

// untilRefused is UntilRefused with a context that the request may use after its return.
func untilRefused(ctx context.Context, cancel context.CancelCauseFunc, nc *nats.Conn, p Permission, request func(context.Context) error) error {
	if nc == nil {
		return request(ctx)
	}
	began, before := time.Now(), nc.LastError()
	unanswered, answered := context.WithCancel(ctx)
	defer answered()
	go func() {
		for timeutil.Sleep(unanswered, refusalPoll) {
			if refusal := newRefusal(nc, p, before); refusal != nil {
				cancel(refusal)
			}
		}
	}()
	err := request(ctx)
	refusal := context.Cause(ctx)
	switch {
	case err == nil:
		return nil
	case errors.Is(refusal, nats.ErrPermissionViolation):
		return refusal
	case nc.IsConnected() && Failure(err) == FailedTimeout:
		if refusal := inboxRefused(nc, nc.LastError()); refusal != nil { // of an earlier request: the client subscribes once
			return refusal
		}
		return fmt.Errorf("no answer within %v, as when publishing to %s is not permitted: %w", time.Since(began).Round(time.Millisecond), p.Subject, err)
	}
	return err
}

// inboxRefused returns what to do about the last error of a connection, if it is the server's refusal to let the connection receive answers;
// else nil.
func inboxRefused(nc *nats.Conn, last error) error {
	if !errors.Is(last, nats.ErrPermissionViolation) {
		return nil
	}
	prefix := cmp.Or(nc.Opts.InboxPrefix, strings.TrimSuffix(nats.InboxPrefix, "."))
	if !strings.Contains(last.Error(), `Subscription to "`+prefix+`.`) {
		return nil
	}
	return fmt.Errorf("the user of the connection may not receive answers below %s: connect with the inbox prefix that its permissions name, by nats.CustomInboxPrefix, --inbox-prefix or ELECTION_INBOX_PREFIX: %w", prefix, last)
}

// RefusedSince returns the server's refusal of what was sent on a connection, such as Publish to "subject". The client keeps a refusal
// as the last error of the connection, and receives it before the answer to a flush; before is the last error from before the message
// was sent. The result is unclear if the last error is the refusal of another message.
func RefusedSince(ctx context.Context, nc *nats.Conn, before error, what string) (unclear bool, err error) {
	if err := nc.FlushWithContext(ctx); err != nil {
		return false, err
	}
	last := nc.LastError()
	switch {
	case !isNewViolation(last, before):
		return false, nil
	case strings.Contains(last.Error(), what):
		return false, last
	}
	return true, nil
}

// isNewViolation reports whether the last error of a connection is a refusal that was not its last error before.
func isNewViolation(last, before error) bool {
	return errors.Is(last, nats.ErrPermissionViolation) && !errors.Is(last, before)
}

// FindRefusal returns the server's refusal of what was sent on a connection, if there is one; see [RefusedSince]. While that is unclear, as
// when several messages are refused at once, it sends the like again by the given function, which must be harmless.
func FindRefusal(ctx context.Context, nc *nats.Conn, before error, what string, again func() error) error {
	unclear, err := RefusedSince(ctx, nc, before, what)
	for unclear && timeutil.Sleep(ctx, timeutil.Random(refusalCheckDelay)) {
		before = nc.LastError()
		if again() != nil {
			return nil
		}
		unclear, err = RefusedSince(ctx, nc, before, what)
	}
	if errors.Is(err, nats.ErrPermissionViolation) {
		return err
	}
	return nil // or unknown: somebody finds out later
}
