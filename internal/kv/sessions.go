package kv

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election/internal/timing"
	"github.com/natscampaign/election/internal/validate"
)

// SessionTTLMetadata is the name of the metadata of a stream that says that the bucket is for sessions, and how long their TTL is, as Go writes durations.
// The bucket itself has no TTL: a claim must not expire.
const SessionTTLMetadata = "election.session_ttl"

// SessionsConfig says what bucket for sessions is to be made: one from which nothing disappears but by a write over a revision.
type SessionsConfig struct {
	Name     string
	TTL      time.Duration
	Replicas int // 0: three, where the server has as many, else one
	Storage  jetstream.StorageType
}

// config is what SessionsConfig has in common with a bucket of elections.
func (c SessionsConfig) config() Config {
	return Config{Name: c.Name, TTL: c.TTL, Replicas: c.Replicas, Storage: c.Storage}
}

// Validate checks the configuration, and names every problem.
func (c SessionsConfig) Validate() error { return c.config().Validate() }

// Create makes the bucket. It never changes one that exists: the error is jetstream.ErrBucketExists then.
func (c SessionsConfig) Create(ctx context.Context, js jetstream.JetStream) error {
	_, _, err := c.config().replicated(ctx, func(ctx context.Context, of Config) error {
		cfg := newStream(of.Name, of.Storage)
		cfg.Description, cfg.DenyPurge, cfg.AllowMsgTTL, cfg.Replicas = "sessions that lead keys", true, true, max(1, of.Replicas)
		setMetadata(&cfg, SessionTTLMetadata, of.TTL.String())
		made, err := of.createStream(ctx, js, cfg)
		if err != nil {
			return err
		}
		if !made.Config.AllowMsgTTL {
			return fmt.Errorf("%w: %q cannot be a bucket for sessions: its server is older than 2.11: update the server, or campaign by elections", ErrUnsuitable, of.Name)
		}
		return of.writeIdentity(ctx, js, made, cfg)
	})
	return err
}

// SessionProblems returns what makes a bucket unfit for sessions.
func (i Info) SessionProblems() (problems []Problem) {
	add := func(code, message, fix string) { problems = append(problems, Problem{code, message, fix}) }
	remake := fmt.Sprintf("use another bucket, which session.Open makes; or stop all that use this one, and remove it ('election-cli bucket rm --bucket %s')", i.Bucket)
	if i.SessionTTL <= 0 || i.Stream == nil {
		add("no-sessions", "is not made for sessions", remake)
		return problems
	}
	cfg := i.Stream.Config
	if cfg.MaxAge > 0 {
		add("claims-expire", fmt.Sprintf("has a TTL of %v: claims expire while they are led", cfg.MaxAge), i.EditAdvice("--max-age 0"))
	}
	if cfg.MaxMsgsPerSubject != 1 {
		add("history", fmt.Sprintf("keeps a history of %d", cfg.MaxMsgsPerSubject), i.EditAdvice("--max-msgs-per-subject 1"))
	}
	if !cfg.AllowMsgTTL || !cfg.DenyDelete || !cfg.DenyPurge || cfg.AllowRollup || cfg.SubjectDeleteMarkerTTL > 0 {
		add("claims-disappear", "allows deletions, purges, roll-ups or markers, or does not allow a TTL for one record: claims may disappear", remake)
	}
	if cfg.Discard != jetstream.DiscardNew {
		add("claims-disappear", "discards old records once it is full: claims may disappear", i.EditAdvice("--discard new"))
	}
	if cfg.Sealed || cfg.NoAck || cfg.Retention != jetstream.LimitsPolicy {
		add("stream-settings", "is sealed, acknowledges no writes, or has its consumers remove records", remake)
	}
	if cfg.Mirror != nil || len(cfg.Sources) > 0 || cfg.SubjectTransform != nil || cfg.RePublish != nil || !slices.Equal(cfg.Subjects, []string{Subject(i.Bucket, ">")}) {
		add("copied-bucket", "stores or repeats what was written elsewhere", remake)
	}
	if cfg.Storage == jetstream.MemoryStorage && cfg.Replicas > 1 {
		add("memory-replicated", fmt.Sprintf("is kept in memory, with %d replicas: once all their servers have restarted it is empty, and term numbers begin at 1 again without a sign", cfg.Replicas), remake)
	}
	return problems
}

// ValidateSessions returns an error that wraps [ErrUnsuitable] and names every problem; nil if there is none.
func (i Info) ValidateSessions() error { return i.unsuitable(i.SessionProblems()) }

// sessionTTL returns the TTL of the sessions in a bucket; 0 if the bucket is not for sessions.
func sessionTTL(cfg *jetstream.StreamConfig) time.Duration {
	ttl, err := time.ParseDuration(cfg.Metadata[SessionTTLMetadata])
	if err != nil || ttl < timing.MinTTL || ttl > timing.MaxTTL {
		return 0
	}
	return ttl
}

// WrongTTL is the error of a session that is to have another TTL than the bucket.
func (i Info) WrongTTL(want time.Duration) error {
	return validate.Errorf("a TTL of %v: the sessions in %q have one of %v: leave the TTL out, or use another bucket", want, i.Bucket, i.SessionTTL)
}
