// Package clitest has what tests of election-cli and its parts share: a server with a bucket, records that others wrote, and text that
// nobody should see raw.
package clitest

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"maps"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/embedded"
	"github.com/natscampaign/election/internal/terminal"
)

// Malice is text as somebody might write it who wants to deceive the reader of a terminal.
const Malice = "web\x1b[2J\x1b]0;owned\a\r\nroot leads\t\u009b31m\u202egnp\u2066\u200b\x00|'\"<b>"

// Huge is almost as long as servers take it.
var Huge = strings.Repeat("A\x1b[5m", 200_000)

// Harmless expects text to show nothing but what the command itself means to show.
func Harmless(g Gomega, text, what string) {
	g.Expect(utf8.ValidString(text)).To(BeTrue(), what)
	for _, r := range text {
		g.Expect(terminal.Printable(string(r)) == string(r) || r == '\n' || r == '\t').To(BeTrue(), "%s shows %q", what, r)
	}
	g.Expect(text).NotTo(ContainSubstring("\nroot"), what)
}

// Quiet is a TTL that no test outlives.
const Quiet = time.Minute

// Fields are those of a record.
type Fields map[string]any

// Born is when the leaders of all tests were elected.
var Born = time.Now().Add(-time.Hour)

// Leading is the record of a leader.
func Leading(name string, change Fields) Fields {
	f := Fields{
		"name": name, "instance": "i-" + name, "attempt": "i-" + name + ".1", "since": Born, "term": 7,
		"host": "host-of-" + name, "pid": 4711, "metadata": map[string]string{"zone": "b", "rack": "a"},
	}
	maps.Copy(f, change)
	return f
}

// ShutDown stops an election, and waits until it has released its key.
func ShutDown(t *testing.T, e *election.Election) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	NewWithT(t).Expect(e.Shutdown(ctx)).To(Succeed())
}

// Put writes a record, or any other text, and returns its revision.
func (a *Site) Put(key string, value any) uint64 {
	a.T.Helper()
	text, ok := value.(string)
	if !ok {
		b, err := json.Marshal(value)
		a.Expect(err).NotTo(HaveOccurred())
		text = string(b)
	}
	ack, err := a.S.JetStream.Publish(a.T.Context(), "$KV.LEADER_ELECTION."+key, []byte(text))
	a.Expect(err).NotTo(HaveOccurred())
	return ack.Sequence
}

// Stands says whether anything stands under the key.
func (a *Site) Stands(key string) bool {
	_, err := a.Bucket.Get(a.T.Context(), key)
	return !errors.Is(err, jetstream.ErrKeyNotFound)
}

// Site is a server with a bucket, in which a test puts what it likes.
type Site struct {
	Gomega
	T      *testing.T
	Server *embedded.Server
	S      *cli.Session
	Bucket *election.Bucket
}

// New runs the server, whose bucket has that TTL.
func New(t *testing.T, ttl time.Duration) *Site {
	t.Helper()
	g := NewWithT(t)
	e, s := ServerWithBucket(t, ttl)
	bucket, err := s.FindBucket(t.Context(), cli.DefaultBucket)
	g.Expect(err).NotTo(HaveOccurred())
	return &Site{Gomega: g, T: t, Server: e, S: s, Bucket: bucket}
}

// Patience is how long an end-to-end test waits for anything: far longer than it takes on an idle machine.
const Patience = 25 * time.Second

// EmptyServer runs a server without a bucket.
func EmptyServer(t *testing.T) (*embedded.Server, *cli.Session) {
	t.Helper()
	g := NewWithT(t)
	e, err := embedded.Start(embedded.Config{})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(e.Stop)
	s, err := (&cli.ConnFlags{Server: e.URL(), Timeout: Patience}).Connect()
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(s.Conn.Close)
	return e, s
}

// ServerWithBucket runs a server that has the default bucket, with that TTL.
func ServerWithBucket(t *testing.T, ttl time.Duration) (*embedded.Server, *cli.Session) {
	t.Helper()
	e, s := EmptyServer(t)
	_, err := election.CreateBucket(t.Context(), s.JetStream, election.BucketConfig{Name: cli.DefaultBucket, TTL: ttl})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return e, s
}

// ConfigOf returns how a bucket is configured.
func ConfigOf(t *testing.T, s *cli.Session, name string) jetstream.KeyValueConfig {
	t.Helper()
	g := NewWithT(t)
	bucket, err := s.FindBucket(t.Context(), name)
	g.Expect(err).NotTo(HaveOccurred())
	status, err := bucket.Status(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	return status.Config()
}

// Texts parses a drawing and returns all text in it.
func Texts(g Gomega, svg []byte) []string {
	var found []string
	d := xml.NewDecoder(bytes.NewReader(svg))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return found
		}
		g.Expect(err).NotTo(HaveOccurred())
		if text, ok := token.(xml.CharData); ok && strings.TrimSpace(string(text)) != "" {
			found = append(found, string(text))
		}
	}
}

func Parse(g Gomega, text string) map[string]*dto.MetricFamily {
	p := expfmt.NewTextParser(model.UTF8Validation)
	families, err := p.TextToMetricFamilies(strings.NewReader(text))
	g.Expect(err).NotTo(HaveOccurred(), text)
	return families
}

// ValueOf returns the value of a metric about the election; -1 if there is none.
func ValueOf(families map[string]*dto.MetricFamily, name, key string) float64 {
	for _, m := range families[name].GetMetric() {
		is := ""
		for _, l := range m.GetLabel() {
			if l.GetName() == "election" {
				is = l.GetValue()
			}
		}
		if is == key {
			return m.GetGauge().GetValue()
		}
	}
	return -1
}

// Lead has a candidate lead for as long as the test lasts, and returns its term.
func (a *Site) Lead() election.Term {
	a.T.Helper()
	e, err := election.NewElection("web-1", "jobs", a.Bucket, election.WithSplay(0), election.WithStandDown(0))
	a.Expect(err).NotTo(HaveOccurred())
	go func() { _ = e.Start(context.Background()) }()
	a.T.Cleanup(func() { ShutDown(a.T, e) })
	a.Eventually(e.IsLeader).WithTimeout(Patience).Should(BeTrue())
	term, _ := e.Term()
	return term
}
