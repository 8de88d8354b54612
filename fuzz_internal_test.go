package election

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// FuzzRecord reads what anybody may have written under a key.
func FuzzRecord(f *testing.F) {
	for _, value := range []string{
		"", "bare name", "{", "null", "[]", `{"name":"a"}`, `{"name":"a","instance":"i","attempt":"i.1"}`,
		`{"name":"a","instance":"i","attempt":"i.1","released":"2026-01-01T00:00:00Z","stand_down_ms":9223372036854775807}`,
		`{"name":"a","instance":"i","attempt":"i.1","released":"2026-01-01T00:00:00Z","next":"b","head_start_ms":-1,"candidates":-5}`,
		`{"name":"\ud800","instance":"i","attempt":"i.1","since":"9999-12-31T23:59:59+23:59","metadata":{"k":"v"}}`,
	} {
		f.Add([]byte(value))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		r := parseRecord(value)
		if r.Instance == "" && r.Name != string(value) {
			t.Errorf("a bare name was changed to %q", r.Name)
		}
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
		a := &ear{hub: h, key: "k", name: "me", ttl: 10 * time.Second, news: make(chan struct{}, 1)}
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
			due := time.Now().Add(time.Second)
			at, vacancy := a.next(due, due.Add(time.Hour), "me.1", true)
			if at.After(time.Now().Add(2 * a.ttl)) {
				t.Errorf("waits until %v", at)
			}
			if vacancy != nil && vacancy.win().left < 0 {
				t.Errorf("%+v", vacancy)
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
