package fence

import (
	"cmp"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/kv"
)

func TestServersThatStoreWritesOfOlderEpochsAreRefused(t *testing.T) {
	for version, fit := range map[string]bool{
		"": false, "2.11.0": false, "2.11.6": false, "2.11.7-RC.1": true, "2.11.7": true, "2.11.17": true, "2.12.0": true, "2.15.2": true, "3.0.0": true,
		"development": false,
	} {
		g := NewWithT(t)
		err := checkStream(&jetstream.StreamInfo{Config: jetstream.StreamConfig{Subjects: []string{"x"}, Metadata: map[string]string{kv.ServerVersion: version}}}, "x", election.Term{})
		if fit {
			g.Expect(err).NotTo(HaveOccurred(), version)
		} else {
			g.Expect(err).To(MatchError(And(ContainSubstring(cmp.Or(version, "2.10 or older")), ContainSubstring("2.11.7 or newer"))), version)
		}
	}
}

func TestSubjectsMatchPatternsAsTheServerHasIt(t *testing.T) {
	g := NewWithT(t)
	for _, c := range []struct {
		pattern, subject string
		matches          bool
	}{
		{"a", "a", true}, {"a", "b", false}, {"a.b", "a", false}, {"a", "a.b", false}, {">", "a", true}, {">", "a.b.c", true},
		{"a.>", "a", false}, {"a.>", "a.b", true}, {"a.>", "a.b.c", true}, {"a.>", "b.c", false}, {"*", "a", true}, {"*", "a.b", false},
		{"a.*", "a", false}, {"a.*", "a.b", true}, {"a.*.c", "a.b.c", true}, {"a.*.c", "a.b.d", false}, {"*.*", "a.b", true}, {"*.>", "a", false},
	} {
		g.Expect(matches(c.pattern, c.subject)).To(Equal(c.matches), "%+v", c)
	}
}
