package kv

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election/internal/timeutil"
	"github.com/natscampaign/election/internal/timing"
	"github.com/natscampaign/election/internal/validate"
)

// ErrUnsuitable is the error of package election for a bucket that can be reached and is not fit for elections.
var ErrUnsuitable = errors.New("bucket unsuitable for elections")

// Info is what the server says about a bucket.
type Info struct {
	Bucket     string
	TTL        time.Duration
	LongestTTL time.Duration // the longest TTL that the bucket has had, as far as it says
	History    int64
	MarkerTTL  time.Duration         // how long the marker of an expiry is stored; 0 if expiries are not announced
	Created    time.Time             // the identity of the bucket: when it was created, see [CreatedOf]; zero if the bucket does not say
	Pinned     bool                  // Created comes from the metadata, which no server changes by itself
	Republish  string                // the subject on which the server repeats every change, whole: with the key in the place of a final ">"; empty if it does not
	Paused     map[string]Pause      // the elections that an operator has paused, by key
	Stream     *jetstream.StreamInfo // nil if the bucket does not say
	Read       time.Time             // when the request was sent
	Took       time.Duration         // how long the server took to answer
	Choria     bool                  // the bucket was made for candidates of Choria, so that it announces no expiries
	Remembers  bool                  // the releases of elections never expire, see [RemembersMetadata]
	SessionTTL time.Duration         // of the sessions in a bucket that is made for them; 0 in one for elections
	PlainNames bool                  // bare names are known to be stored in the bucket, as candidates of Choria do
}

// LeaseTTL returns the TTL that leases have: that of the bucket or, in one for sessions, that of the sessions.
func (i Info) LeaseTTL() time.Duration {
	if i.SessionTTL > 0 {
		return i.SessionTTL
	}
	return i.TTL
}

// Now returns the present time of the server's clock, or of this host's if the bucket does not describe its stream.
func (i Info) Now() time.Time {
	if i.Stream == nil || i.Stream.TimeStamp.IsZero() {
		return time.Now()
	}
	return i.Stream.TimeStamp.Add(time.Since(i.Read.Add(i.Took / 2)))
}

// Load asks the server about the bucket once.
func (b *Bucket) Load(ctx context.Context) (Info, error) {
	ctx, cancel := context.WithTimeout(ctx, timing.RequestTimeout)
	defer cancel()
	asked := time.Now()
	status, err := b.Status(ctx)
	if err != nil {
		return Info{}, err
	}
	info := InfoOf(status)
	info.Read, info.Took = asked, time.Since(asked)
	return info, nil
}

// WaitFor calls load, which reads the bucket, until it succeeds or ctx ends, and returns nil then. A server that cannot be reached is
// waited for, and logged; an error that no waiting mends is returned: the bucket, or an option in it, is wrong, or the connection is
// closed for good.
func (b *Bucket) WaitFor(ctx context.Context, log *slog.Logger, load func() error) error {
	for try := 0; ; try++ {
		err := load()
		switch {
		case IsGone(err):
			err = fmt.Errorf("%w: there is no bucket %q: %w: make it with CreateBucket, or connect to the account that has it", ErrUnsuitable, b.Bucket(), err)
		case Classify(err) == Unusable:
			err = fmt.Errorf("%w: %q cannot be used: %w", ErrUnsuitable, b.Bucket(), err)
		}
		switch {
		case err == nil && try > 0:
			log.Info("Bucket reached", "bucket", b.Bucket(), "tries", try+1)
			return nil
		case err == nil, ctx.Err() != nil:
			return nil
		case IsUnfit(err), errors.Is(err, nats.ErrConnectionClosed):
			return err
		case try == 0:
			log.Warn("Bucket cannot be reached, waiting for it", "bucket", b.Bucket(), "error", Describe(err))
		default:
			log.Debug("Bucket still cannot be reached", "bucket", b.Bucket(), "error", Describe(err))
		}
		timeutil.Sleep(ctx, retryDelay+timeutil.Random(retryDelay))
	}
}

// IsUnfit reports whether an error says that the bucket, or an option in this bucket, is wrong: no waiting mends it.
func IsUnfit(err error) bool {
	return errors.Is(err, ErrUnsuitable) || errors.Is(err, validate.ErrInvalidOption)
}

// EditAdvice says how to change the bucket into one that is fit for elections, with further flags of the command.
func (i Info) EditAdvice(flags ...string) string {
	if i.SessionTTL > 0 { // which CreateBucket does not change
		return fmt.Sprintf("run 'nats stream edit %s'", strings.Join(append([]string{StreamName(i.Bucket)}, flags...), " "))
	}
	if i.PlainNames && !i.Choria && i.MarkerTTL <= 0 && !slices.Contains(flags, "--choria-compatible") {
		flags = append(flags, "--choria-compatible")
	}
	return fmt.Sprintf("run 'election-cli %s', or call CreateBucket", strings.Join(append([]string{"bucket edit --bucket", i.Bucket}, flags...), " "))
}

// Idle says how to end all leadership in the bucket.
const Idle = "stop all candidates, or pause the elections and have their leaders resign"

// RemakeAdvice says how to make the bucket again where no change makes it fit.
func (i Info) RemakeAdvice() string {
	if i.SessionTTL > 0 {
		return fmt.Sprintf("close all sessions, then run 'election-cli bucket rm --bucket %s', and have session.Open make the bucket again", i.Bucket)
	}
	ttl, first := i.TTL, ""
	if !i.HasTTL() {
		ttl = timing.DefaultTTL
		if !i.Stream.Config.Sealed { // a bucket that may be something else is not removed
			first = i.EditAdvice() + "; then "
		}
	}
	flags := fmt.Sprintf("--ttl %v", ttl)
	if i.Stream.Config.Replicas > 3 { // three are the default
		flags += " --replicas 5"
	}
	if i.MarkerTTL <= 0 && (i.Choria || i.PlainNames) {
		flags += " --choria-compatible"
	}
	return first + fmt.Sprintf("stop all candidates, then run 'election-cli bucket rm --bucket %[1]s' and 'election-cli bucket add --bucket %[1]s %s'", i.Bucket, flags)
}

// InfoOf returns what the status of a bucket says.
func InfoOf(status jetstream.KeyValueStatus) Info {
	i := Info{Bucket: status.Bucket(), TTL: status.TTL(), History: status.History(), MarkerTTL: status.LimitMarkerTTL()}
	if s, ok := status.(interface{ StreamInfo() *jetstream.StreamInfo }); ok && s.StreamInfo() != nil {
		i.describe(s.StreamInfo())
	}
	return i
}

// InfoOfStream returns what the server says about the stream behind a bucket.
func InfoOfStream(bucket string, stream *jetstream.StreamInfo) Info {
	i := Info{Bucket: bucket, TTL: stream.Config.MaxAge, History: stream.Config.MaxMsgsPerSubject, MarkerTTL: stream.Config.SubjectDeleteMarkerTTL}
	i.describe(stream)
	return i
}

// describe takes over what the server says about the stream.
func (i *Info) describe(stream *jetstream.StreamInfo) {
	i.Stream = stream
	i.Created, i.Pinned = CreatedOf(i.Stream)
	i.LongestTTL, i.SessionTTL = longestTTL(&i.Stream.Config), sessionTTL(&i.Stream.Config)
	i.Choria = i.MarkerTTL <= 0 && i.Stream.Config.Metadata[ChoriaMetadata] != ""
	i.Remembers = i.Stream.Config.AllowMsgTTL && i.Stream.Config.Metadata[RemembersMetadata] != ""
	if r := i.Stream.Config.RePublish; republishes(i.Bucket, r) {
		i.Republish = r.Destination
		if prefix, all := strings.CutSuffix(r.Destination, ">"); all && r.Source != Subject(i.Bucket, ">") { // it repeats whole subjects
			i.Republish = prefix + Subject(i.Bucket, ">")
		}
	}
	for name, value := range i.Stream.Config.Metadata {
		if key, ok := strings.CutPrefix(name, PausedPrefix); ok {
			if i.Paused == nil {
				i.Paused = map[string]Pause{}
			}
			i.Paused[key] = parsePause(value)
		}
	}
}

// SuitableInterval returns the interval that suits most elections in this bucket, if its TTL is the given one.
func (i Info) SuitableInterval(ttl time.Duration) time.Duration {
	if i.MarkerTTL <= 0 { // candidates of Choria may campaign too
		return timing.DefaultInterval(ttl)
	}
	return timing.ShortInterval(ttl)
}

// republishes reports whether the setting has the server repeat every change of the bucket, whole.
func republishes(bucket string, r *jetstream.RePublish) bool {
	return r != nil && !r.HeadersOnly && (r.Source == "" || r.Source == ">" || r.Source == Subject(bucket, ">"))
}

// Problem is a property of a bucket that makes it unfit for elections.
type Problem struct {
	Code    string // stable, for programs
	Message string // what is wrong, in words that follow "the bucket"
	Fix     string // what to do about it
}

// Problems is the one list of what makes a bucket unfit for elections: candidates, CreateBucket, Check and group all go by it.
func (i Info) Problems() (problems []Problem) {
	add := func(code, message, fix string) { problems = append(problems, Problem{code, message, fix}) }
	if i.SessionTTL > 0 {
		add("sessions", "is made for sessions, whose records are no leaders'", "use another bucket for elections, or campaign by package session")
		return problems
	}
	ttl := "give the bucket a TTL: " + i.EditAdvice()
	if i.Stream != nil && i.Stream.Config.Sealed {
		ttl = i.RemakeAdvice() // sealing has removed the TTL
	} else if i.PlainNames && i.Stream != nil && (i.MarkerTTL > 0 || notedTTL(&i.Stream.Config) <= 0) {
		ttl = fmt.Sprintf("use another bucket for elections; or, if the bare names are those of candidates, stop these, evict each ('election-cli evict KEY --bucket %s'), and %s", i.Bucket, i.EditAdvice())
	}
	switch {
	case i.TTL <= 0:
		add("no-ttl", "has no TTL: the key of a leader that crashed would stay for ever", ttl)
	case i.TTL < timing.MinTTL || i.TTL > timing.MaxTTL:
		add("ttl-out-of-range", fmt.Sprintf("has a TTL of %v, which is not between %v and %v", i.TTL, timing.MinTTL, timing.MaxTTL), ttl)
	}
	if i.History != 1 {
		add("history", fmt.Sprintf("keeps a history of %d", i.History), i.EditAdvice())
	}
	if i.Stream == nil {
		return problems
	}
	cfg := i.Stream.Config
	if cfg.Sealed {
		add("stream-settings", "is sealed: nothing can be written", i.RemakeAdvice())
	}
	if cfg.NoAck {
		add("stream-settings", "acknowledges no writes: no candidate learns that it won", i.EditAdvice())
	}
	if cfg.Retention != jetstream.LimitsPolicy {
		add("stream-settings", fmt.Sprintf("has the retention policy %v: consumers remove keys", cfg.Retention), i.RemakeAdvice())
	}
	switch {
	case cfg.Mirror != nil:
		fix := fmt.Sprintf("campaign in another bucket, which 'election-cli bucket add --bucket %s_2' creates", i.Bucket)
		if origin, isBucket := strings.CutPrefix(cfg.Mirror.Name, StreamName("")); isBucket {
			fix = fmt.Sprintf("campaign in the bucket that it mirrors, by --bucket %s", origin)
		}
		add("copied-bucket", fmt.Sprintf("mirrors the stream %s: reads are late, and a win here is no win there", cfg.Mirror.Name), fix)
	case len(cfg.Sources) > 0:
		add("copied-bucket", fmt.Sprintf("copies what is written to the stream %s, which overwrites leases", cfg.Sources[0].Name), "remove its sources: "+i.EditAdvice())
	}
	if cfg.Storage == jetstream.MemoryStorage && cfg.Replicas > 1 {
		add("memory-replicated", fmt.Sprintf("is kept in memory, with %d replicas: once all their servers have restarted it is empty, term numbers begin at 1 again without a sign, and fencing tokens go backwards", cfg.Replicas), i.RemakeAdvice())
	}
	return problems
}

// Validate returns an error that wraps [ErrUnsuitable] and names every problem; nil if there is none.
func (i Info) Validate() error { return i.unsuitable(i.Problems()) }

// unsuitable returns an error that names problems.
func (i Info) unsuitable(all []Problem) error {
	var problems []error
	for _, p := range all {
		problems = append(problems, fmt.Errorf("%w: %q %s: %s", ErrUnsuitable, i.Bucket, p.Message, p.Fix))
	}
	return errors.Join(problems...)
}

var legalName = regexp.MustCompile(`^[-_a-zA-Z0-9]+$`)

// InvalidName returns the error of a name that no bucket can have.
func InvalidName(name string) error {
	return validate.Errorf("%q is no name for a bucket: use letters, digits, - and _", name)
}
