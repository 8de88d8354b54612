package election

import (
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nats.go/micro"
	. "github.com/onsi/gomega"
)

// FuzzRecord reads what anybody may have written under a key.
func FuzzRecord(f *testing.F) {
	for _, value := range []string{
		"", "bare name", "{", "null", "[]", `{"name":"a"}`, `{"name":"a","instance":"i","attempt":"i.1"}`,
		`{"name":"a","instance":"i","attempt":"i.1","released":"2026-01-01T00:00:00Z","stand_down_ms":9223372036854775807}`,
		`{"name":"a","instance":"i","attempt":"i.1","released":"2026-01-01T00:00:00Z","next":"b","head_start_ms":-1,"candidates":-5}`,
		`{"name":"` + strings.Repeat("é", 200) + `","instance":"i","attempt":"i.1","heirs":["a","","b"],"levels":[1,2,3],"metadata":{"":""}}`,
		strings.Repeat("\x80", 300),
		`{"name":"\ud800","instance":"i","attempt":"i.1","since":"9999-12-31T23:59:59+23:59","metadata":{"k":"v"}}`,
	} {
		f.Add([]byte(value))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		r := parseRecord(value)
		if r.Instance == "" && len(value) <= maxNameBytes && r.Name != string(value) {
			t.Errorf("a bare name was changed to %q", r.Name)
		}
		withinBounds(NewWithT(t), r)
		if left, ok := r.released(); left < 0 || ok && r.Instance == "" {
			t.Errorf("a release that leaves %v", left)
		}
		if d := r.headStart("b"); d < 0 || d > maxSpread {
			t.Errorf("a head start of %v", d)
		}
		if again := parseRecord(r.encode()); r.Instance != "" && (again.Name != r.Name || again.Instance != r.Instance || again.Attempt != r.Attempt) {
			t.Errorf("%+v became %+v", r, again)
		}
		l := r.leader("key", 1, time.Now(), time.Minute)
		if _, err := json.Marshal(l); err != nil {
			t.Error(err)
		}
	})
}

// named is a bucket that has no more than a name.
type named struct{ jetstream.KeyValue }

func (named) Bucket() string { return "B" }

// FuzzChange hears what anybody may publish where the server republishes changes, or as an attempt.
func FuzzChange(f *testing.F) {
	const subject = "$KV.B.k"
	record := []byte(`{"name":"a","instance":"i","attempt":"i.1"}`)
	f.Add(subject, "1", "2026-01-01T00:00:00Z", "", "", record)
	f.Add(subject, "2", "", "MaxAge", "", []byte{})
	f.Add(subject, "18446744073709551615", "x", "", "DEL", record)
	f.Add("$KV.C.k", "-1", "", "", "", record)
	f.Add(subject, "3", "", "", "", []byte(`{"name":"a","instance":"i","attempt":"i.1","candidates":-9223372036854775808,"released":"2026-01-01T00:00:00Z","next":"me"}`))
	f.Fuzz(func(t *testing.T, subject, sequence, stamp, reason, operation string, data []byte) {
		created := time.Unix(0, 0)
		h := &hub{bucket: named{}, remake: make(chan struct{}, 1), deaf: make(chan struct{}, 1)}
		h.created.Store(&created)
		a := &ear{election: &Election{instance: "me.1"}, hub: h, key: "k", name: "me", ttl: 10 * time.Second, news: make(chan struct{}, 1)}
		h.ears = map[string][]*ear{"k": {a}}
		a.count(true)
		m := nats.NewMsg("election.B.x." + subject)
		for name, value := range map[string]string{
			"Nats-Subject": subject, "Nats-Sequence": sequence, "Nats-Time-Stamp": stamp, "Nats-Marker-Reason": reason, "KV-Operation": operation,
		} {
			if value != "" {
				m.Header.Set(name, value)
			}
		}
		m.Data = data
		for range 2 {
			h.republished(m)
			a.attempted(parseRecord(data))
			if at := a.dueLook(); at.After(time.Now().Add(2 * a.ttl)) {
				t.Errorf("reads the key at %v", at)
			}
			due := time.Now().Add(time.Second)
			if at := a.nextCampaign(due, due.Add(time.Hour), true); !at.Equal(due) {
				t.Errorf("a notification moves the next campaign to %v", at)
			}
			if n := a.candidates("me.1", 0, true, time.Now()); n < 0 || n > maxCounted {
				t.Errorf("%d candidates", n)
			}
			bytes := 0
			for _, heir := range a.heirs("", []string{"b"}) {
				bytes += len(heir)
			}
			if bytes > maxHeirBytes {
				t.Errorf("heirs of %d bytes", bytes)
			}
		}
	})
}

// FuzzQuestion asks a process that has the leader what anybody may ask.
func FuzzQuestion(f *testing.F) {
	f.Add(verbCandidates, "_INBOX.x", []byte(`{}`))
	f.Add(verbResign, "", []byte(`{"bucket":"1970-01-01T00:00:00Z","instance":"i","wait_ms":9223372036854775807}`))
	f.Add(verbResign, "$KV.B.k", []byte(`{"bucket":"9999-12-31T23:59:59+23:59","wait_ms":-1}`))
	f.Add(verbTransfer, "election-control.B.resign.k", []byte(`{"to":"a b"}`))
	f.Add(verbResign, "", []byte(`{"instance":"j"}`))
	f.Add(verbResign, "", []byte(nil))
	f.Add(verbLook, "", []byte("?"))
	f.Add("PING", "", []byte("null"))
	f.Fuzz(func(t *testing.T, verb, inbox string, data []byte) {
		created, now := time.Unix(0, 0), time.Now()
		h := &hub{bucket: named{}}
		h.created.Store(&created)
		e := &Election{name: "a", key: "k", instance: "i", log: slog.New(slog.DiscardHandler)}
		tm := timing{ttl: time.Minute, interval: 45 * time.Second}
		e.facts.Store(&facts{timing: tm, created: created})
		held := newTenure(t.Context(), &e.announcer, Term{Number: 1}, tm, now, now, 0)
		defer held.expiry.Stop()
		close(held.over) // nobody waits for the work
		e.tenure.Store(held)
		h.ears = map[string][]*ear{"k": {{hub: h, election: e, key: "k"}}}
		d := &desk{hub: h, asked: map[string]int{}, failed: map[string]int{}, windUps: make(chan struct{}, 1), looks: make(chan *nats.Msg, 1)}
		m := &nats.Msg{Subject: controlSubject("B", verb, "k"), Reply: inbox, Data: data}
		d.answer(t.Context(), m)
		d.windUps <- struct{}{} // once what was begun is done
		d.introduce(verb, m)
		if strings.HasPrefix(m.Reply, "$") || strings.HasPrefix(m.Reply, "election") {
			t.Errorf("would answer at %q", m.Reply)
		}
		if d.failed[verb] > d.asked[verb] || d.asked[verb] > 0 != (verb == verbLook || slices.Contains(verbs, verb)) {
			t.Errorf("%d of %d questions failed", d.failed[verb], d.asked[verb])
		}
		if held.ctx.Err() == nil {
			return
		}
		var q question
		if len(data) > 0 && json.Unmarshal(data, &q) != nil || verb != verbResign || q.Instance != "" && q.Instance != "i" || !q.Bucket.IsZero() && !q.Bucket.Equal(created) {
			t.Errorf("gave up leadership for %q: %s", verb, data)
		}
	})
}

// FuzzReplySubject names any reply subject and inbox prefix to a process whose connection uses ops.inbox, and ops.js for JetStream.
func FuzzReplySubject(f *testing.F) {
	const nuid = "ABCDEFGHIJKLMNOPQRSTUV"
	f.Add("ops.inbox."+nuid, "")
	f.Add("_INBOX_ops."+nuid+".x1", "_INBOX_ops")
	f.Add("$KV.B."+nuid, "$KV.B")
	f.Add("ops.js.STREAM.DELETE."+nuid, "ops.js.STREAM.DELETE")
	f.Fuzz(func(t *testing.T, reply, named string) {
		if !answerable(reply, "ops.js", "ops.inbox", named) || strings.HasPrefix(reply, "_INBOX.") {
			return
		}
		if !strings.HasPrefix(reply, "ops.inbox.") && !strings.HasPrefix(reply, named+".") || strings.HasPrefix(reply, "ops.js.") ||
			strings.HasPrefix(reply, "election.") || strings.HasPrefix(reply, "election-control.") {
			t.Errorf("would answer at %q", reply)
		}
		tokens := strings.Split(reply, ".")
		if n := len(tokens); n < 2 || len(tokens[n-1]) != len(nuid) && len(tokens[n-2]) != len(nuid) {
			t.Errorf("would answer at %q", reply)
		}
		for _, token := range tokens {
			if strings.HasPrefix(token, "$") || strings.HasPrefix(token, "KV_") || token == "API" {
				t.Errorf("would answer at %q", reply)
			}
		}
	})
}

// FuzzAnswer reads what anybody may answer to a question.
func FuzzAnswer(f *testing.F) {
	f.Add("", "", []byte(`{"candidates":[{"key":"k","name":"a","instance":"i","state":"leader","ready":true,"version":"1.0.0","clock":"2026-01-01T00:00:00Z"}]}`))
	f.Add("", "", []byte(`{"begun":true}`))
	f.Add("", "", []byte(`{"candidates":[{"state":4294967295,"pid":-1,"clock_lag_ns":-9223372036854775808,"clock":"9999-12-31T23:59:59-23:59"},null]}`))
	f.Add("not the leader", "409", []byte(nil))
	f.Add("x", "99999999999999999999", []byte("{"))
	f.Fuzz(func(t *testing.T, text, code string, data []byte) {
		m := &nats.Msg{Header: nats.Header{}, Data: data}
		if text != "" {
			m.Header.Set(micro.ErrorHeader, text)
			m.Header.Set(micro.ErrorCodeHeader, code)
		}
		var a answer
		err := a.read(m)
		if text != "" {
			if err == nil || err.Error() != text || a.Begun || a.Candidates != nil {
				t.Errorf("the error %q became %v, %+v", text, err, a)
			}
			if kind := errors.Unwrap(err); kind != nil && kindOf(codeOf(err)) != kind {
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
		for _, c := range a.Candidates {
			if rank(c.State) < 0 {
				t.Errorf("a candidate in state %v", c.State)
			}
		}
	})
}
