package fence

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/timing"
)

// checkStream returns what makes a stream unfit for epochs that begin under the given subject.
func checkStream(info *jetstream.StreamInfo, subject string, t election.Term) error {
	cfg := info.Config
	if err := checkServer(cfg.Metadata[kv.ServerVersion]); err != nil {
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
	created, _ := kv.CreatedOf(info)
	if bucket, ok := strings.CutPrefix(cfg.Name, kv.StreamName("")); ok && subject == kv.Subject(bucket, t.Key) && created.Equal(t.BucketCreated) {
		return fmt.Errorf("%q is the key of the election itself, under which the lease is renewed: give another subject for epochs", subject)
	}
	return nil
}

// checkServer returns an error for a server that stores writes of older epochs. Servers before 2.11 do not know the demand of the last
// sequence of another subject. Servers before 2.11.7 overlook the demand if its two headers come in a certain order, and nats.go sends
// headers in random order.
func checkServer(version string) error {
	const known = "2.11.7"
	if order, ok := kv.CompareVersion(version, 2, 11, 7); ok && order >= 0 {
		return nil
	}
	return fmt.Errorf("its server has version %s and would store writes of older epochs: upgrade all servers to %s or newer", cmp.Or(version, "2.10 or older"), known)
}

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
	case cfg.MaxAge > 0 && cfg.MaxAge < timing.MaxTTL && !cfg.AllowMsgTTL:
		return fmt.Errorf("it keeps messages for %v (MaxAge), and the record of the epoch no longer, while the lease of an older leader may last %v: allow TTLs per message (AllowMsgTTL, of a bucket LimitMarkerTTL), which exempt the record, or raise the limit to %[2]v at least", cfg.MaxAge, timing.MaxTTL)
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
