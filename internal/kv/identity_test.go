package kv

import (
	"maps"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"
)

func TestPinnedTimeIdentifiesTheBucketWhateverTheServerReportsLater(t *testing.T) {
	g := NewWithT(t)
	created := time.Date(2026, 1, 2, 3, 4, 5, 6, time.FixedZone("", 3600))
	info := &jetstream.StreamInfo{Created: created, TimeStamp: created.Add(time.Hour)}
	i := InfoOf(status{stream: info})
	g.Expect(i.Created).To(Equal(created))
	g.Expect(i.Pinned).To(BeFalse())

	pin(&info.Config, info)
	g.Expect(InfoOf(status{stream: info}).Created).To(BeTemporally("==", created), "the identity is the same before and after it is pinned")
	info.Created = created.Add(time.Minute)
	i = InfoOf(status{stream: info})
	g.Expect(i.Created).To(BeTemporally("==", created))
	g.Expect(i.Pinned).To(BeTrue())
	info.State.LastSeq = 1
	before := maps.Clone(info.Config.Metadata)
	pin(&info.Config, info)
	g.Expect(info.Config.Metadata).To(Equal(before), "what is pinned stays pinned")
}

func TestPinnedTimeThatNoStreamCanHaveIsIgnored(t *testing.T) {
	created := time.Now().Add(-time.Hour)
	for _, pin := range []string{"", "yesterday", "0001-01-01T00:00:00Z", "1969-12-31T23:59:59Z", "9999-12-31T23:59:59Z", created.Add(2 * time.Hour).Format(time.RFC3339Nano)} {
		for _, now := range []time.Time{{}, created.Add(time.Hour)} {
			g := NewWithT(t)
			i := InfoOf(status{stream: &jetstream.StreamInfo{Created: created, TimeStamp: now, Config: jetstream.StreamConfig{Metadata: map[string]string{CreatedMetadata: pin}}}})
			g.Expect(i.Created).To(Equal(created), pin)
			g.Expect(i.Pinned).To(BeFalse(), pin)
		}
	}
}

func TestPinnedTimeOfAnotherStreamIsReplacedWhileNothingHasBeenWritten(t *testing.T) {
	g := NewWithT(t)
	created := time.Now().Add(-time.Hour)
	info := &jetstream.StreamInfo{Created: created, Config: jetstream.StreamConfig{Metadata: map[string]string{CreatedMetadata: created.Add(-time.Hour).Format(time.RFC3339Nano)}}}
	pin(&info.Config, info)
	g.Expect(InfoOf(status{stream: info}).Created).To(BeTemporally("==", created))
}
