package witness

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/drill/faultproxy"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/test/natstest"
)

func TestMain(m *testing.M) { natstest.VerifyTestMain(m) }

const ttl = 30 * time.Second

// holder is a leader whose process a keeper watches, and that dies when its connection to the keeper ends.
type holder struct {
	Gomega
	bucket   *kv.Bucket
	link     *faultproxy.Link // of the keeper
	term     Term
	revision uint64
}

// hold stores the record of a term.
func hold(t *testing.T) *holder { return holdOn(t, natstest.Start(t)) }

// holdOn stores it on the given server.
func holdOn(t *testing.T, s *natstest.Server) *holder {
	link := s.Link(t)
	h := holdWith(t, natstest.Connect(t, s.Link(t)))
	h.link = link
	return h
}

// holdWith stores it by the given connection.
func holdWith(t *testing.T, nc *nats.Conn) *holder {
	g := NewWithT(t)
	js, err := jetstream.New(nc)
	g.Expect(err).NotTo(HaveOccurred())
	b, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: natstest.BucketName, TTL: ttl, Storage: jetstream.MemoryStorage})
	g.Expect(err).NotTo(HaveOccurred())
	h := &holder{Gomega: g, bucket: kv.With(b, js)}
	h.term = Term{Bucket: natstest.BucketName, Key: "key", Name: "a", Instance: "a.1", Secret: record.NewSecret(), SettleMs: 250, LeaseMs: ttl.Milliseconds()}
	h.write(t.Context(), func(*record.Record) {})
	return h
}

// write renews the term.
func (h *holder) write(ctx context.Context, change func(*record.Record)) {
	r := record.Record{
		Name: "a", Instance: h.term.Instance, Attempt: record.NewID(), Since: time.Now(), Term: 1, Commitment: h.term.Commitment(), LeaseMs: h.term.LeaseMs,
		Successor: "b.1", Metadata: map[string]string{"zone": "1"},
	}
	change(&r)
	var err error
	h.revision, err = h.bucket.Update(ctx, h.term.Key, r.Encode(), h.revision)
	h.Expect(err).NotTo(HaveOccurred())
}

// read returns what is stored.
func (h *holder) read(ctx context.Context) record.State {
	s, err := h.bucket.Read(ctx, h.term.Key)
	h.Expect(err).NotTo(HaveOccurred())
	return s
}

// die has the keeper learn of terms and then of the death, and returns when it is done.
func (h *holder) die(t *testing.T, terms ...Term) {
	k := NewKeeper(func(context.Context) (*nats.Conn, error) { return natstest.Connect(t, h.link), nil }, slog.New(slog.DiscardHandler), func(int) bool { return false })
	k.Keep(t.Context(), tells(h, terms...), &Process{})
}

// tells returns a connection on which terms are told, and that ends.
func tells(g Gomega, terms ...Term) Conn {
	in, out := io.Pipe()
	go func() {
		for _, term := range terms {
			g.Expect(json.NewEncoder(out).Encode(message{Began: &term})).To(Succeed())
		}
		_ = out.Close()
	}()
	return pipe{in}
}

type pipe struct{ *io.PipeReader }

func (p pipe) SetReadDeadline(at time.Time) error {
	if time.Until(at) < 0 {
		return p.CloseWithError(context.Canceled)
	}
	return nil
}

func TestReleaseIsThatOfTheTermAndPassesOnTheSettleTime(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		h := hold(t)
		before := h.revision
		h.die(t, h.term)
		s := h.read(t.Context())
		h.Expect(s.Revision).To(BeNumerically(">", before))
		h.Expect(s.Unconditional).To(BeFalse())
		left, released := s.Record.IsRelease()
		h.Expect(released).To(BeTrue())
		h.Expect(left).To(Equal(250 * time.Millisecond))
		h.Expect(s.Record.Reason).To(Equal("died"))
		h.Expect(s.Record.Commitment.OpenedBy(s.Record.Secret)).To(BeTrue())
		h.Expect(s.Record.Metadata).To(HaveKey("zone"))
		place, named := s.Record.Place("b", "b.1")
		h.Expect(named).To(BeTrue(), "the successor that the last renewal named comes first")
		h.Expect(place).To(BeZero())
	})
}

func TestWitnessWhoseConnectionIsClosedForGoodConnectsAgain(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		h := hold(t)
		var dialled []*nats.Conn
		k := NewKeeper(func(context.Context) (*nats.Conn, error) {
			dialled = append(dialled, natstest.Connect(t, h.link))
			return dialled[len(dialled)-1], nil
		}, slog.New(slog.DiscardHandler), nil)
		in, out := io.Pipe()
		done := make(chan struct{})
		go func() {
			defer close(done)
			k.Keep(t.Context(), pipe{in}, &Process{})
		}()
		h.Expect(json.NewEncoder(out).Encode(message{Began: &h.term})).To(Succeed())
		synctest.Wait()
		h.Expect(dialled).To(HaveLen(1))
		dialled[0].Close()
		synctest.Wait()
		h.Expect(dialled).To(HaveLen(2))
		h.Expect(out.Close()).To(Succeed())
		<-done
		h.Expect(h.read(t.Context()).Record.Released.IsZero()).To(BeFalse())
	})
}

func TestReleasePassesOnWhatWasLeftOfALongerStandDown(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		h := hold(t)
		h.write(t.Context(), func(r *record.Record) { r.Term, r.StandDownMs = 0, 7000 })
		h.die(t, h.term)
		s := h.read(t.Context())
		left, released := s.Record.IsRelease()
		h.Expect(released).To(BeTrue())
		h.Expect(left).To(Equal(7 * time.Second))
	})
}

func TestWitnessWritesNothingOverWhatItsTermDidNotWrite(t *testing.T) {
	for name, change := range map[string]func(h *holder) func(*record.Record){
		"another term of the same instance": func(*holder) func(*record.Record) {
			return func(r *record.Record) { r.Commitment = record.NewSecret().Commitment() }
		},
		"another session, which closed it": func(*holder) func(*record.Record) {
			return func(r *record.Record) { r.ClosedBy = "b.1" }
		},
		"another instance": func(*holder) func(*record.Record) { return func(r *record.Record) { r.Instance = "b.1" } },
		"a release by the term itself": func(h *holder) func(*record.Record) {
			return func(r *record.Record) { r.Released, r.Secret, r.Reason = time.Now(), h.term.Secret, "stopped" }
		},
	} {
		t.Run(name, func(t *testing.T) {
			natstest.Bubble(t, func(t *testing.T) {
				h := hold(t)
				h.write(t.Context(), change(h))
				before := h.read(t.Context())
				h.die(t, h.term)
				h.Expect(h.read(t.Context()).Revision).To(Equal(before.Revision))
			})
		})
	}
}

func TestTermThatIsOverOrNotWholeIsNotReleased(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		h := hold(t)
		for _, change := range []func(*Term){
			func(x *Term) { x.Secret = record.Secret{} }, func(x *Term) { x.Secret = record.NewSecret() }, func(x *Term) { x.Instance = "" },
			func(x *Term) { x.LeaseMs = 0 }, func(x *Term) { x.SettleMs = -1 },
		} {
			other := h.term
			change(&other)
			h.die(t, other)
		}
		h.Expect(h.read(t.Context()).Revision).To(Equal(h.revision))
	})
}

// forge answers in the place of a JetStream API: the bucket is what change makes of the real one, and has the record of the term stored where the
// holder's is. It returns what is asked of that API, and what is written to its keys.
func forge(t *testing.T, h *holder, api string, term *Term, change func(*jetstream.StreamInfo)) (asked, written *atomic.Int64) {
	nc := natstest.Connect(t, h.link)
	stream, err := h.bucket.JetStream().Stream(t.Context(), h.bucket.Stream())
	h.Expect(err).NotTo(HaveOccurred())
	info := *stream.CachedInfo()
	change(&info)
	description, err := json.Marshal(&info)
	h.Expect(err).NotTo(HaveOccurred())
	stored := record.Record{Name: term.Name, Instance: term.Instance, Attempt: record.NewID(), Since: time.Now(), Term: 1, Commitment: term.Commitment(), LeaseMs: term.LeaseMs}
	asked, written = &atomic.Int64{}, &atomic.Int64{}
	subscribe := func(subject string, count *atomic.Int64, answer func(m *nats.Msg)) {
		_, err := nc.Subscribe(subject, func(m *nats.Msg) {
			count.Add(1)
			answer(m)
		})
		h.Expect(err).NotTo(HaveOccurred())
	}
	subscribe(api+".STREAM.INFO.>", asked, func(m *nats.Msg) { _ = m.Respond(description) })
	subscribe(api+".DIRECT.GET.>", asked, func(m *nats.Msg) {
		_ = m.RespondMsg(&nats.Msg{Data: stored.Encode(), Header: nats.Header{
			jetstream.StreamHeader: {h.bucket.Stream()}, jetstream.SubjectHeader: {h.bucket.Subject("key")},
			jetstream.SequenceHeader: {strconv.FormatUint(h.revision, 10)}, jetstream.TimeStampHeaer: {time.Now().Format(time.RFC3339Nano)},
		}})
	})
	for _, subject := range []string{api + ".$KV.>", "elsewhere.$KV.>"} {
		subscribe(subject, written, func(*nats.Msg) {})
	}
	h.Expect(nc.Flush()).To(Succeed())
	return asked, written
}

// A program may name any prefix of the JetStream API, and anybody may answer there.
func TestWitnessWritesNothingThatAForgedAPITellsItTo(t *testing.T) {
	for name, c := range map[string]struct {
		prefixes []string // that the witness was given
		change   func(*jetstream.StreamInfo)
		asked    bool
	}{
		"prefix that the witness was not given": {nil, func(*jetstream.StreamInfo) {}, false},
		"mirror": {[]string{"evil"}, func(i *jetstream.StreamInfo) {
			i.Config.Mirror = &jetstream.StreamSource{Name: i.Config.Name, External: &jetstream.ExternalStream{APIPrefix: "elsewhere"}}
		}, true},
		"another stream": {[]string{"evil."}, func(i *jetstream.StreamInfo) { i.Config.Name = "KV_other" }, true},
	} {
		t.Run(name, func(t *testing.T) {
			natstest.Bubble(t, func(t *testing.T) {
				h := hold(t)
				forged := Term{API: "evil.", Bucket: natstest.BucketName, Key: "key", Name: "evil", Instance: "evil.1", Secret: record.NewSecret(), LeaseMs: 1000}
				asked, written := forge(t, h, "evil", &forged, c.change)
				k := &NewHost(func(context.Context) (*nats.Conn, error) { return natstest.Connect(t, h.link), nil }, c.prefixes, slog.New(slog.DiscardHandler)).keeper
				var refused atomic.Int64
				k.keep(t.Context(), tells(h, forged), &Process{}, nil, func(error) { refused.Add(1) })
				synctest.Wait()
				h.Expect(asked.Load() > 0).To(Equal(c.asked))
				h.Expect(written.Load()).To(BeZero())
				h.Expect(refused.Load()).To(Equal(int64(1)), "the program is told")
				h.Expect(h.read(t.Context()).Revision).To(Equal(h.revision), "the leader's record is left alone")
			})
		})
	}
}

func TestTermInADomainThatTheWitnessWasGivenIsReleased(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		h := holdOn(t, natstest.Start(t, func(o *server.Options) { o.JetStreamDomain = "hub" }))
		h.term.API = "$JS.hub.API."
		k := &NewHost(func(context.Context) (*nats.Conn, error) { return natstest.Connect(t, h.link), nil }, []string{"$JS.hub.API"}, slog.New(slog.DiscardHandler)).keeper
		k.Keep(t.Context(), tells(h, h.term), &Process{})
		h.Expect(h.read(t.Context()).Record.Released.IsZero()).To(BeFalse())
	})
}

func TestBucketWhoseStreamIsNotItsOwnIsForeign(t *testing.T) {
	g := NewWithT(t)
	own := func() jetstream.StreamInfo {
		return jetstream.StreamInfo{Config: jetstream.StreamConfig{
			Name: "KV_b", Subjects: []string{"$KV.b.>"}, RePublish: &jetstream.RePublish{Source: ">", Destination: "election.b.>"},
		}}
	}
	info := own()
	g.Expect(checkOwn("b", &info)).To(Succeed())
	g.Expect(isForeign(checkOwn("b", nil))).To(BeTrue())
	for want, change := range map[string]func(*jetstream.StreamConfig){
		`is the stream "KV_c"`:            func(c *jetstream.StreamConfig) { c.Name = "KV_c" },
		`stores the subjects []`:          func(c *jetstream.StreamConfig) { c.Subjects = nil },
		`stores the subjects ["$KV.c.>"]`: func(c *jetstream.StreamConfig) { c.Subjects = []string{"$KV.c.>"} },
		`stores the subjects ["$KV.b.>" `: func(c *jetstream.StreamConfig) { c.Subjects = append(c.Subjects, "$KV.c.>") },
		`mirrors the stream "KV_c"`:       func(c *jetstream.StreamConfig) { c.Mirror = &jetstream.StreamSource{Name: "KV_c"} },
		`copies the stream "KV_c"`:        func(c *jetstream.StreamConfig) { c.Sources = []*jetstream.StreamSource{{Name: "KV_c"}} },
		`under other subjects, "$KV.c.>"`: func(c *jetstream.StreamConfig) {
			c.SubjectTransform = &jetstream.SubjectTransformConfig{Source: "$KV.b.>", Destination: "$KV.c.>"}
		},
		`repeats what is written on "$KV.`: func(c *jetstream.StreamConfig) { c.RePublish.Destination = "$KV.c.>" },
		`repeats what is written on ">"`:   func(c *jetstream.StreamConfig) { c.RePublish.Destination = ">" },
	} {
		info := own()
		change(&info.Config)
		err := checkOwn("b", &info)
		g.Expect(isForeign(err)).To(BeTrue(), want)
		g.Expect(err).To(MatchError(ContainSubstring(want)))
	}
}

func TestTermOfAGroupIsLeftToItsLeaseUnlessAllThatItsProgramWroteWasRead(t *testing.T) {
	for _, whole := range []bool{true, false} {
		natstest.Bubble(t, func(t *testing.T) {
			h := hold(t)
			h.term.Group = 4711
			k := NewKeeper(func(context.Context) (*nats.Conn, error) { return natstest.Connect(t, h.link), nil }, slog.New(slog.DiscardHandler), func(int) bool { return false })
			conn := tells(h, h.term)
			if !whole {
				conn = cutOff{conn}
			}
			k.Keep(t.Context(), conn, &Process{})
			synctest.Wait() // until the keeper has connected, though it may not need the connection any more
			h.Expect(h.read(t.Context()).Record.Released.IsZero()).To(Equal(!whole))
		})
	}
}

// cutOff is a connection that is not read to its end.
type cutOff struct{ Conn }

func (c cutOff) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if errors.Is(err, io.EOF) {
		err = os.ErrDeadlineExceeded
	}
	return n, err
}

// A renewal that the process had sent may arrive at any time.
func TestRenewalThatArrivesBeforeTheReleaseIsReleasedAndOneAfterIsRefused(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		h := hold(t)
		first := h.revision
		var late sync.Once
		h.link.OnRequest(func(m faultproxy.Message) { // the release is under way: it was made over the record that was read
			if natstest.ToKey("key")(m) {
				late.Do(func() { h.write(t.Context(), func(*record.Record) {}) })
			}
		})
		h.die(t, h.term)
		s := h.read(t.Context())
		h.Expect(s.Record.Released.IsZero()).To(BeFalse())
		h.Expect(s.Revision).To(BeNumerically(">", h.revision))
		h.Expect(h.revision).To(BeNumerically(">", first), "the renewal came between the read and the release")
		_, err := h.bucket.Update(t.Context(), "key", []byte("{}"), h.revision)
		h.Expect(kv.Classify(err)).To(Equal(kv.Refused), "a renewal that arrives after the release")
	})
}
