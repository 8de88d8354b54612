package kv

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/timing"
)

// fit returns the info of a bucket that is fit for elections.
func fit() Info {
	return Info{Bucket: "E", TTL: 5 * time.Second, History: 1, Stream: &jetstream.StreamInfo{Config: jetstream.StreamConfig{Replicas: 1}}}
}

func TestProblemsNamesWhatMakesABucketUnfit(t *testing.T) {
	for name, c := range map[string]struct {
		change func(i *Info)
		codes  []string
		text   string
	}{
		"fit":               {func(*Info) {}, nil, ""},
		"stream unknown":    {func(i *Info) { i.Stream = nil }, nil, ""},
		"shortest TTL":      {func(i *Info) { i.TTL = timing.MinTTL }, nil, ""},
		"longest TTL":       {func(i *Info) { i.TTL = timing.MaxTTL }, nil, ""},
		"no TTL":            {func(i *Info) { i.TTL = 0 }, []string{"no-ttl"}, "has no TTL"},
		"TTL too short":     {func(i *Info) { i.TTL = timing.MinTTL - 1 }, []string{"ttl-out-of-range"}, "999.999999ms"},
		"TTL too long":      {func(i *Info) { i.TTL = timing.MaxTTL + 1 }, []string{"ttl-out-of-range"}, "1h0m0.000000001s"},
		"history":           {func(i *Info) { i.History = 5 }, []string{"history"}, "history of 5"},
		"sealed":            {func(i *Info) { i.Stream.Config.Sealed = true }, []string{"stream-settings"}, "sealed"},
		"no acknowledgment": {func(i *Info) { i.Stream.Config.NoAck = true }, []string{"stream-settings"}, "acknowledges no writes"},
		"work queue":        {func(i *Info) { i.Stream.Config.Retention = jetstream.WorkQueuePolicy }, []string{"stream-settings"}, "retention"},
		"mirror":            {func(i *Info) { i.Stream.Config.Mirror = &jetstream.StreamSource{Name: "KV_M"} }, []string{"copied-bucket"}, "KV_M"},
		"sources":           {func(i *Info) { i.Stream.Config.Sources = []*jetstream.StreamSource{{Name: "KV_S"}} }, []string{"copied-bucket"}, "KV_S"},
		"memory":            {func(i *Info) { i.Stream.Config.Storage = jetstream.MemoryStorage }, nil, ""},
		"replicated memory": {func(i *Info) { i.Stream.Config.Storage, i.Stream.Config.Replicas = jetstream.MemoryStorage, 3 }, []string{"memory-replicated"}, "3 replicas"},
		"several problems": {func(i *Info) { i.TTL, i.History, i.Stream.Config.Sealed, i.Stream.Config.NoAck = 0, 2, true, true },
			[]string{"no-ttl", "history", "stream-settings", "stream-settings"}, "history of 2"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			i := fit()
			c.change(&i)
			var codes []string
			for _, p := range i.Problems() {
				codes = append(codes, p.Code)
				g.Expect(p.Message).NotTo(BeEmpty())
				g.Expect(p.Fix).NotTo(BeEmpty())
				g.Expect(i.Validate()).To(MatchError(And(ContainSubstring(`"E" `+p.Message), ContainSubstring(p.Fix))))
			}
			g.Expect(codes).To(Equal(c.codes))
			if err := i.Validate(); len(c.codes) == 0 {
				g.Expect(err).NotTo(HaveOccurred())
			} else {
				g.Expect(err).To(MatchError(ErrUnsuitable))
				g.Expect(err).To(MatchError(ContainSubstring(c.text)))
			}
		})
	}
}

// status is the status of a bucket with a stream.
type status struct {
	jetstream.KeyValueStatus
	stream *jetstream.StreamInfo
}

func (status) Bucket() string                      { return "E" }
func (status) TTL() time.Duration                  { return time.Minute }
func (status) History() int64                      { return 1 }
func (status) LimitMarkerTTL() time.Duration       { return time.Second }
func (s status) StreamInfo() *jetstream.StreamInfo { return s.stream }

func TestInfoOfReadsTheStream(t *testing.T) {
	g := NewWithT(t)
	created := time.Now()
	i := InfoOf(status{stream: &jetstream.StreamInfo{Created: created, Config: jetstream.StreamConfig{
		RePublish: &jetstream.RePublish{Source: "$KV.E.>", Destination: "election.E.>"},
		Metadata:  map[string]string{PausedPrefix + "jobs.hourly": "", PausedPrefix + "jobs.daily": "2026-01-02T03:04:05Z root@web-1", "owner": "ops"},
	}}})
	g.Expect(i.TTL).To(Equal(time.Minute))
	g.Expect(i.MarkerTTL).To(Equal(time.Second))
	g.Expect(i.Created).To(Equal(created))
	g.Expect(i.Republish).To(Equal("election.E.>"))
	g.Expect(i.Paused).To(Equal(map[string]Pause{
		"jobs.hourly": {}, "jobs.daily": {Since: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), By: "root@web-1"},
	}))
	g.Expect(i.Paused["jobs.daily"].String()).To(Equal("2026-01-02T03:04:05Z root@web-1"))
	g.Expect(InfoOf(status{}).Stream).To(BeNil())
	g.Expect(InfoOf(status{}).Republish).To(BeEmpty())
}

func TestRepublishesOnlyIfEveryChangeIsRepeatedWhole(t *testing.T) {
	for _, c := range []struct {
		setting *jetstream.RePublish
		want    bool
	}{
		{nil, false},
		{&jetstream.RePublish{Source: "$KV.E.>"}, true},
		{&jetstream.RePublish{Source: ">"}, true},
		{&jetstream.RePublish{Source: ""}, true},
		{&jetstream.RePublish{Source: "$KV.E.config"}, false},
		{&jetstream.RePublish{Source: "$KV.E.jobs.>"}, false},
		{&jetstream.RePublish{Source: "$KV.OTHER.>"}, false},
		{&jetstream.RePublish{Source: "$KV.E.>", HeadersOnly: true}, false},
	} {
		NewWithT(t).Expect(republishes("E", c.setting)).To(Equal(c.want), "%+v", c.setting)
	}
}
