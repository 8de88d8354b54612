package docs_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/test/natstest"
)

const (
	bucketName = "ELECTIONS"
	key        = "scheduler"
	ttl        = 10 * time.Second
	password   = "change it"
	root       = "root" // a user of the tests, who may do everything
)

// users are the users of the page, by the block of their permissions.
var users = map[string]string{
	"CANDIDATE": "web", "OBSERVER": "dashboard", "OPERATOR": "ops", "MEMBER": "shards", "HOLDER": "locks", "WRITER": "orders",
	"MONITOR": "nagios", "CREATOR": "setup",
}

// line is a line of a block that permits something.
type line struct {
	text    string // as it is in the page
	name    string // what it permits
	purpose string // its comment, or the comment above it
	option  bool   // it is commented out
}

var (
	fenced     = regexp.MustCompile("(?s)```\n(.*?)```")
	permitting = regexp.MustCompile(`^\s*(# )?("[^"]+")(?:\s+# (.+))?$`)
	comment    = regexp.MustCompile(`^\s*# ([^"$:]+)$`) // of the lines below it
)

// blocks returns the blocks of PERMISSIONS.md by their names; that of the users is called authorization,
// and that of the accounts accounts.
func blocks(t *testing.T) map[string]string {
	t.Helper()
	page, err := os.ReadFile("PERMISSIONS.md")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, b := range fenced.FindAllStringSubmatch(string(page), -1) {
		name, _, _ := strings.Cut(b[1], " ")
		found[strings.TrimPrefix(name, "ELECTION_")] = b[1]
	}
	if names, want := slices.Sorted(maps.Keys(found)), append(slices.Sorted(maps.Keys(users)), "accounts", "authorization"); !slices.Equal(names, want) {
		t.Fatalf("PERMISSIONS.md has the blocks %v, not %v", names, want)
	}
	return found
}

// linesOf returns the lines of a block that permit something.
func linesOf(t *testing.T, block string) (lines []line) {
	t.Helper()
	above := ""
	for text := range strings.Lines(block) {
		text = strings.TrimSuffix(text, "\n")
		if m := comment.FindStringSubmatch(text); m != nil {
			above = m[1]
		} else if strings.HasSuffix(text, "]") {
			above = "" // the end of a list
		} else if m := permitting.FindStringSubmatch(text); m != nil && cmp.Or(m[3], above) != "" {
			lines = append(lines, line{text: text, name: m[2], purpose: cmp.Or(m[3], above), option: m[1] != ""})
		} else if strings.ContainsAny(text, `"$`) || strings.Contains(text, ":") {
			t.Fatalf("the line %q does not say what it is for", text)
		}
	}
	return lines
}

// without returns a block without one of its lines. A list keeps a subject that nobody uses: an empty one permits everything.
func without(block string, l line) string {
	return strings.Replace(block, l.text+"\n", "\"nobody.uses.this\"\n", 1)
}

// with returns a block with the options for some purposes.
func with(block string, lines []line, purposes ...string) string {
	for _, l := range lines {
		if l.option && slices.Contains(purposes, l.purpose) {
			block = strings.Replace(block, l.text, strings.Replace(l.text, "# ", "", 1), 1)
		}
	}
	return block
}

// configOf returns the configuration of a server that all blocks make, and a user who may do everything.
func configOf(blocks map[string]string) string {
	var config strings.Builder
	for _, name := range slices.Sorted(maps.Keys(users)) { // before the users, who refer to them
		config.WriteString(blocks[name])
	}
	config.WriteString(strings.Replace(blocks["authorization"], "users = [", fmt.Sprintf("users = [\n{ user: %s, password: %q }", root, password), 1))
	return config.String()
}

// bench is a server with the users of the page, for one check. An expectation that does not hold ends the check.
type bench struct {
	*testing.T
	gomega.Gomega
	ctx     context.Context // of everything that a check asks for
	ttl     time.Duration   // of the bucket
	late    time.Duration   // how late a busy host may be; 0 on virtual time
	options []election.Option
	connect func(user string, opts ...nats.Option) *nats.Conn
	open    opener
}

// unmet is an expectation that does not hold.
type unmet string

// inboxOf returns the option by which a user of the page has an inbox prefix of its own.
func inboxOf(user string) nats.Option {
	if user == root {
		return nats.CustomInboxPrefix("_INBOX")
	}
	return nats.CustomInboxPrefix("_INBOX_" + user)
}

// run runs a check on virtual time, and returns why it failed. Each user connects with the options of dial.
func run(t *testing.T, config string, check func(b *bench), dial ...func(user string) nats.Option) (failure string) {
	t.Helper()
	return runIn(t, "", config, check, dial...)
}

// opener opens JetStream on a connection.
type opener func(*nats.Conn, ...jetstream.JetStreamOpt) (jetstream.JetStream, error)

// runIn is run with JetStream in a domain.
func runIn(t *testing.T, domain, config string, check func(b *bench), dial ...func(user string) nats.Option) (failure string) {
	t.Helper()
	open := jetstream.New
	if domain != "" {
		open = func(nc *nats.Conn, opts ...jetstream.JetStreamOpt) (jetstream.JetStream, error) {
			return jetstream.NewWithDomain(nc, domain, opts...)
		}
	}
	return runWith(t, domain, config, open, check, dial...)
}

// runWith is runIn where clients reach JetStream as open says.
func runWith(t *testing.T, domain, config string, open opener, check func(b *bench), dial ...func(user string) nats.Option) (failure string) {
	t.Helper()
	natstest.Bubble(t, func(t *testing.T) {
		s := natstest.Start(t, func(o *server.Options) {
			if err := o.ProcessConfigString(config); err != nil {
				t.Fatal(err)
			}
			o.JetStreamDomain = domain
		})
		b := &bench{T: t, ttl: ttl, open: open}
		b.connect = func(user string, opts ...nats.Option) *nats.Conn {
			all := []nats.Option{nats.UserInfo(user, password), inboxOf(user)}
			for _, option := range dial {
				all = append(all, option(user))
			}
			return s.Connect(t, append(all, opts...)...)
		}
		failure = b.try(check)
	})
	return failure
}

// try makes the bucket, runs a check, and returns why it failed.
func (b *bench) try(check func(b *bench)) (failure string) {
	var cancel context.CancelFunc
	b.ctx, cancel = context.WithTimeout(b.Context(), patience)
	defer cancel()
	b.Gomega = gomega.NewGomega(func(message string, _ ...int) { panic(unmet(message)) })
	defer func() {
		switch p := recover().(type) {
		case nil:
		case unmet:
			failure = string(p)
		default:
			panic(p)
		}
	}()
	_, err := election.CreateBucket(b.ctx, b.js(root), election.BucketConfig{Name: bucketName, TTL: b.ttl, Storage: jetstream.MemoryStorage})
	b.Expect(err).NotTo(gomega.HaveOccurred())
	check(b)
	return ""
}

// js returns JetStream on a connection of its own.
func (b *bench) js(user string, opts ...nats.Option) jetstream.JetStream {
	b.Helper()
	js, err := b.open(b.connect(user, opts...))
	b.Expect(err).NotTo(gomega.HaveOccurred())
	return js
}

// bucket opens the bucket on a connection of its own.
func (b *bench) bucket(user string, opts ...nats.Option) *election.Bucket {
	b.Helper()
	bucket, err := election.OpenBucket(b.ctx, b.js(user, opts...), bucketName)
	b.Expect(err).NotTo(gomega.HaveOccurred())
	return bucket
}

// state returns the state of the stream behind the bucket.
func (b *bench) state() jetstream.StreamState {
	b.Helper()
	s, err := b.js(root).Stream(b.ctx, "KV_"+bucketName)
	b.Expect(err).NotTo(gomega.HaveOccurred())
	return s.CachedInfo().State
}

// candidate starts a candidate of a key, on a connection of its own, until the check ends.
func (b *bench) candidate(user, name, key string, opts ...election.Option) *election.Election {
	b.Helper()
	e, err := election.NewElection(name, key, b.bucket(user), append(append([]election.Option{election.WithSplay(0)}, b.options...), opts...)...)
	b.Expect(err).NotTo(gomega.HaveOccurred())
	go func() { _ = e.Start(context.Background()) }()
	b.Cleanup(func() { _ = e.Shutdown(context.Background()) })
	return e
}

// leader starts a candidate and waits until it leads.
func (b *bench) leader(user, name, key string, opts ...election.Option) *election.Election {
	b.Helper()
	e := b.candidate(user, name, key, opts...)
	b.soon(4*b.ttl, e.IsLeader)
	return e
}

// soon expects a condition within a time, or later on a busy host.
func (b *bench) soon(within time.Duration, condition func() bool) {
	b.Helper()
	within += b.late
	for end := time.Now().Add(within); !condition(); time.Sleep(pollInterval) {
		b.Expect(time.Now()).To(gomega.BeTemporally("<", end), "not within %v", within)
	}
}

const (
	patience     = 10 * time.Minute // of a check
	pollInterval = 2 * time.Millisecond
	atOnce       = time.Second // for a handover: without notifications or a read it takes a stand-down
)
