package kv_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/test/natstest"
)

// stored is a bucket in which a test stores messages that no candidate writes.
type stored struct {
	*kv.Bucket
	g    *WithT
	nc   *nats.Conn
	dial func() (net.Conn, error)
}

// store publishes a message to a key, and returns its revision.
func (b stored) store(key string, header nats.Header, value string) uint64 {
	ack, err := b.JetStream().PublishMsg(context.Background(), &nats.Msg{Subject: b.Subject(key), Header: header, Data: []byte(value)})
	b.g.ExpectWithOffset(1, err).NotTo(HaveOccurred())
	return ack.Sequence
}

// storeAnswer has the server send its answer to a request to a key, and returns the revision of the answer.
func (b stored) storeAnswer(key, subject, request string) uint64 {
	before := b.last()
	b.g.ExpectWithOffset(1, b.nc.PublishRequest(subject, b.Subject(key), []byte(request))).To(Succeed())
	b.g.EventuallyWithOffset(1, b.last).WithTimeout(5 * time.Second).Should(BeNumerically(">", before))
	return b.last()
}

// storeRaw publishes a message to a key with a header that no client writes, and returns its revision.
func (b stored) storeRaw(key, header, value string) uint64 {
	before := b.last()
	conn, err := b.dial()
	b.g.ExpectWithOffset(1, err).NotTo(HaveOccurred())
	defer conn.Close()
	go func() { _, _ = io.Copy(io.Discard, conn) }()
	_, err = fmt.Fprintf(conn, "CONNECT {\"headers\":true,\"verbose\":false}\r\nHPUB %s %d %d\r\n%s%s\r\nPING\r\n", b.Subject(key), len(header), len(header)+len(value), header, value)
	b.g.ExpectWithOffset(1, err).NotTo(HaveOccurred())
	b.g.EventuallyWithOffset(1, b.last).WithTimeout(5*time.Second).Should(BeNumerically(">", before), header)
	return b.last()
}

// last returns the last sequence of the stream.
func (b stored) last() uint64 {
	s, err := b.JetStream().Stream(context.Background(), b.Stream())
	b.g.Expect(err).NotTo(HaveOccurred())
	return s.CachedInfo().State.LastSeq
}

// expectForeign expects that the key has the given revision, that what is stored is nobody's lease, and that it can be written over.
func (b stored) expectForeign(what, key string, revision uint64) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	s, err := b.Read(ctx, key)
	b.g.Expect(err).NotTo(HaveOccurred(), what)
	b.g.Expect(s.Revision).To(Equal(revision), what)
	b.g.Expect(s.Written).To(BeTemporally("~", time.Now(), time.Minute), what)
	b.g.Expect(s.Removal).To(Equal(record.Kept), what)
	b.g.Expect(s.Unconditional).To(BeTrue(), what)
	b.g.Expect(s.Replaced).To(BeZero(), what)
	over, err := b.Update(ctx, key, []byte("over"), s.Revision)
	b.g.Expect(err).NotTo(HaveOccurred(), what)
	s, err = b.Read(ctx, key)
	b.g.Expect(err).NotTo(HaveOccurred(), what)
	b.g.Expect([]uint64{s.Revision, s.Replaced}).To(Equal([]uint64{over, revision}), what)
}

// bothWays runs a test on a bucket that is read directly, and on one that only the leader of its stream answers for.
func bothWays(t *testing.T, f func(b stored)) {
	for name, direct := range map[string]bool{"direct": true, "by the leader of the stream": false} {
		t.Run(name, func(t *testing.T) {
			natstest.Bubble(t, func(t *testing.T) {
				g, ctx := NewWithT(t), context.Background()
				s := natstest.Start(t)
				nc := s.Connect(t)
				js, err := jetstream.New(nc)
				g.Expect(err).NotTo(HaveOccurred())
				bucket := s.Bucket(t, nc, time.Hour, natstest.WithMarkers)
				stream, err := js.Stream(ctx, kv.StreamName(bucket.Bucket()))
				g.Expect(err).NotTo(HaveOccurred())
				cfg := stream.CachedInfo().Config
				cfg.AllowDirect = direct
				_, err = js.UpdateStream(ctx, cfg)
				g.Expect(err).NotTo(HaveOccurred())
				f(stored{kv.With(bucket, js), g, nc, s.InProcessConn})
			})
		})
	}
}

func TestStoredAnswerOfAServerIsReadWithTheRevisionThatTheServerGivesIt(t *testing.T) {
	bothWays(t, func(b stored) {
		source := b.store("source", nats.Header{"Nats-TTL": {"never"}}, `{"name":"a"}`)
		b.g.Expect(source).To(BeEquivalentTo(1))
		for what, request := range map[string][2]string{
			"the answer to a direct read":   {"$JS.API.DIRECT.GET." + b.Stream() + "." + b.Subject("source"), ""},
			"the answer to a read":          {"$JS.API.STREAM.MSG.GET." + b.Stream(), `{"seq":1}`},
			"the answer to another request": {"$JS.API.STREAM.INFO." + b.Stream(), ""},
		} {
			if _, err := b.nc.Request(request[0], []byte(request[1]), time.Second); err != nil {
				continue // a bucket that is not read directly does not answer
			}
			b.expectForeign(what, "k", b.storeAnswer("k", request[0], request[1]))
		}
	})
}

func TestHeadersOfAWriterAreNotTakenForThoseOfTheServer(t *testing.T) {
	bothWays(t, func(b stored) {
		for what, header := range map[string]nats.Header{
			"a sequence":         {"Nats-Sequence": {"1000000"}},
			"no sequence":        {"Nats-Sequence": {"x"}},
			"an empty sequence":  {"Nats-Sequence": {""}},
			"several":            {"Nats-Sequence": {"7", "8", "9"}},
			"a time":             {"Nats-Time-Stamp": {"2100-01-01T00:00:00Z"}},
			"no time":            {"Nats-Time-Stamp": {"x"}},
			"a subject":          {"Nats-Subject": {"$KV.E.other"}},
			"a stream":           {"Nats-Stream": {""}},
			"all":                {"Nats-Stream": {"S"}, "Nats-Subject": {"s"}, "Nats-Sequence": {"5"}, "Nats-Time-Stamp": {"2100-01-01T00:00:00Z"}},
			"a marker's answer":  {"Nats-Sequence": {"5"}, "Nats-Marker-Reason": {"MaxAge"}},
			"a removal's answer": {"Nats-Sequence": {"5"}, "KV-Operation": {"DEL"}},
		} {
			b.expectForeign(what, "k", b.store("k", header, `{"name":"a"}`))
		}
	})
}

func TestHeadersThatHideThoseOfTheServerHideNoRevision(t *testing.T) {
	bothWays(t, func(b stored) {
		const like = "Nats-Stream: KV_E\r\nNats-Subject: s\r\nNats-Sequence: 1000000\r\nNats-Time-Stamp: 2100-01-01T00:00:00Z\r\n"
		for _, header := range []string{
			"NATS/1.0\r\nA: b\r\n\r\n\r\n",
			"NATS/1.0\r\n\r\nA: b\r\n\r\n",
			"NATS/1.0\r\n" + like + "\r\nA: b\r\n\r\n",
			"NATS/1.0\r\n" + like + "\r\n" + like + "\r\n",
			"NATS/1.0\r\nno header\r\n\r\n",
			"NATS/1.0\r\nA: b",
			"HTTP/1.1\r\nA: b\r\n\r\n",
			"\r\n",
			"x",
			"NATS/1.0 404 Message Not Found\r\n\r\n",
			"NATS/1.0 404 Message Not Found\n\n",
			"NATS/1.0 503\r\n\r\n",
			"NATS/1.0 503\n\n",
			"NATS/1.0 100 Idle Heartbeat\r\n\r\n",
			"NATS/1.0\r\nStatus: 404\r\nDescription: Message Not Found\r\n\r\n",
			"NATS/1.0\r\nStatus: 404\r\n\r\nA: b\r\n\r\n",
			"NATS/1.0\r\nStatus: 503\r\n\r\n",
			"NATS/1.0\r\nStatus: 503\r\n\r\nA: b\r\n\r\n",
			"NATS/1.0\r\nStatus: 100\r\n\r\nA: b\r\n\r\n",
			"NATS/1.0\r\nStatus: 100\r\n\r\n",
		} {
			for _, value := range []string{"", `{"name":"a"}`} {
				b.expectForeign(fmt.Sprintf("%q %q", header, value), "k", b.storeRaw("k", header, value))
			}
		}
	})
}

// A header that is written in fewer bytes than a client writes it makes room for what it hides.
func TestShortHeadersHideNoRevision(t *testing.T) {
	bothWays(t, func(b stored) {
		const like = "Nats-Stream:S\nNats-Subject:s\nNats-Sequence:1000000\nNats-Time-Stamp:2100-01-01T00:00:00Z\n"
		for n := range 120 {
			for _, odd := range []string{"", "a:\r\n"} {
				header := "NATS/1.0\r\n" + odd + strings.Repeat("a:\n", n) + like + "\n\r\n\r\n"
				b.expectForeign(fmt.Sprintf("%q", header), "k", b.storeRaw("k", header, ""))
			}
		}
	})
}

func TestReadShowsWhatAWriteReplaced(t *testing.T) {
	bothWays(t, func(b stored) {
		ctx := context.Background()
		replaced := func() (revision uint64, conditional bool) {
			s, err := b.Read(ctx, "k")
			b.g.Expect(err).NotTo(HaveOccurred())
			return s.Replaced, !s.Unconditional
		}
		first, err := b.Create(ctx, "k", []byte("v"))
		b.g.Expect(err).NotTo(HaveOccurred())
		revision, conditional := replaced()
		b.g.Expect(conditional).To(BeTrue())
		b.g.Expect(revision).To(BeZero(), "it was created")
		_, err = b.Update(ctx, "k", []byte("v"), first)
		b.g.Expect(err).NotTo(HaveOccurred())
		revision, conditional = replaced()
		b.g.Expect(conditional).To(BeTrue())
		b.g.Expect(revision).To(Equal(first))
		other := b.store("other", nil, "v")
		b.store("k", nats.Header{"Nats-Expected-Last-Subject-Sequence": {"3"}, "Nats-Expected-Last-Subject-Sequence-Subject": {b.Subject("other")}}, "v")
		b.g.Expect(other).To(BeEquivalentTo(3))
		revision, conditional = replaced()
		b.g.Expect(conditional).To(BeFalse(), "it demands the revision of another key")
		b.g.Expect(revision).To(BeZero())
	})
}
