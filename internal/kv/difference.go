package kv

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election/internal/record"
)

// maxMessageSize is the size of the largest record with its headers.
const maxMessageSize = record.MaxBytes + 1<<10

const markerSetting = "TTL of expiry markers"

// Difference is a setting of a bucket that is not as wanted.
type Difference struct {
	Setting   string
	Has, Want string
	Minor     bool // no flag and no option sets it
	Fixed     bool // no server changes it
}

// Differences returns each setting of the bucket that is not as c says.
func (c Config) Differences(info Info) []Difference {
	want := c.over(info.Stream.Config, WritesMarkers(info.Stream))
	pin(&want, info.Stream)
	return differences(info.Stream.Config, want)
}

func differences(has, want jetstream.StreamConfig) (found []Difference) {
	for _, s := range []struct {
		setting string
		minor   bool
		value   func(*jetstream.StreamConfig) string
	}{
		{"TTL", false, func(c *jetstream.StreamConfig) string { return TTLText(c.MaxAge) }},
		{"replicas", false, func(c *jetstream.StreamConfig) string { return fmt.Sprint(c.Replicas) }},
		{"storage", false, func(c *jetstream.StreamConfig) string { return strings.ToLower(c.Storage.String()) }},
		{"max bytes", false, func(c *jetstream.StreamConfig) string { return limitText(c.MaxBytes) }},
		{"max keys", false, func(c *jetstream.StreamConfig) string { return limitText(c.MaxMsgs) }},
		{"max bytes of a value", false, func(c *jetstream.StreamConfig) string { return limitText(int64(c.MaxMsgSize)) }},
		{"when full", false, func(c *jetstream.StreamConfig) string {
			return word(c.Discard == jetstream.DiscardNew, "refuses writes", "drops the oldest key")
		}},
		{"history", false, func(c *jetstream.StreamConfig) string { return fmt.Sprint(c.MaxMsgsPerSubject) }},
		{markerSetting, false, func(c *jetstream.StreamConfig) string { return TTLText(c.SubjectDeleteMarkerTTL) }},
		{"changes", false, func(c *jetstream.StreamConfig) string {
			return word(republishes(strings.TrimPrefix(c.Name, StreamName("")), c.RePublish), "republished", "not republished")
		}},
		{"writes", false, func(c *jetstream.StreamConfig) string { return word(c.NoAck, "not acknowledged", "acknowledged") }},
		{"sources", false, func(c *jetstream.StreamConfig) string {
			var names []string
			for _, source := range c.Sources {
				names = append(names, source.Name)
			}
			return cmp.Or(strings.Join(names, ", "), "none")
		}},
		{"direct reads", true, func(c *jetstream.StreamConfig) string { return word(c.AllowDirect, "allowed", "not allowed") }},
		{"roll-ups", true, func(c *jetstream.StreamConfig) string { return word(c.AllowRollup, "allowed", "refused") }},
		{"candidates of Choria", true, func(c *jetstream.StreamConfig) string {
			return word(c.Metadata[ChoriaMetadata] != "", "expected", "not expected")
		}},
		{"releases", true, func(c *jetstream.StreamConfig) string {
			return word(c.Metadata[RemembersMetadata] != "", "remembered", "expire")
		}},
		{"time of creation", true, func(c *jetstream.StreamConfig) string {
			return word(c.Metadata[CreatedMetadata] != "", "pinned to "+c.Metadata[CreatedMetadata], "not pinned")
		}},
	} {
		if is, should := s.value(&has), s.value(&want); is != should {
			fixed := s.setting == "storage" || s.setting == markerSetting && should == TTLText(0)
			found = append(found, Difference{s.setting, is, should, s.minor, fixed})
		}
	}
	return found
}

func word(condition bool, yes, no string) string {
	if condition {
		return yes
	}
	return no
}

func limitText(limit int64) string {
	if limit < 0 {
		return "no limit"
	}
	return fmt.Sprint(limit)
}

// TTLText returns a TTL in words.
func TTLText(ttl time.Duration) string {
	if ttl <= 0 {
		return "none"
	}
	return ttl.String()
}
