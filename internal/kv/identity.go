package kv

import (
	"maps"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election/internal/timing"
)

// CreatedMetadata is the name of the metadata of a stream that says when the stream was created, in RFC 3339 with nanoseconds. CreateBucket
// writes what the server says then. Some servers say something else later: a file stream of 2.11.17, 2.12.15 or 2.14.5 reports a later time
// after a restart, a change of its configuration, and another restart.
const CreatedMetadata = "election.created"

// CreatedOf returns the time that identifies a stream among all streams of its name: when it was created. The time is pinned if the
// metadata says it; else it is what the server reports now. Later streams have later times.
//
// A pinned time later than the answer of the server is no time of creation, and is ignored: the tokens of every later bucket would sort
// below such a time. A pinned time that precedes the reported one may have been copied along with the configuration of another stream, but
// it is also what the servers above leave behind, and nothing in the stream tells the two apart.
func CreatedOf(info *jetstream.StreamInfo) (created time.Time, pinned bool) {
	at, err := time.Parse(time.RFC3339Nano, info.Config.Metadata[CreatedMetadata])
	now := info.TimeStamp
	if now.IsZero() { // the server is older than 2.10
		now = time.Now()
	}
	if err != nil || at.Unix() <= 0 || at.After(now) {
		return info.Created, false
	}
	return at, true
}

// KeepsCreated reports whether the server reports the same time of creation of a stream for ever. version is that of the server; servers
// from 2.14.9 on do. Earlier ones do for what they keep in memory, or in a cluster, and may not for the file streams of a server alone.
func KeepsCreated(info *jetstream.StreamInfo, version string) bool {
	if order, ok := CompareVersion(version, 2, 14, 9); ok && order >= 0 {
		return true
	}
	return info.Config.Storage == jetstream.MemoryStorage || info.Cluster != nil && info.Cluster.Name != ""
}

// pin writes the identity of a stream, which [CreatedOf] returns now, to the metadata of a configuration. A stream in which nothing was
// ever written may have a pinned time that was copied from another stream: its own time replaces it.
func pin(cfg *jetstream.StreamConfig, info *jetstream.StreamInfo) {
	created, pinned := CreatedOf(info)
	if info.State.LastSeq == 0 {
		created, pinned = info.Created, pinned && created.Equal(info.Created)
	}
	if pinned || created.IsZero() {
		return
	}
	setMetadata(cfg, CreatedMetadata, created.UTC().Format(time.RFC3339Nano))
}

// ChoriaMetadata is the name of the metadata of a stream that says that the bucket is for candidates of Choria too, for which no change may add expiry
// markers: no server takes these away again.
const ChoriaMetadata = "election.choria_compatible"

// RemembersMetadata is the name of the metadata of a stream that says that the releases of elections never expire. A client that may not read, and only
// knows how to create a key, could not create one over such a release. CreateBucket writes it to buckets that are not for candidates of Choria.
const RemembersMetadata = "election.remembers_releases"

func setMetadata(cfg *jetstream.StreamConfig, name, value string) {
	cfg.Metadata = maps.Clone(cfg.Metadata)
	if cfg.Metadata == nil {
		cfg.Metadata = map[string]string{}
	}
	cfg.Metadata[name] = value
}

// LongestTTLMetadata is the name of the metadata of a stream that says which TTL it has had at most, as Go writes durations. A candidate believes no record
// that states a longer lease than that.
const LongestTTLMetadata = "election.longest_ttl"

// longestTTL returns the longest TTL that a stream has had, as far as its configuration says.
func longestTTL(cfg *jetstream.StreamConfig) time.Duration { return max(cfg.MaxAge, notedTTL(cfg)) }

// notedTTL returns the longest TTL that the metadata says; 0 if it says none that a bucket for elections can have.
func notedTTL(cfg *jetstream.StreamConfig) time.Duration {
	noted, err := time.ParseDuration(cfg.Metadata[LongestTTLMetadata])
	if err != nil || noted < timing.MinTTL || noted > timing.MaxTTL {
		return 0
	}
	return noted
}

// noteTTL writes the longest TTL to the metadata of a configuration; before is the TTL that it replaces. No candidate goes by a TTL that is too long.
func noteTTL(cfg *jetstream.StreamConfig, before time.Duration) {
	if before > timing.MaxTTL {
		before = 0
	}
	setMetadata(cfg, LongestTTLMetadata, max(before, longestTTL(cfg)).String())
}
