package kv

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/timing"
	"github.com/natscampaign/election/internal/validate"
)

func TestConfigNamesEveryProblem(t *testing.T) {
	g := NewWithT(t)
	for _, replicas := range []int{0, 1, 3, 5} {
		g.Expect(Config{"a-Z_9", 5 * time.Second, replicas, jetstream.FileStorage, 0, false}.Validate()).To(Succeed())
	}
	g.Expect(Config{"E", timing.MinTTL, 1, jetstream.MemoryStorage, 0, false}.Validate()).To(Succeed())
	for text, wrong := range map[string]Config{
		`"a.b"`:                         {"a.b", timing.MinTTL, 1, jetstream.FileStorage, 0, false},
		`""`:                            {"", timing.MinTTL, 1, jetstream.FileStorage, 0, false},
		"TTL of 999ms":                  {"E", 999 * time.Millisecond, 1, jetstream.FileStorage, 0, false},
		"TTL of 2h0m0s":                 {"E", 2 * time.Hour, 1, jetstream.FileStorage, 0, false},
		"2 replicas":                    {"E", timing.MinTTL, 2, jetstream.FileStorage, 0, false},
		"-1 replicas":                   {"E", timing.MinTTL, -1, jetstream.FileStorage, 0, false},
		"memory storage with 3 replica": {"E", timing.MinTTL, 3, jetstream.MemoryStorage, 0, false},
	} {
		g.Expect(wrong.Validate()).To(And(MatchError(validate.ErrInvalidOption), MatchError(ContainSubstring(text))))
	}
	g.Expect(Config{"a b", 0, 7, jetstream.MemoryStorage, 0, false}.Validate()).To(MatchError(And(
		ContainSubstring(`"a b"`), ContainSubstring("TTL of 0s"), ContainSubstring("7 replicas: use"), ContainSubstring("memory storage"))))
}

func TestEachSettingThatDiffersIsNamedAsItIsAndAsWanted(t *testing.T) {
	g := NewWithT(t)
	info := Info{Bucket: "E", Stream: &jetstream.StreamInfo{Config: jetstream.StreamConfig{
		Name: "KV_E", MaxAge: time.Minute, MaxMsgsPerSubject: 5, Replicas: 1, MaxBytes: -1, MaxMsgs: 9, MaxMsgSize: 100, AllowMsgTTL: true,
		SubjectDeleteMarkerTTL: time.Minute, NoAck: true, AllowRollup: true, Metadata: map[string]string{ServerVersion: "2.15.2"},
	}}}
	var found, minor []string
	for _, d := range (Config{Name: "E", TTL: time.Minute}).Differences(info) {
		found = append(found, d.Setting+": "+d.Has+" -> "+d.Want)
		if d.Minor {
			minor = append(minor, d.Setting)
		}
	}
	g.Expect(found).To(Equal([]string{
		"max keys: 9 -> no limit", "max bytes of a value: 100 -> no limit", "when full: drops the oldest key -> refuses writes", "history: 5 -> 1",
		"TTL of expiry markers: 1m0s -> 1s", "changes: not republished -> republished", "writes: not acknowledged -> acknowledged",
		"direct reads: not allowed -> allowed", "releases: expire -> remembered",
	}))
	g.Expect(minor).To(Equal([]string{"direct reads", "releases"}))
}
