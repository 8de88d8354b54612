// Package clitest contains what tests of election-cli, of its packages and of its documents share: an embedded server with a bucket, records
// of candidates, checks of output, such as that it shows hostile text as text, and the code, commands and links of a document.
package clitest

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/cli/embedded"
	"github.com/natscampaign/election/internal/test/natstest"
)

const (
	// Timeout bounds each wait of an end-to-end test. It is far longer than any wait on an idle machine.
	Timeout = 25 * time.Second
	// LongTTL is a TTL that is longer than any test, so that no key expires.
	LongTTL = time.Minute
)

// ElectedAt is the time at which the leader of each LeaderRecord was elected.
var ElectedAt = time.Now().Add(-time.Hour)

// Record contains the fields of a record.
type Record map[string]any

// LeaderRecord returns the record of a leader in term 7, with changes.
func LeaderRecord(name string, changes Record) Record {
	r := Record{
		"name": name, "instance": "i-" + name, "attempt": "i-" + name + ".1", "since": ElectedAt, "term": 7,
		"host": "host-of-" + name, "pid": 4711, "metadata": map[string]string{"zone": "b", "rack": "a"},
	}
	maps.Copy(r, changes)
	return r
}

// Fixture is an embedded server with the default bucket, and a client of the server.
type Fixture struct {
	gomega.Gomega
	T      *testing.T
	Server *embedded.Server
	Client *cli.Client
	Bucket *election.Bucket
}

// New starts a server whose bucket has the given TTL. The server ends with the test.
func New(t *testing.T, ttl time.Duration) *Fixture {
	t.Helper()
	server, client := ServerWithoutBucket(t)
	f := On(t, client, election.BucketConfig{TTL: ttl})
	f.Server = server
	return f
}

// On makes the default bucket on a server that the test has started, to which the client is connected.
func On(t *testing.T, client *cli.Client, cfg election.BucketConfig) *Fixture {
	t.Helper()
	g := gomega.NewWithT(t)
	cfg.Name = cli.DefaultBucket
	bucket, err := election.CreateBucket(t.Context(), client.JetStream, cfg)
	g.Expect(err).NotTo(gomega.HaveOccurred())
	return &Fixture{Gomega: g, T: t, Client: client, Bucket: bucket}
}

// RemoveBucket removes the default bucket. Before that it makes a stream: a server that has removed its last one may fail to make another.
func (f *Fixture) RemoveBucket() {
	f.T.Helper()
	js := f.Client.JetStream
	_, err := js.CreateOrUpdateStream(f.T.Context(), jetstream.StreamConfig{Name: "INVOICES", Subjects: []string{"invoices"}})
	f.Expect(err).NotTo(gomega.HaveOccurred())
	f.Expect(js.DeleteKeyValue(f.T.Context(), cli.DefaultBucket)).To(gomega.Succeed())
}

// Put writes a record, or any other text, and returns its revision.
func (f *Fixture) Put(key string, value any) uint64 {
	f.T.Helper()
	text, ok := value.(string)
	if !ok {
		b, err := json.Marshal(value)
		f.Expect(err).NotTo(gomega.HaveOccurred())
		text = string(b)
	}
	ack, err := f.Client.JetStream.Publish(f.T.Context(), "$KV.LEADER_ELECTION."+key, []byte(text))
	f.Expect(err).NotTo(gomega.HaveOccurred())
	return ack.Sequence
}

// HasRecord reports whether the key exists, even if its record is a release.
func (f *Fixture) HasRecord(key string) bool {
	_, err := f.Bucket.Get(f.T.Context(), key)
	return !errors.Is(err, jetstream.ErrKeyNotFound)
}

// StartLeader starts the candidate web-1 of the election jobs, which leads until the end of the test, and returns its term.
func (f *Fixture) StartLeader() election.Term {
	f.T.Helper()
	term, _ := Lead(f.T, f.Bucket, "web-1", "jobs").Term()
	return term
}

// Lead is Campaign, and returns when the candidate leads.
func Lead(t *testing.T, bucket jetstream.KeyValue, name, key string, opts ...election.Option) *election.Election {
	t.Helper()
	e := Campaign(t, bucket, name, key, opts...)
	gomega.NewWithT(t).Eventually(e.IsLeader).WithTimeout(Timeout).Should(gomega.BeTrue())
	return e
}

// Campaign starts a candidate that campaigns until the end of the test. Unless options say otherwise, it has no splay and does not stand down.
func Campaign(t *testing.T, bucket jetstream.KeyValue, name, key string, opts ...election.Option) *election.Election {
	t.Helper()
	e, err := election.NewElection(name, key, bucket, append([]election.Option{election.WithSplay(0), election.WithStandDown(0)}, opts...)...)
	gomega.NewWithT(t).Expect(err).NotTo(gomega.HaveOccurred())
	Start(t, e)
	return e
}

// Start starts a candidate, which stops at the end of the test.
func Start(t *testing.T, e *election.Election) {
	t.Helper()
	go func() { _ = e.Start(context.Background()) }()
	t.Cleanup(func() { Shutdown(t, e) })
}

// Shutdown stops a candidate, and waits until it has released its key.
func Shutdown(t *testing.T, e *election.Election) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Timeout)
	defer cancel()
	gomega.NewWithT(t).Expect(e.Shutdown(ctx)).To(gomega.Succeed())
}

// ServerWithoutBucket starts a server, and connects to it. Both end with the test.
func ServerWithoutBucket(t *testing.T) (*embedded.Server, *cli.Client) {
	t.Helper()
	g := gomega.NewWithT(t)
	server, err := embedded.Start(embedded.Config{Port: natstest.FreePort(t)}) // which no other test gets, whose server's clients may still call
	g.Expect(err).NotTo(gomega.HaveOccurred())
	t.Cleanup(server.Stop)
	return server, Connect(t, server.URL(), "")
}

// Password is that of all users of tests.
const Password = "p"

// Connect connects to a server until the end of the test, as a user if one is named.
func Connect(t *testing.T, url, user string) *cli.Client {
	t.Helper()
	flags := &cli.ConnectionFlags{Server: url, Timeout: Timeout}
	if user != "" {
		flags.User, flags.Password = user, Password
	}
	client, err := flags.Connect()
	gomega.NewWithT(t).Expect(err).NotTo(gomega.HaveOccurred())
	t.Cleanup(client.Conn.Close)
	return client
}

// BucketConfig returns the configuration of a bucket.
func BucketConfig(t *testing.T, client *cli.Client, name string) jetstream.KeyValueConfig {
	t.Helper()
	g := gomega.NewWithT(t)
	bucket, err := client.OpenBucket(t.Context(), name)
	g.Expect(err).NotTo(gomega.HaveOccurred())
	status, err := bucket.Status(t.Context())
	g.Expect(err).NotTo(gomega.HaveOccurred())
	return status.Config()
}
