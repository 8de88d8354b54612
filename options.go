package election

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"regexp"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/robfig/cron/v3"
)

const (
	minTTL = time.Second
	maxTTL = time.Hour

	// minTry is the shortest time that a renewal is given; with less before the deadline none is sent. It also keeps
	// renewals away from the last milliseconds of a key's life, in which a server may acknowledge a write and then
	// expire it all the same.
	minTry = 25 * time.Millisecond
	// maxTry is the longest time that one request to the server is given.
	maxTry = 2 * time.Second
	// minRoom is what must be left between a renewal and the deadline: time for two tries that fail and one more.
	minRoom = 4 * minTry

	maxNameBytes     = 255
	maxKeyBytes      = 255
	maxMetadataBytes = 8 << 10
)

// Option configures an [Election]. An option that is given twice counts as given last, but callbacks add up: they are
// called in the order in which they were given.
type Option func(*options)

type options struct {
	interval, splay, standDown, margin, releaseTimeout *time.Duration // nil: the default

	backoff       Backoff
	onWon, onLost []termCallback
	onCampaign    []func(State)
	onLeader      []func(Leader)

	logger     *slog.Logger
	debug      func(format string, a ...any)
	registerer prometheus.Registerer
	namespace  *string

	metadata map[string]string
	plain    bool
	js       jetstream.JetStream
	priority int
	preempt  bool
	fair     bool

	health     func(context.Context) error
	threshold  *int
	every      *time.Duration
	cronSpec   *string
	relinquish cron.Schedule // what every or cronSpec says; nil if there is none

	missing []string // options that were given nil
}

// WithBackoff sets how long a candidate waits after a lost campaign. Default: one campaign interval, always.
func WithBackoff(b Backoff) Option {
	return func(o *options) { o.backoff = b; o.require("WithBackoff", b != nil) }
}

// WithDebug sends every log line, formatted, to f as well: what users of Choria's election have for a log. It is called
// by any goroutine, the one that renews too, so it should be quick, and by several at a time.
func WithDebug(f func(format string, a ...any)) Option {
	return func(o *options) { o.debug = f; o.require("WithDebug", f != nil) }
}

// WithCampaignInterval sets the time between two renewals of a leader, and between two campaigns of a candidate that
// has no [Backoff]. Default: 0.75 of the bucket's TTL. It must leave at least 100 ms, room to try again, before the
// lease's deadline. A shorter one survives longer outages of the server and costs more requests.
func WithCampaignInterval(d time.Duration) Option {
	return func(o *options) { o.interval = &d }
}

// WithSplay sets the longest random wait before the first campaign, which keeps a fleet that starts together from
// campaigning together. Default: 5 s or one campaign interval, whichever is less; 0 turns it off.
func WithSplay(longest time.Duration) Option {
	return func(o *options) { o.splay = &longest }
}

// WithStandDown sets how long a winner waits, from the acknowledgement of its win, before it sends the renewal from which
// leadership counts: the time in which a previous leader that does not know yet stands down. Default: one campaign
// interval, the winner's or its predecessor's, whichever is longer, which forgives clocks that are wrong by nearly as much; at
// most 1 h. With d shorter, two leaders cannot overlap
// after an expiry as long as d plus the lease margin covers the error of the server's clock over one TTL. After a release
// that the previous leader wrote there is no stand-down at all.
func WithStandDown(d time.Duration) Option {
	return func(o *options) { o.standDown = &d }
}

// WithLeaseMargin sets how long before the TTL has passed since the last acknowledged write was sent a leader stops
// believing. Default: 50 ms or a fiftieth of the TTL, whichever is more. It must be less than half the TTL.
func WithLeaseMargin(d time.Duration) Option {
	return func(o *options) { o.margin = &d }
}

// WithReleaseTimeout sets how long a leader that stops or resigns keeps its lease alive while callbacks and work have
// not returned. After it nothing is released and the key expires. Default: one TTL.
func WithReleaseTimeout(d time.Duration) Option {
	return func(o *options) { o.releaseTimeout = &d }
}

// WithLogger sets the logger. Changes of leadership are logged as Info, the first failed renewal in a row as Warn, each
// campaign as Debug. Default: nothing is logged.
func WithLogger(l *slog.Logger) Option {
	return func(o *options) { o.logger = l; o.require("WithLogger", l != nil) }
}

// WithRegisterer registers the election's metrics with r from the start of the election to its end. Default: none; nil
// is none. See the package documentation for the metrics.
func WithRegisterer(r prometheus.Registerer) Option {
	return func(o *options) {
		if o.registerer = r; isNil(r) {
			o.registerer = nil
		}
	}
}

// WithNamespace registers three of the metrics a second time, under the names that dashboards of other elections know: with
// "choria", those of Choria, choria_election_campaigns, choria_election_leader and choria_election_interval_seconds; with
// "choria_asyncjobs", those of its asyncjobs. They say what ours say, at every scrape; promtool will have a word about the
// counter, whose name never ended in _total. Default: ours alone. Where [WithRegisterer] names none there are no metrics, by
// no name.
func WithNamespace(namespace string) Option {
	return func(o *options) { o.namespace = &namespace }
}

// WithMetadata adds m to the record that this candidate writes while it holds the key, at most 8 KiB in all.
func WithMetadata(m map[string]string) Option {
	return func(o *options) { o.metadata = maps.Clone(m) }
}

// WithPlainValue writes the bare name under the key in place of a record, as Choria's candidates do, for mixed fleets
// whose tools print it. A bare name does not prove whose late write it is, so that a renewal whose reply was lost ends the term at
// its deadline. A release is a record for 50 ms, for candidates of this package, and then deleted for Choria's.
func WithPlainValue() Option {
	return func(o *options) { o.plain = true }
}

// WithJetStream gives the election the JetStream context that the bucket was opened with. With it a candidate is notified of a
// vacancy by what the bucket republishes, at no cost to the server, reads the markers of expiries and deletions, and learns at once
// that its connection was made again or closed; and a leader counts the candidates, so that few of many answer a vacancy.
// Default: none; then one watcher per bucket is used.
func WithJetStream(js jetstream.JetStream) Option {
	return func(o *options) { o.js = js; o.require("WithJetStream", js != nil) }
}

// WithPriority has this candidate answer a vacancy before those of lower priority: 25 ms for each priority that stands
// between, but at once where nobody of a higher one stands. Default: 0; it may be negative. A leader must have heard who
// stands for this to work, so all need [WithJetStream]. It is a preference: when several start together, or when the
// higher ones do not answer in time, a lower one may lead; see [WithPreemption].
func WithPriority(n int) Option {
	return func(o *options) { o.priority = n }
}

// WithPreemption has this candidate ask a leader of lower priority to transfer leadership to it, once it has stood for a
// campaign interval, and then once per interval. The leader hands over in order, as by [Election.Transfer]; one that does
// not answer leads on. Default: leaders are left alone. It needs [WithJetStream] on both sides.
func WithPreemption() Option {
	return func(o *options) { o.preempt = true }
}

// WithFairness gives those who stand about the same chance at each vacancy, as those who wait for a lock expect: a release
// names no heir, and this candidate answers a vacancy after a random delay of up to 4 ms even where few stand, and up to
// 46 ms where many do or nobody counted. All should have it. It is chance and no queue, and whoever is nearer to the server
// than others by more than that comes first more often. Default: a release is left to the candidate that began to stand
// last, which suits rolling updates; but where leaders let go all the time, one that has stood for long may never lead.
func WithFairness() Option {
	return func(o *options) { o.fair = true }
}

// WithHealthCheck has the candidate's health checked four times in each campaign interval, but no more often than every
// 100 ms and at least every 10 s. check may take as long as lies between two checks; its context ends then, and later it
// counts as failed, as it does when it panics. After three failures in a row (see [WithHealthThreshold]) a leader hands
// over in order, as by [Election.Resign], and a candidate does not campaign; before the first success it does not either.
// It stands again after a number of successes in a row, more with each relapse that follows soon. Default: it is taken to
// be healthy.
func WithHealthCheck(check func(context.Context) error) Option {
	return func(o *options) { o.health = check; o.require("WithHealthCheck", check != nil) }
}

// WithHealthThreshold sets after how many failed checks in a row a candidate counts as unhealthy, between 1 and 1000.
// Default: 3. As many successes make it healthy again, and up to eight times as many after relapses.
func WithHealthThreshold(failures int) Option {
	return func(o *options) { o.threshold = &failures }
}

// WithRelinquish has a leader hand over to another candidate after it has led for the given time, and up to a tenth of it
// or a minute longer, at random. It asks first who is ready, of the highest priority that there is, and leads on for
// another such time where nobody is; so it needs [WithJetStream], as the others do. Default: it leads for as long as it can.
func WithRelinquish(every time.Duration) Option {
	return func(o *options) { o.every = &every }
}

// WithRelinquishSchedule is [WithRelinquish] at times of day: spec is a line of cron's five fields, such as "0 4 * * *", or
// one of its words, such as "@daily" or "@every 6h", in this host's time zone or one that it names ("CRON_TZ=UTC 0 4 * *
// *").
func WithRelinquishSchedule(spec string) Option {
	return func(o *options) { o.cronSpec = &spec }
}

// collect returns what the options say, each to be validated.
func collect(opts []Option) (o options) {
	for _, opt := range opts {
		if opt == nil {
			o.missing = append(o.missing, "an option")
			continue
		}
		opt(&o)
	}
	if o.every != nil {
		o.relinquish = every(*o.every)
	}
	if o.cronSpec != nil {
		o.relinquish, _ = cron.ParseStandard(*o.cronSpec) // validate tells
	}
	return o
}

// conn returns the connection; nil if it is not known.
func (o *options) conn() *nats.Conn {
	if o.js == nil {
		return nil
	}
	return o.js.Conn()
}

func (o *options) require(option string, given bool) {
	if !given {
		o.missing = append(o.missing, option)
	}
}

// isNil says whether v is nil, or a nil pointer in an interface, as an unset variable of a concrete type becomes.
func isNil(v any) bool {
	r := reflect.ValueOf(v)
	return v == nil || r.Kind() == reflect.Pointer && r.IsNil()
}

// invalid makes an error of a value that cannot be used; the message names the value and the way out.
func invalid(format string, a ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrInvalidOption}, a...)...)
}

// validate checks all that can be checked without the server and names every problem at once.
func (o *options) validate(name, key string, bucket jetstream.KeyValue) error {
	problems := []error{validateName(name), validateKey(key)}
	if o.plain && parseRecord([]byte(name)).Instance != "" {
		problems = append(problems, invalid("WithPlainValue: the name %q would be read as a record: use another", name))
	}
	if o.js == nil && (o.preempt || o.every != nil || o.cronSpec != nil) {
		problems = append(problems, invalid("WithPreemption and WithRelinquish ask other candidates over NATS: give WithJetStream too"))
	}
	if isNil(bucket) {
		problems = append(problems, invalid("the bucket is nil: pass the one that JetStream.KeyValue returned"))
	}
	return errors.Join(append(problems, o.validateAlone())...)
}

// validateAlone checks the options by themselves.
func (o *options) validateAlone() error {
	problems := []error{o.validateMetadata(), o.validateHandover(), o.validateNamespace()}
	for _, option := range o.missing {
		problems = append(problems, invalid("%s was given nil: leave the option out instead", option))
	}
	if o.interval != nil && *o.interval >= 0 && *o.interval < minPause {
		problems = append(problems, invalid("WithCampaignInterval(%v) is too short: give at least %v, or leave it out for 0.75 of the TTL", *o.interval, minPause))
	}
	for _, d := range []struct {
		option string
		value  *time.Duration
	}{
		{"WithCampaignInterval", o.interval},
		{"WithSplay", o.splay},
		{"WithStandDown", o.standDown},
		{"WithLeaseMargin", o.margin},
		{"WithReleaseTimeout", o.releaseTimeout},
	} {
		if d.value != nil && d.option == "WithStandDown" && *d.value > maxTTL {
			problems = append(problems, invalid("WithStandDown(%v) is longer than any lease: give at most %v", *d.value, maxTTL))
		}
		if d.value != nil && *d.value < 0 {
			problems = append(problems, invalid("%s(%v) is negative: give a positive duration, or leave it out for the default", d.option, *d.value))
		}
	}
	return errors.Join(problems...)
}

// validateHandover checks the options by which leadership is handed over.
func (o *options) validateHandover() error {
	var problems []error
	if o.threshold != nil && (*o.threshold < 1 || *o.threshold > 1000) {
		problems = append(problems, invalid("WithHealthThreshold(%d): give a number from 1 to 1000", *o.threshold))
	}
	if o.threshold != nil && o.health == nil {
		problems = append(problems, invalid("WithHealthThreshold(%d) has no check to count: give WithHealthCheck too", *o.threshold))
	}
	if o.every != nil && *o.every < minTTL {
		problems = append(problems, invalid("WithRelinquish(%v) is too short: give at least %v", *o.every, minTTL))
	}
	if o.cronSpec != nil {
		if o.every != nil {
			problems = append(problems, invalid("WithRelinquish(%v) and WithRelinquishSchedule(%q) exclude each other: leave one out", *o.every, *o.cronSpec))
		}
		if s, err := cron.ParseStandard(*o.cronSpec); err != nil {
			problems = append(problems, invalid("WithRelinquishSchedule(%q): %w: give five fields such as %q, or %q", *o.cronSpec, err, "0 4 * * *", "@every 6h"))
		} else if s.Next(time.Now()).IsZero() {
			problems = append(problems, invalid("WithRelinquishSchedule(%q) never comes: give a date that exists", *o.cronSpec))
		}
	}
	return errors.Join(problems...)
}

func validateName(name string) error {
	switch {
	case name == "":
		return invalid("the name is empty: give each candidate a name of its own, such as its host's")
	case len(name) > maxNameBytes:
		return invalid("the name %.20q… has %d bytes: use at most %d", name, len(name), maxNameBytes)
	case !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl):
		return invalid("the name %q has control characters or is not UTF-8: use printable text", name)
	case strings.TrimSpace(name) != name:
		return invalid("the name %q begins or ends with a space: trim it", name)
	}
	return nil
}

var legalKey = regexp.MustCompile(`^[-/_=.a-zA-Z0-9]+$`)

func validateKey(key string) error {
	switch {
	case key == "":
		return invalid("the key is empty: name the election, such as %q", "scheduler")
	case len(key) > maxKeyBytes:
		return invalid("the key %.20q… has %d bytes: use at most %d", key, len(key), maxKeyBytes)
	case !legalKey.MatchString(key) || strings.HasPrefix(key, ".") || strings.HasSuffix(key, ".") || strings.Contains(key, ".."):
		return invalid("%q is not a key: use letters, digits, and - _ = / with single dots between them", key)
	}
	return nil
}

func (o *options) validateMetadata() error {
	size := 0
	for k, v := range o.metadata {
		size += len(k) + len(v)
		if k == "" || !utf8.ValidString(k) || !utf8.ValidString(v) {
			return invalid("metadata %q=%q: use keys that are not empty, and UTF-8", k, v)
		}
	}
	if size > maxMetadataBytes {
		return invalid("the metadata has %d bytes: use at most %d", size, maxMetadataBytes)
	}
	return nil
}

// legalNamespace is what the names of metrics may begin with; colons are for the rules of whoever scrapes them.
var legalNamespace = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)

func (o *options) validateNamespace() error {
	if o.namespace == nil || legalNamespace.MatchString(*o.namespace) {
		return nil
	}
	return invalid("WithNamespace(%q) begins no name of a metric: use letters, digits and _, and no digit first, such as %q, or leave it out", *o.namespace, "choria")
}

// timing holds the durations of one election on one bucket.
type timing struct {
	ttl            time.Duration
	interval       time.Duration
	splay          time.Duration
	standDown      time.Duration
	margin         time.Duration
	releaseTimeout time.Duration

	standDownByDefault bool // whether no option says how long the stand-down is
}

// timing works out the durations for a bucket with the given TTL and refuses those that do not fit it.
func (o *options) timing(ttl time.Duration) (timing, error) {
	t := timing{ttl: ttl}
	t.interval = or(o.interval, ttl*3/4)
	t.splay = or(o.splay, min(5*time.Second, t.interval))
	t.standDown, t.standDownByDefault = or(o.standDown, t.interval), o.standDown == nil
	t.margin = or(o.margin, max(50*time.Millisecond, ttl/50))
	t.releaseTimeout = or(o.releaseTimeout, ttl)

	if t.margin >= ttl/2 {
		return t, invalid("a lease margin of %v is half of the bucket's TTL of %v or more: use less, or leave WithLeaseMargin out for %v", t.margin, ttl, max(50*time.Millisecond, ttl/50))
	}
	if room := ttl - t.margin - t.interval; room < minRoom {
		return t, invalid("with the bucket's TTL of %v and a lease margin of %v, a campaign interval of %v leaves no room to try again before the deadline: use at most %v, or leave WithCampaignInterval out for %v", ttl, t.margin, t.interval, ttl-t.margin-minRoom, ttl*3/4)
	}
	return t, nil
}

// leaseTime returns how long leadership may be believed after the last acknowledged write was sent.
func (t timing) leaseTime() time.Duration { return t.ttl - t.margin }

// slack returns by how much a renewal may be late without anybody minding: a quarter of the room that is left after it.
func (t timing) slack() time.Duration { return (t.leaseTime() - t.interval) / 4 }

// try returns how long a candidate waits for the answer to one request: short enough that a win which is acknowledged
// late still leaves most of its lease.
func (t timing) try() time.Duration { return min(t.ttl/4, maxTry) }

func or[T any](given *T, byDefault T) T {
	if given == nil {
		return byDefault
	}
	return *given
}
