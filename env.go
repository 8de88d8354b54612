package election

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/natscampaign/election/internal/reach"
)

// FromEnv reads a [Config] from the variables of the environment that begin with the prefix and an underscore; an empty
// prefix is ELECTION. One that is empty counts as not set.
//
//	ELECTION_NAME             the candidate; else POD_NAME, HOSTNAME or the name of the host
//	ELECTION_KEY              the election
//	ELECTION_BUCKET           LEADER_ELECTION unless it is said
//	ELECTION_TTL              of a bucket that is made, as 30s
//	ELECTION_REPLICAS         of a bucket that is made: 1, 3 or 5
//	ELECTION_MUST_EXIST       true: do not make a bucket
//	ELECTION_MIXED            true: candidates of Choria stand too
//	ELECTION_INTERVAL         see WithCampaignInterval
//	ELECTION_SPLAY            see WithSplay
//	ELECTION_STAND_DOWN       see WithStandDown
//	ELECTION_LEASE_MARGIN     see WithLeaseMargin
//	ELECTION_RELEASE_TIMEOUT  see WithReleaseTimeout
//	ELECTION_METADATA         see WithMetadata: zone=a,rack=7
//	ELECTION_PLAIN_VALUE      true: see WithPlainValue
//	ELECTION_PRIORITY         see WithPriority
//	ELECTION_PREEMPTION       true: see WithPreemption
//	ELECTION_RELINQUISH       see WithRelinquish, or WithRelinquishSchedule: 6h, or 0 4 * * *
//
// How to reach NATS is read from natscli's variables, whatever the prefix: NATS_URL, NATS_CONTEXT, NATS_CREDS, NATS_NKEY,
// NATS_USER, NATS_PASSWORD, NATS_CERT, NATS_KEY and NATS_CA. A context is used only if it is named: one that happens to be
// selected on a machine says nothing of what runs there.
//
// The error wraps [ErrInvalidOption] and names every variable that cannot be used, with its value unless that is a
// secret, and the way out. That nothing is missing is for Connect and NewElection to see, as the program may say the rest.
func FromEnv(prefix string) (Config, error) {
	r := envReader{prefix: cmp.Or(prefix, "ELECTION") + "_"}
	var c Config
	r.identity(&c)
	r.bucket(&c)
	r.options(&c)
	r.server(&c)
	if err := errors.Join(r.problems...); err != nil {
		return Config{}, err
	}
	return c, nil
}

// envReader reads variables and remembers what is wrong with them.
type envReader struct {
	prefix   string
	problems []error
}

// read has use take in the value of a variable, if it is set, and remembers its complaint.
func (r *envReader) read(variable string, use func(value string) error) bool {
	value := os.Getenv(variable)
	if value == "" {
		return false
	}
	if err := use(value); err != nil {
		r.problems = append(r.problems, fmt.Errorf("%s: %w", variable, err))
	}
	return true
}

func (r *envReader) identity(c *Config) {
	name := text(&c.Name, validateName)
	_ = r.read(r.prefix+"NAME", name) || r.read("POD_NAME", name) || r.read("HOSTNAME", name)
	r.read(r.prefix+"KEY", text(&c.Key, validateKey))
}

func (r *envReader) bucket(c *Config) {
	r.read(r.prefix+"BUCKET", text(&c.Bucket, func(name string) error {
		return BucketConfig{Name: name, TTL: defaultTTL}.validate()
	}))
	r.read(r.prefix+"TTL", func(value string) error {
		if err := duration(&c.TTL)(value); err != nil {
			return err
		}
		return BucketConfig{Name: defaultBucket, TTL: c.TTL}.validate()
	})
	r.read(r.prefix+"REPLICAS", func(value string) error {
		if err := number(&c.Replicas)(value); err != nil {
			return err
		}
		return BucketConfig{Name: defaultBucket, TTL: defaultTTL, Replicas: c.Replicas}.validate()
	})
	r.read(r.prefix+"MUST_EXIST", truth(&c.MustExist))
	r.read(r.prefix+"MIXED", truth(&c.Mixed))
}

func (r *envReader) options(c *Config) {
	for _, d := range []struct {
		name   string
		value  **time.Duration
		option func(time.Duration) Option
	}{
		{"INTERVAL", &c.Interval, WithCampaignInterval},
		{"SPLAY", &c.Splay, WithSplay},
		{"STAND_DOWN", &c.StandDown, WithStandDown},
		{"LEASE_MARGIN", &c.LeaseMargin, WithLeaseMargin},
		{"RELEASE_TIMEOUT", &c.ReleaseTimeout, WithReleaseTimeout},
	} {
		r.read(r.prefix+d.name, func(value string) error {
			*d.value = new(time.Duration)
			if err := duration(*d.value)(value); err != nil {
				return err
			}
			opts := collect([]Option{d.option(**d.value)})
			return opts.validateAlone()
		})
	}
	r.read(r.prefix+"METADATA", func(value string) (err error) {
		if c.Metadata, err = pairs(value); err != nil {
			return err
		}
		opts := options{metadata: c.Metadata}
		return opts.validateMetadata()
	})
	r.read(r.prefix+"PLAIN_VALUE", truth(&c.PlainValue))
	r.read(r.prefix+"PRIORITY", number(&c.Priority))
	r.read(r.prefix+"PREEMPTION", truth(&c.Preemption))
	r.read(r.prefix+"RELINQUISH", func(value string) error {
		c.Relinquish = value
		opts := collect([]Option{relinquishBy(value)})
		return opts.validateAlone()
	})
}

func (r *envReader) server(c *Config) {
	r.read("NATS_URL", text(&c.URL, func(list string) error {
		var problems []error
		for _, u := range reach.SplitURLs(list) {
			problems = append(problems, validateURL(u))
		}
		return errors.Join(problems...)
	}))
	anything := func(string) error { return nil }
	r.read("NATS_CONTEXT", text(&c.Context, anything))
	r.read("NATS_USER", text(&c.User, anything))
	r.read("NATS_PASSWORD", text(&c.Password, func(string) error {
		if c.User == "" {
			return invalid("a password without a user: set NATS_USER, or unset it")
		}
		return nil
	}))
	for _, f := range []struct {
		variable string
		path     *string
	}{
		{"NATS_CREDS", &c.Creds}, {"NATS_NKEY", &c.NKey}, {"NATS_CERT", &c.TLSCert}, {"NATS_KEY", &c.TLSKey}, {"NATS_CA", &c.TLSCA},
	} {
		r.read(f.variable, text(f.path, validateFile))
	}
	if (c.TLSCert == "") != (c.TLSKey == "") {
		r.problems = append(r.problems, invalid("NATS_CERT=%q, NATS_KEY=%q: they go together, set both or neither", c.TLSCert, c.TLSKey))
	}
}

// The following return functions that take in a value of their type.

func text(to *string, check func(string) error) func(string) error {
	return func(value string) error {
		*to = value
		return check(value)
	}
}

func duration(to *time.Duration) func(string) error {
	return func(value string) error {
		d, err := time.ParseDuration(value)
		if err != nil {
			return invalid("%q is no duration: write a number with its unit, such as 750ms or 30s", value)
		}
		*to = d
		return nil
	}
}

func number(to *int) func(string) error {
	return func(value string) error {
		n, err := strconv.Atoi(value)
		if err != nil {
			return invalid("%q is no whole number: write digits, or unset it for the default", value)
		}
		*to = n
		return nil
	}
}

func truth(to *bool) func(string) error {
	return func(value string) error {
		b, err := strconv.ParseBool(value)
		if err != nil {
			return invalid("%q is neither true nor false: write one of these, or unset it for false", value)
		}
		*to = b
		return nil
	}
}

// pairs reads key=value pairs with commas between them.
func pairs(list string) (map[string]string, error) {
	m := map[string]string{}
	var problems []error
	for pair := range strings.SplitSeq(list, ",") {
		k, v, found := strings.Cut(pair, "=")
		if k = strings.TrimSpace(k); !found || k == "" {
			problems = append(problems, invalid("%q is no key=value pair: write them as zone=a,rack=7", pair))
			continue
		}
		m[k] = strings.TrimSpace(v)
	}
	return m, errors.Join(problems...)
}
