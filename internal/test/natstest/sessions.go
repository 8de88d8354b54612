package natstest

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election/internal/kv"
)

// SettledBucket makes a bucket for sessions, and says in it that it is older than any lease: nobody waits for leaders of an earlier bucket.
func SettledBucket(tb testing.TB, js jetstream.JetStream, name string, ttl time.Duration) {
	tb.Helper()
	if err := (kv.SessionsConfig{Name: name, TTL: ttl, Replicas: 1}).Create(tb.Context(), js); err != nil {
		tb.Fatal(err)
	}
	if _, err := js.Publish(tb.Context(), kv.Subject(name, "settled"), nil, jetstream.WithExpectLastSequencePerSubject(0)); err != nil {
		tb.Fatal(err)
	}
}
