package group

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"regexp"

	"github.com/natscampaign/election"
)

const (
	// maxKeyBytes is how long a key of the bucket may be, with what the group puts before it.
	maxKeyBytes = 255
	// maxKeysBytes is how long all keys together may be: they fit into one record, of a presence or of the plan.
	maxKeysBytes = 512 << 10
)

// Option configures a [Group].
type Option func(*options)

type options struct {
	election []election.Option
	logger   *slog.Logger
	problems []error
}

// WithElectionOptions gives options to the election of each key, such as election.WithCampaignInterval or
// election.WithRegisterer. Not all have a use here: the group decides on the splay, the priority, the connection and the
// callbacks, whatever is given, and refuses election.WithPlainValue, without records nothing is handed over.
func WithElectionOptions(opts ...election.Option) Option {
	return func(o *options) { o.election = append(o.election, opts...) }
}

// WithLogger sets the logger of the group and its elections. Default: nothing is logged.
func WithLogger(l *slog.Logger) Option {
	return func(o *options) {
		if l == nil {
			o.problems = append(o.problems, invalid("WithLogger was given nil: leave the option out instead"))
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
			o.problems = append(o.problems, invalid("an option was given nil: leave the option out instead"))
			continue
		}
		opt(&o)
	}
	return o
}

// invalid makes an error of a value that cannot be used; the message names the value and the way out.
func invalid(format string, a ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{election.ErrInvalidOption}, a...)...)
}

// validate checks all that can be checked without the server and names every problem at once.
func (g *Group) validate() error {
	problems := append(g.opts.problems, validatePart("the name", g.name), validatePart("the name of the group", g.group))
	if g.js == nil || reflect.ValueOf(g.js).Kind() == reflect.Pointer && reflect.ValueOf(g.js).IsNil() {
		problems = append(problems, invalid("the JetStream context is nil: pass the one that the bucket was opened with"))
	}
	size := 0
	for i, key := range g.keys {
		if size += len(key); i > 0 && key == g.keys[i-1] {
			problems = append(problems, invalid("the key %q is given twice: give each once", key))
			continue
		}
		problems = append(problems, validatePart("a key", key))
		if long := len(g.electionKey(key)); long > maxKeyBytes {
			problems = append(problems, invalid("the key %.20q… has %d bytes with what the group adds: use at most %d", key, long, maxKeyBytes))
		}
	}
	if len(g.keys) == 0 {
		problems = append(problems, invalid("there are no keys: give at least one"))
	}
	if size > maxKeysBytes {
		problems = append(problems, invalid("the keys have %d bytes in all: use at most %d, shorter ones or several groups", size, maxKeysBytes))
	}
	if long := len(g.memberKey(g.name)); long > maxKeyBytes {
		problems = append(problems, invalid("the name %.20q… has %d bytes with what the group adds: use at most %d", g.name, long, maxKeyBytes))
	}
	// An election that is never started finds what is wrong with the bucket and the options, and says whether it could
	// hand over at all.
	probe, err := election.NewElection("probe", "probe", g.bucket, g.opts.election...)
	if problems = append(problems, err); err == nil {
		if err := probe.Transfer(context.Background(), "other"); errors.Is(err, election.ErrInvalidOption) {
			problems = append(problems, err)
		}
	}
	return errors.Join(problems...)
}

var legalPart = regexp.MustCompile(`^[-/_=a-zA-Z0-9]+(\.[-/_=a-zA-Z0-9]+)*$`)

func validatePart(what, part string) error {
	if legalPart.MatchString(part) {
		return nil
	}
	return invalid("%s is %q: use letters, digits, and - _ = / with single dots between them", what, part)
}
