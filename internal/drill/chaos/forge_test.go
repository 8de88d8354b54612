package chaos

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/drill/processes"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/test/clitest"
)

func TestForgedChangesLookLikeChangesThatTheServerRepublishes(t *testing.T) {
	t.Parallel()
	a := clitest.New(t, clitest.LongTTL)
	prefix := strings.TrimSuffix(clitest.BucketConfig(t, a.Client, cli.DefaultBucket).RePublish.Destination, ">")
	republished, err := a.Client.Conn.SubscribeSync(prefix + ">")
	a.Expect(err).NotTo(HaveOccurred())
	next := func() *nats.Msg {
		m, err := republished.NextMsg(clitest.Timeout)
		a.Expect(err).NotTo(HaveOccurred())
		return m
	}
	a.Put("jobs", clitest.LeaderRecord("x", nil))
	first := next()
	old, err := a.Bucket.Get(t.Context(), "jobs")
	a.Expect(err).NotTo(HaveOccurred())
	a.Put("jobs", clitest.LeaderRecord("x", clitest.Record{"term": 8}))
	second := next()
	newest, err := a.Bucket.Get(t.Context(), "jobs")
	a.Expect(err).NotTo(HaveOccurred())

	f := &forger{subject: prefix + "jobs", newest: newest, candidates: []string{"x", "y"}}
	for range forgeries { // there is nothing to replay yet
		if m := f.next(); m != nil {
			at, err := time.Parse(time.RFC3339Nano, m.Header.Get(jetstream.TimeStampHeaer))
			a.Expect(err).NotTo(HaveOccurred())
			a.Expect(at).To(BeTemporally("~", time.Now(), clitest.Timeout))
		}
	}
	f.older = append(f.older, old)
	seen := map[string]int{}
	for range 2 * len(forgeries) {
		m := f.next()
		a.Expect(m.Subject).To(Equal(second.Subject))
		for _, header := range slices.Collect(maps.Keys(second.Header)) {
			a.Expect(m.Header).To(HaveKey(header))
		}
		for _, header := range []string{jetstream.StreamHeader, jetstream.SubjectHeader} {
			a.Expect(m.Header.Get(header)).To(Equal(second.Header.Get(header)))
		}
		var record clitest.Record
		switch _ = json.Unmarshal(m.Data, &record); {
		case len(m.Data) == 0:
			seen["removal "+m.Header.Get(jetstream.MarkerReasonHeader)+m.Header.Get(kv.HeaderOperation)]++
			a.Expect(m.Header.Get(jetstream.SequenceHeader)).To(Equal("3"))
		case string(m.Data) == string(first.Data):
			seen["replay"]++
			a.Expect(m.Header).To(Equal(first.Header))
		case record["bucket"] != nil:
			seen["later bucket"]++
		case record["released"] != nil:
			seen["release"]++
			a.Expect(m.Header.Get(jetstream.SequenceHeader)).To(Equal("2"))
			a.Expect(record).To(HaveKeyWithValue("attempt", "i-x.1"), "of the leader")
		case record["name"] == processes.Stranger:
			seen["nonexistent candidate"]++
			a.Expect(record["attempt"]).NotTo(Equal("i-x.1"))
		}
	}
	a.Expect(seen).To(Equal(map[string]int{
		"release": 4, "later bucket": 4, "nonexistent candidate": 4, "replay": 2,
		"removal MaxAge": 2, "removal Remove": 2, "removal Purge": 2, "removal DEL": 2, "removal PURGE": 2,
	}))
}
