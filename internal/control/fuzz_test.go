package control

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nats.go/micro"

	"github.com/natscampaign/election/internal/kv"
)

// leader is a candidate that holds the key, and whether it was asked to resign.
type leader struct{ resigned chan struct{} }

func (leader) Describe() Candidate {
	return Candidate{Key: "k", Name: "a", Instance: "i", State: "leader"}
}
func (leader) BucketCreated() time.Time               { return time.Unix(0, 0) }
func (leader) HoldsKey() bool                         { return true }
func (l leader) Resign(context.Context) error         { close(l.resigned); return nil }
func (leader) Transfer(context.Context, string) error { return ErrNoCandidate }
func (leader) Refresh(context.Context) bool           { return true }
func (leader) ExpectRelease(time.Duration)            {}
func (leader) HandoverTimeout() time.Duration         { return time.Minute }

// offline is a JetStream context of a connection that was never made.
type offline struct{ jetstream.JetStream }

func (offline) Conn() *nats.Conn                    { return &nats.Conn{} }
func (offline) Options() jetstream.JetStreamOptions { return jetstream.JetStreamOptions{} }

// named is a bucket that has no more than a name.
type named struct{ jetstream.KeyValue }

func (named) Bucket() string { return "B" }

// FuzzRequest asks a process that has the leader what anybody may ask.
func FuzzRequest(f *testing.F) {
	f.Add(verbCandidates, "_INBOX.x", []byte(`{}`))
	f.Add(verbResign, "_INBOX.x", []byte(`{"bucket":"1970-01-01T00:00:00Z","instance":"i","wait_ms":9223372036854775807}`))
	f.Add(verbResign, "", []byte(`{"instance":"i"}`))
	f.Add(verbResign, "$KV.B.k", []byte(`{"bucket":"9999-12-31T23:59:59+23:59","wait_ms":-1}`))
	f.Add(verbTransfer, "election-control.B.resign.k", []byte(`{"to":"a b"}`))
	f.Add(verbResign, "", []byte(`{"instance":"j"}`))
	f.Add(verbResign, "", []byte(nil))
	f.Add(verbRefresh, "", []byte("?"))
	f.Add("PING", "", []byte("null"))
	f.Fuzz(func(t *testing.T, verb, inbox string, data []byte) {
		s := &service{
			bucket: kv.With(named{}, offline{}), log: slog.New(slog.DiscardHandler), handovers: make(chan struct{}, 1),
			stale: make(chan struct{}, 1), refreshes: map[string][]func(bool){}, counters: map[string]counters{},
		}
		l := leader{make(chan struct{})}
		s.members = map[string][]*Member{"k": {{s, "k", l}}}
		m := &nats.Msg{Subject: Subject("B", verb, "k"), Reply: inbox, Data: data}
		s.handle(t.Context(), m)
		s.pending.Wait()
		s.identify(&nats.Msg{Subject: "$SRV." + verb, Reply: inbox, Data: data})
		select {
		case <-l.resigned:
		default:
			return
		}
		var r request
		v, key, _ := parseSubject("B", m.Subject)
		if json.Unmarshal(data, &r) != nil || v != verbResign || key != "k" || r.Instance != "i" || !r.Bucket.IsZero() && !r.Bucket.Equal(l.BucketCreated()) {
			t.Errorf("resigned for %q: %s", verb, data)
		}
		if !answerable(inbox, "B", "k") || m.Size() > maxRequestBytes {
			t.Errorf("resigned for a request that cannot be answered, at %q", inbox)
		}
	})
}

// FuzzReplySubject names any reply subject in a request about any key.
func FuzzReplySubject(f *testing.F) {
	f.Add("_INBOX_ops.ABCDEFGHIJKLMNOPQRSTUV.x1", "k")
	f.Add("election-answers.B.x.a.b", "a.b")
	f.Add("election-answers.B.x.k", "")
	f.Add("$KV.B.k", "k")
	f.Fuzz(func(t *testing.T, reply, key string) {
		first, _, _ := strings.Cut(reply, ".")
		if answerable(reply, "B", key) && !strings.HasPrefix(first, "_INBOX") && first != "_R_" &&
			(key == "" || !strings.HasPrefix(reply, "election-answers.B.") || !strings.HasSuffix(reply, "."+key)) {
			t.Errorf("would answer at %q", reply)
		}
	})
}

// FuzzAnswer reads what anybody may answer to a request.
func FuzzAnswer(f *testing.F) {
	f.Add("", "", []byte(`{"candidates":[{"key":"k","name":"a","instance":"i","state":"leader","ready":true,"version":"1.0.0","clock":"2026-01-01T00:00:00Z"}]}`))
	f.Add("", "", []byte(`{"begun":true}`))
	f.Add("", "", []byte(`{"candidates":[{"state":"4294967295","pid":-1,"clock":"9999-12-31T23:59:59-23:59"},null]}`))
	f.Add("not the leader", "409", []byte(nil))
	f.Add("x", "99999999999999999999", []byte("{"))
	f.Fuzz(func(t *testing.T, text, code string, data []byte) {
		m := &nats.Msg{Header: nats.Header{}, Data: data}
		if text != "" {
			m.Header.Set(micro.ErrorHeader, text)
			m.Header.Set(micro.ErrorCodeHeader, code)
		}
		var a answer
		err := a.parse(m)
		if text != "" {
			if err == nil || err.Error() != text || a.Begun || a.Candidates != nil {
				t.Errorf("the error %q became %v, %+v", text, err, a)
			}
			if kind := errors.Unwrap(err); kind != nil && !errors.Is(codes[codeOf(err)], kind) {
				t.Errorf("%q became %v", code, kind)
			}
			return
		}
		if err != nil {
			return
		}
		if _, err := json.Marshal(a); err != nil {
			t.Error(err)
		}
	})
}
