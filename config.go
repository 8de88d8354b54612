package election

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natscampaign/election/internal/reach"
)

// What a [Config] stands for where it says nothing.
const (
	defaultBucket = "LEADER_ELECTION"
	defaultTTL    = 30 * time.Second
)

// Config says who stands in which election, on what server and how: what a program is configured with that has no
// connection yet. [FromEnv] reads one from the environment, and [Connect] makes of it what [NewElection] needs. Its zero
// value is a candidate with the name of its host, on a server at nats://127.0.0.1:4222.
//
// It holds secrets; formatted by fmt, in JSON or in a log it shows none.
type Config struct {
	Name string // of the candidate; empty is the name of the host
	Key  string // of the election; may be empty for Connect, but not for NewElection

	URL      string // servers, with commas between them
	Context  string // of natscli, whose settings the others here override
	Creds    string // file with a user's JWT and seed
	NKey     string // file with a user's seed
	User     string // or a token, where there is no password
	Password string
	TLSCert  string // file; goes together with TLSKey
	TLSKey   string // file
	TLSCA    string // file with the authorities that are trusted in place of the system's
	Domain   string // of JetStream

	Bucket    string        // LEADER_ELECTION unless it is said
	TTL       time.Duration // of a bucket that is made; 0 is 30 s
	Replicas  int           // of a bucket that is made: 1, 3 or 5; 0 is 1
	MustExist bool          // a bucket that is missing is an error, and not made
	Mixed     bool          // candidates of Choria stand too: a bucket that is made announces no expiries

	// The following are options of the same names; nil is the default. Go's new makes a pointer of any value, as
	// new(time.Second).
	Interval, Splay, StandDown, LeaseMargin, ReleaseTimeout *time.Duration

	Metadata   map[string]string // see WithMetadata
	PlainValue bool              // see WithPlainValue; goes with Mixed
	Priority   int               // see WithPriority
	Preemption bool              // see WithPreemption
	Relinquish string            // a duration for WithRelinquish, or a line for WithRelinquishSchedule

	Logger *slog.Logger // of the election and of Connect; nil logs nothing
}

// Options returns the options that c says, for [NewElection] on a connection made elsewhere, and without [WithJetStream].
func (c Config) Options() []Option {
	var opts []Option
	for _, d := range []struct {
		value  *time.Duration
		option func(time.Duration) Option
	}{
		{c.Interval, WithCampaignInterval},
		{c.Splay, WithSplay},
		{c.StandDown, WithStandDown},
		{c.LeaseMargin, WithLeaseMargin},
		{c.ReleaseTimeout, WithReleaseTimeout},
	} {
		if d.value != nil {
			opts = append(opts, d.option(*d.value))
		}
	}
	if len(c.Metadata) > 0 {
		opts = append(opts, WithMetadata(c.Metadata))
	}
	if c.PlainValue {
		opts = append(opts, WithPlainValue())
	}
	if c.Priority != 0 {
		opts = append(opts, WithPriority(c.Priority))
	}
	if c.Preemption {
		opts = append(opts, WithPreemption())
	}
	if c.Relinquish != "" {
		opts = append(opts, relinquishBy(c.Relinquish))
	}
	if c.Logger != nil {
		opts = append(opts, WithLogger(c.Logger))
	}
	return opts
}

// relinquishBy returns the option for a period or a schedule.
func relinquishBy(value string) Option {
	if period, err := time.ParseDuration(value); err == nil {
		return WithRelinquish(period)
	}
	return WithRelinquishSchedule(value)
}

// Format writes what c says as fmt writes a struct, whatever the verb, but for its secrets.
func (c Config) Format(s fmt.State, _ rune) {
	const hidden = "(hidden)"
	if c.User != "" && c.Password == "" {
		c.User = hidden // it is a token
	}
	if c.Password != "" {
		c.Password = hidden
	}
	c.URL, c.Logger = strings.Join(shownURLs(c.URL), ","), nil
	var said []string
	for field, value := range reflect.ValueOf(c).Fields() {
		if !value.IsZero() {
			said = append(said, fmt.Sprintf("%s:%v", field.Name, reflect.Indirect(value)))
		}
	}
	_, _ = fmt.Fprintf(s, "{%s}", strings.Join(said, " "))
}

// MarshalText returns what Format writes, which is what becomes of c in JSON and in logs.
func (c Config) MarshalText() ([]byte, error) { return fmt.Append(nil, c), nil }

// filled returns c with the defaults for what it does not say.
func (c Config) filled() Config {
	if c.Name == "" {
		c.Name, _ = os.Hostname() // an empty name is refused later
	}
	c.Bucket, c.TTL = cmp.Or(c.Bucket, defaultBucket), cmp.Or(c.TTL, defaultTTL)
	return c
}

// bucket returns what a bucket is to be that does not exist.
func (c Config) bucket() BucketConfig {
	return BucketConfig{Name: c.Bucket, TTL: c.TTL, Replicas: c.Replicas, Mixed: c.Mixed || c.PlainValue}
}

// validate names every problem that can be found without a server.
func (c Config) validate() error {
	opts := collect(c.Options())
	problems := []error{validateName(c.Name), opts.validateAlone(), c.bucket().validate()}
	if c.Key != "" {
		problems = append(problems, validateKey(c.Key))
	}
	for _, u := range reach.SplitURLs(c.URL) {
		problems = append(problems, validateURL(u))
	}
	for _, f := range []struct{ what, path string }{
		{"Creds", c.Creds}, {"NKey", c.NKey}, {"TLSCert", c.TLSCert}, {"TLSKey", c.TLSKey}, {"TLSCA", c.TLSCA},
	} {
		if err := validateFile(f.path); err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", f.what, err))
		}
	}
	if (c.TLSCert == "") != (c.TLSKey == "") {
		problems = append(problems, invalid("TLSCert %q, TLSKey %q: they go together, give both or neither", c.TLSCert, c.TLSKey))
	}
	if c.Password != "" && c.User == "" {
		problems = append(problems, invalid("a Password without a User: say whose it is"))
	}
	return errors.Join(problems...)
}

// validateURL refuses what nats.Connect could only fail on.
func validateURL(s string) error {
	if err := reach.CheckURL(s); err != nil {
		return invalid("%w", err)
	}
	return nil
}

// validateFile refuses the path of a file that is not there; an empty path names none.
func validateFile(path string) error {
	if path == "" {
		return nil
	}
	if info, err := os.Stat(reach.ExpandHome(path)); err != nil || info.IsDir() {
		return invalid("%s: there is no such file: correct the path, or leave it out", path)
	}
	return nil
}

// shownURLs returns the servers of a list as messages may show them.
func shownURLs(list string) []string {
	urls := reach.SplitURLs(list)
	for i, u := range urls {
		urls[i] = reach.WithoutSecrets(u)
	}
	return urls
}

// login returns the options for the credentials that c says, if any, in place of all that a context has.
func (c Config) login() ([]nats.Option, error) {
	opts, err := reach.Login(c.User, c.Password, c.Creds, c.NKey)
	if err != nil {
		return nil, invalid("NKey %s: %v: name a file with a user's seed", c.NKey, err)
	}
	return opts, nil
}
