package group

import (
	"errors"
	"log/slog"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/settings"
	"github.com/natscampaign/election/internal/validate"
)

const (
	// MaxKeys is how many keys a group may have.
	MaxKeys = 10_000
	// maxKeysBytes bounds the length of all keys together: they fit into one record, of a list or of the plan.
	maxKeysBytes = 512 << 10
)

// MaxMembers is how many members a group may have. Each has a consumer on the stream of the bucket, of which servers allow 1,000 by default.
const MaxMembers = 800

// maxMembers is MaxMembers, but for tests.
var maxMembers = MaxMembers

// Option configures a [Group].
type Option func(*options)

type options struct {
	election []election.Option
	logger   *slog.Logger
	problems []error
}

// WithElectionOptions gives options to the election of each key, such as election.WithCampaignInterval or election.WithRegisterer. The
// group sets the splay, the priority and the callbacks itself, whatever is given, and refuses election.WithPlainValue: without records
// nothing can be handed over. A bucket that does not know its connection needs election.WithJetStream here.
func WithElectionOptions(opts ...election.Option) Option {
	return func(o *options) { o.election = append(o.election, opts...) }
}

// WithLogger sets the logger of the group and its elections. Default: nothing is logged.
func WithLogger(l *slog.Logger) Option {
	return func(o *options) {
		if l == nil {
			o.problems = append(o.problems, validate.Errorf("WithLogger was given nil: leave the option out instead"))
			return
		}
		o.logger = l
		o.election = append(o.election, election.WithLogger(l))
	}
}

func collect(opts []Option) options {
	o := options{logger: slog.New(slog.DiscardHandler)}
	for _, opt := range opts {
		if opt == nil {
			o.problems = append(o.problems, validate.Errorf("an option was given nil: leave the option out instead"))
			continue
		}
		opt(&o)
	}
	return o
}

// checkGroup refuses a name of the group by which a key of this group could be a key of another. The other is the one whose name comes before
// ".keys", ".members" or ".lists" in this name: to that group, all keys of this one are elections, members or lists. Names that differ otherwise
// share nothing.
func (g *Group) checkGroup() error {
	parts := strings.Split(g.group, ".")
	i := slices.IndexFunc(parts[1:], func(part string) bool { return part == "keys" || part == "members" || part == "lists" })
	if i < 0 {
		return nil
	}
	return validate.Errorf("the name of the group is %q, so that its keys could be keys of the group %q: use no part \"keys\", \"members\" or \"lists\" after the first, such as %q",
		g.group, strings.Join(parts[:i+1], "."), strings.Join(parts, "-"))
}

// init validates everything that can be validated without the server, and names every problem at once.
func (g *Group) init(bucket jetstream.KeyValue) error {
	problems, size := g.opts.problems, 0
	check := func(what, part, key string) {
		switch {
		case !validate.IsKey(part):
			problems = append(problems, validate.Errorf("%s is %q: use letters, digits, and - _ = / with single dots between them", what, part))
		case len(key) > validate.MaxKeyBytes:
			problems = append(problems, validate.Errorf("%s, %.20q…, has %d bytes with what the group adds: use at most %d", what, part, len(key), validate.MaxKeyBytes))
		}
	}
	check("the name of the group", g.group, g.planKey())
	problems = append(problems, g.checkGroup())
	check("the name", g.name, g.memberKey(g.name))
	for i, key := range g.keys {
		if size += len(key); i > 0 && key == g.keys[i-1] {
			problems = append(problems, validate.Errorf("the key %q is given twice: give each once", key))
			continue
		}
		check("a key", key, g.electionKey(key))
	}
	if len(g.keys) == 0 {
		problems = append(problems, validate.Errorf("there are no keys: give at least one"))
	}
	if len(g.keys) > MaxKeys {
		problems = append(problems, validate.Errorf("there are %d keys: use at most %d, or several groups", len(g.keys), MaxKeys))
	}
	if size > maxKeysBytes {
		problems = append(problems, validate.Errorf("the keys have %d bytes in all: use at most %d, shorter ones or several groups", size, maxKeysBytes))
	}
	set, err := settings.Of(g.opts.election, "member", "key", bucket)
	problems = append(problems, err)
	if set.PlainValue {
		problems = append(problems, validate.Errorf("WithPlainValue: a bare name under the key cannot say who is to take over: leave the option out"))
	}
	g.witness = set.Witness
	if !validate.IsNil(bucket) {
		if g.bucket = set.Bucket(bucket); g.bucket.Conn() == nil {
			problems = append(problems, validate.Errorf("the connection of the bucket is not known: use a bucket of OpenBucket or CreateBucket, or give WithElectionOptions(election.WithJetStream(js))"))
		}
	}
	return errors.Join(problems...)
}
