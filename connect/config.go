package connect

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/dial"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/natsconn"
	"github.com/natscampaign/election/internal/settings"
	"github.com/natscampaign/election/internal/timing"
	"github.com/natscampaign/election/internal/validate"
)

const defaultBucket = "LEADER_ELECTION"

// Config describes a candidate and its connection: the configuration of a program that has no connection yet. [FromEnv] reads one from
// the environment. The zero value is a candidate with the name of its host and process, on a server at nats://127.0.0.1:4222.
//
// A Config holds secrets. Formatted by fmt, in JSON or in a log it shows none of them.
type Config struct {
	Name string // of the candidate; empty is the name of the host and the process id, as in web-1-4711; see ELECTION_NAME in the package documentation for containers
	Key  string // of the election; may be empty for Connect, but not for election.NewElection

	URL      string // servers, separated by commas
	Context  string // of natscli; the other settings here override its settings
	Creds    string // file with a user's JWT and seed
	NKey     string // file with a user's seed
	User     string // or a token, if there is no password
	Password string
	TLSCert  string // file; goes together with TLSKey
	TLSKey   string // file
	TLSCA    string // file with the authorities that are trusted in place of the system's
	TLSFirst bool   // the TLS handshake comes before the greeting of the server, as handshake_first in its configuration demands
	Domain   string // of JetStream

	// InboxPrefix is what the subjects begin with on which the connection receives answers; empty is _INBOX. The user needs permission to
	// subscribe to what is below it: docs/PERMISSIONS.md gives each user a prefix that no other user may read.
	InboxPrefix string

	// TTL, Replicas, MaxBytes and ChoriaCompatible are properties of a bucket that Connect makes. Connect leaves a bucket that exists as it
	// is, and warns of each of them that is set and differs.

	Bucket           string        // empty is LEADER_ELECTION
	TTL              time.Duration // 0 is 15 s
	Replicas         int           // 1, 3 or 5; 0 is 3 where the server has a cluster with room for them, else 1
	MaxBytes         int64         // of all that the bucket stores, which some accounts demand; 0 is no limit
	ChoriaCompatible bool          // candidates of Choria campaign too: the bucket announces no expiries
	MustExist        bool          // a missing bucket is an error, and Connect does not make it

	// The durations are the options of package election of the same names; nil is the option's default, but for the interval, which then is a quarter
	// of the TTL: a leader so outlasts the crash of a server, if the TTL is 15 s or more. In a bucket that announces no expiries, where candidates of
	// Choria may campaign too, it is 0.75 of the TTL, and so it is with PlainValue. Go's new makes a pointer of any value: new(time.Second).

	Interval, Splay, StandDown, LeaseMargin, ReleaseTimeout *time.Duration

	Metadata   map[string]string // see election.WithMetadata
	PlainValue bool              // see election.WithPlainValue; implies ChoriaCompatible
	Priority   int               // see election.WithPriority
	Preemption bool              // see election.WithPreemption
	Relinquish string            // see election.WithRelinquish

	Logger *slog.Logger // of the election and of Connect; nil logs nothing
}

// duration is one row of the table of durations.
type duration struct {
	variable string // of the environment, after the prefix
	field    **time.Duration
	option   func(time.Duration) election.Option
}

// durations lists every duration that is an option.
func (c *Config) durations() []duration {
	return []duration{
		{"INTERVAL", &c.Interval, election.WithCampaignInterval},
		{"SPLAY", &c.Splay, election.WithSplay},
		{"STAND_DOWN", &c.StandDown, election.WithStandDown},
		{"LEASE_MARGIN", &c.LeaseMargin, election.WithLeaseMargin},
		{"RELEASE_TIMEOUT", &c.ReleaseTimeout, election.WithReleaseTimeout},
	}
}

// file is one row of the table of files.
type file struct {
	name, variable string
	path           *string
}

// files lists every field that is the path of a file.
func (c *Config) files() []file {
	return []file{
		{"Creds", "NATS_CREDS", &c.Creds}, {"NKey", "NATS_NKEY", &c.NKey},
		{"TLSCert", "NATS_CERT", &c.TLSCert}, {"TLSKey", "NATS_KEY", &c.TLSKey}, {"TLSCA", "NATS_CA", &c.TLSCA},
	}
}

// Options returns the options that c sets, for election.NewElection on a connection that [Connect] did not make.
func (c Config) Options() []election.Option {
	opts := []election.Option{settings.ShortInterval}
	add := func(set bool, option func() election.Option) {
		if set {
			opts = append(opts, option())
		}
	}
	for _, d := range c.durations() {
		add(*d.field != nil, func() election.Option { return d.option(**d.field) })
	}
	add(len(c.Metadata) > 0, func() election.Option { return election.WithMetadata(c.Metadata) })
	add(c.PlainValue, election.WithPlainValue)
	add(c.Priority != 0, func() election.Option { return election.WithPriority(c.Priority) })
	add(c.Preemption, election.WithPreemption)
	add(c.Relinquish != "", func() election.Option { return election.WithRelinquish(c.Relinquish) })
	// A name with a process id would make new series of metrics at each start.
	add(c.Name != dial.Host() && c.Name == dial.DefaultName(), func() election.Option { return election.WithMetricsIdentity(dial.Host()) })
	add(c.Logger != nil, func() election.Option { return election.WithLogger(c.Logger) })
	return opts
}

// Format writes c as fmt writes a struct, whatever the verb, but without fields that are not set and without secrets.
func (c Config) Format(s fmt.State, _ rune) {
	const hidden = "(hidden)"
	if c.User != "" && c.Password == "" {
		c.User = hidden // it is a token
	}
	if c.Password != "" {
		c.Password = hidden
	}
	c.URL, c.Logger = shownURLs(c.URL), nil
	var set []string
	for field, value := range reflect.ValueOf(c).Fields() {
		if !value.IsZero() {
			set = append(set, fmt.Sprintf("%s:%v", field.Name, reflect.Indirect(value)))
		}
	}
	_, _ = fmt.Fprintf(s, "{%s}", strings.Join(set, " "))
}

// MarshalText returns the text that Format writes. JSON and logs use it.
func (c Config) MarshalText() ([]byte, error) { return fmt.Append(nil, c), nil }

// shownURLs returns a list of servers without secrets.
func shownURLs(list string) string {
	urls := dial.SplitURLs(list)
	for i, u := range urls {
		urls[i] = natsconn.WithoutSecrets(u)
	}
	return strings.Join(urls, ", ")
}

// filled returns c with the defaults of the fields that are not set.
func (c Config) filled() Config {
	if c.Name == "" {
		c.Name = dial.DefaultName() // validate refuses an empty name
	}
	c.Bucket, c.TTL = cmp.Or(c.Bucket, defaultBucket), cmp.Or(c.TTL, timing.DefaultTTL)
	return c
}

// bucketConfig describes the bucket that Connect makes.
func (c Config) bucketConfig() kv.Config {
	return kv.Config{Name: c.Bucket, TTL: c.TTL, Replicas: c.Replicas, MaxBytes: c.MaxBytes, ChoriaCompatible: c.ChoriaCompatible || c.PlainValue}
}

// validate names every problem of single fields that can be found without a server. The defaults must be filled in.
func (c Config) validate() error {
	_, err := settings.Of(c.Options(), c.Name, cmp.Or(c.Key, "any"), futureBucket{})
	problems := []error{err, c.bucketConfig().Validate()}
	for _, u := range dial.SplitURLs(c.URL) {
		if err := dial.CheckURL(u); err != nil {
			problems = append(problems, validate.Errorf("%w", err))
		}
	}
	if c.InboxPrefix != "" && nats.CustomInboxPrefix(c.InboxPrefix)(new(nats.Options)) != nil {
		problems = append(problems, validate.Errorf("%q is not an inbox prefix: give the beginning of a subject, such as _INBOX_web", c.InboxPrefix))
	}
	for _, f := range c.files() {
		if *f.path != "" && !dial.IsFile(*f.path) {
			problems = append(problems, validate.Errorf("%s: there is no file %s: correct the path, or leave it out", f.name, *f.path))
		}
	}
	return errors.Join(problems...)
}

// validatePairs names every field that needs another field, which is not set. The arguments are the names that the caller uses for them.
func (c Config) validatePairs(cert, key, password, user string) error {
	var problems []error
	for _, p := range []struct{ name, value, needed, neededValue string }{
		{cert, c.TLSCert, key, c.TLSKey}, {key, c.TLSKey, cert, c.TLSCert}, {password, c.Password, user, c.User},
	} {
		if p.value != "" && p.neededValue == "" {
			problems = append(problems, fmt.Errorf("%s: %w", p.name, validate.Errorf("it needs %s, which is not set: set both or neither", p.needed)))
		}
	}
	return errors.Join(problems...)
}

// futureBucket stands for the bucket, with its connection, where options are validated before there is a connection.
type futureBucket struct{ jetstream.KeyValue }

func (futureBucket) JetStream() jetstream.JetStream { return futureJetStream{} }

type futureJetStream struct{ jetstream.JetStream }

func (futureJetStream) Conn() *nats.Conn { return new(nats.Conn) }
