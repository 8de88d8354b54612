package witness

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/faultproxy"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/natstest"
	"github.com/natscampaign/election/internal/record"
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
func hold(t *testing.T) *holder {
	g := NewWithT(t)
	s := natstest.Start(t)
	link := s.Link(t)
	own := natstest.Connect(t, s.Link(t))
	js, err := jetstream.New(own)
	g.Expect(err).NotTo(HaveOccurred())
	b, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: natstest.BucketName, TTL: ttl, Storage: jetstream.MemoryStorage})
	g.Expect(err).NotTo(HaveOccurred())
	h := &holder{Gomega: g, bucket: kv.With(b, js), link: link}
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
	k.Keep(t.Context(), tells(h, terms...), nil)
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
			k.Keep(t.Context(), pipe{in}, nil)
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
			k.Keep(t.Context(), conn, nil)
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
