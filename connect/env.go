package connect

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/natscampaign/election/internal/dial"
	"github.com/natscampaign/election/internal/validate"
)

// FromEnv reads a [Config] from the variables of the environment: the package documentation lists them. Those of the election begin with the
// prefix and an underscore, those of the connection with NATS whatever the prefix. An empty prefix is ELECTION. An empty variable counts as
// not set.
//
// The error wraps election.ErrInvalidOption. It names every variable that cannot be used, with its value unless that is a secret, and
// says how to fix it. FromEnv accepts that something is missing, because the program may set the rest; [Connect] and
// election.NewElection do not.
func FromEnv(prefix string) (Config, error) {
	var c Config
	var problems []error
	for i, v := range c.variables(cmp.Or(prefix, "ELECTION") + "_") {
		name, value := v.lookup()
		if value == "" {
			continue
		}
		err := v.set(value)
		if err == nil {
			alone := Config{Name: "x"}.filled()
			_ = alone.variables("")[i].set(value)
			err = alone.validate()
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", name, err))
		}
	}
	if c.Name == "" && os.Getenv("HOSTNAME") != "" {
		c.Name = dial.DefaultName()
	}
	problems = append(problems, c.validatePairs("NATS_CERT", "NATS_KEY", "NATS_PASSWORD", "NATS_USER"))
	if err := errors.Join(problems...); err != nil {
		return Config{}, err
	}
	return c, nil
}

// variable is one setting that FromEnv reads.
type variable struct {
	names []string // of the environment; the first that is set counts
	set   func(value string) error
}

// variables lists everything that FromEnv reads.
func (c *Config) variables(prefix string) []variable {
	own := func(name string, set func(string) error) variable { return variable{[]string{prefix + name}, set} }
	list := []variable{
		{[]string{prefix + "NAME", "POD_NAME"}, text(&c.Name)},
		own("KEY", text(&c.Key)),
		own("BUCKET", text(&c.Bucket)),
		own("TTL", parsed(&c.TTL, parseDuration)),
		own("REPLICAS", parsed(&c.Replicas, parseNumber)),
		own("MAX_BYTES", parsed(&c.MaxBytes, validate.ParseBytes)),
		own("CHORIA_COMPATIBLE", parsed(&c.ChoriaCompatible, parseBool)),
		own("MUST_EXIST", parsed(&c.MustExist, parseBool)),
		own("METADATA", parsed(&c.Metadata, parsePairs)),
		own("PLAIN_VALUE", parsed(&c.PlainValue, parseBool)),
		own("PRIORITY", parsed(&c.Priority, parseNumber)),
		own("PREEMPTION", parsed(&c.Preemption, parseBool)),
		own("RELINQUISH", text(&c.Relinquish)),
		own("INBOX_PREFIX", text(&c.InboxPrefix)),
		{[]string{"NATS_URL"}, text(&c.URL)},
		{[]string{"NATS_CONTEXT"}, text(&c.Context)},
		{[]string{"NATS_USER"}, text(&c.User)},
		{[]string{"NATS_PASSWORD"}, text(&c.Password)},
		{[]string{"NATS_TLS_FIRST"}, parsed(&c.TLSFirst, parseBool)},
	}
	for _, d := range c.durations() {
		list = append(list, own(d.variable, func(value string) error {
			*d.field = new(time.Duration)
			return parsed(*d.field, parseDuration)(value)
		}))
	}
	for _, f := range c.files() {
		list = append(list, variable{[]string{f.variable}, text(f.path)})
	}
	return list
}

// lookup returns the name and the value of the variable that counts; the value is empty if none is set.
func (v variable) lookup() (name, value string) {
	for _, name = range v.names {
		if value = os.Getenv(name); value != "" {
			break
		}
	}
	return name, value
}

// text returns a function that sets a field to a value as it is.
func text(to *string) func(string) error {
	return func(value string) error { *to = value; return nil }
}

// parsed returns a function that sets a field to what parse makes of a value.
func parsed[T any](to *T, parse func(string) (T, error)) func(string) error {
	return func(value string) (err error) { *to, err = parse(value); return err }
}

func parseDuration(value string) (time.Duration, error) {
	d, err := time.ParseDuration(value)
	if err != nil {
		err = validate.Errorf("%q is not a duration: write a number with its unit, such as 750ms or 30s", value)
	}
	return d, err
}

func parseNumber(value string) (int, error) {
	n, err := strconv.Atoi(value)
	if err != nil {
		err = validate.Errorf("%q is not a whole number: write digits, or unset it for the default", value)
	}
	return n, err
}

func parseBool(value string) (bool, error) {
	b, err := strconv.ParseBool(value)
	if err != nil {
		err = validate.Errorf("%q is neither true nor false: write one of these, or unset it for false", value)
	}
	return b, err
}

// parsePairs reads key=value pairs, separated by commas.
func parsePairs(list string) (map[string]string, error) {
	m := map[string]string{}
	var problems []error
	for pair := range strings.SplitSeq(list, ",") {
		k, v, found := strings.Cut(pair, "=")
		if k = strings.TrimSpace(k); !found || k == "" {
			problems = append(problems, validate.Errorf("%q is not a key=value pair: write pairs as zone=a,rack=7", pair))
			continue
		}
		m[k] = strings.TrimSpace(v)
	}
	return m, errors.Join(problems...)
}
