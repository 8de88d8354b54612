package main

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/test/clitest"
)

// interruptible returns the commands that send requests, as they run after their flags were parsed.
func (f *fixture) interruptible() map[string]func(context.Context) error {
	env := &cli.Env{Connection: cli.ConnectionFlags{Server: f.Server.URL(), Timeout: clitest.Timeout}, Bucket: cli.DefaultBucket, Stdout: &bytes.Buffer{}, Stderr: &bytes.Buffer{}}
	bucket := &bucketCommand{Env: env, ttl: clitest.LongTTL, replicas: 1, force: true}
	return map[string]func(context.Context) error{
		"candidates": (&candidatesCommand{Env: env, key: "jobs"}).run,
		"pause":      (&pauseCommand{Env: env, key: "jobs", force: true}).pause,
		"resume":     (&pauseCommand{Env: env, key: "jobs"}).resume,
		"resign":     (&handoverCommand{Env: env, key: "jobs", force: true}).run,
		"transfer":   (&handoverCommand{Env: env, key: "jobs", to: "web-2"}).run,
		"bucket add": bucket.add,
		"bucket rm":  bucket.rm,
	}
}

// expectInterrupted expects the error of a command that was interrupted before it had a result.
func expectInterrupted(g Gomega, err error, what string) {
	v, ok := errors.AsType[*cli.ExitError](err)
	g.Expect(ok).To(BeTrue(), "%s: %v", what, err)
	g.Expect(v.Code).To(Equal(cli.ExitInterrupted), "%s: %v", what, err)
	g.Expect(err).To(MatchError(HavePrefix("interrupted")), what)
}

func TestACommandReportsAnInterruptBeforeItsRequest(t *testing.T) {
	t.Parallel()
	f := newFixture(t, clitest.LongTTL)
	f.Put("jobs", clitest.LeaderRecord("web-1", nil))
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for name, run := range f.interruptible() {
		expectInterrupted(f, cli.Interruptible(run)(over), name)
	}
	f.Expect(f.HasRecord("jobs")).To(BeTrue())
}

func TestACommandReportsAnInterruptDuringItsRequest(t *testing.T) {
	t.Parallel()
	f := newFixture(t, clitest.LongTTL)
	f.Put("jobs", clitest.LeaderRecord("web-1", nil))
	commands := f.interruptible()
	for name, request := range map[string]string{"candidates": "candidates", "pause": "refresh", "resume": "refresh", "resign": "resign", "transfer": "transfer"} {
		ctx, interrupt := context.WithCancel(t.Context())
		sub, err := f.Client.Conn.Subscribe("election-control.LEADER_ELECTION."+request+".jobs", func(*nats.Msg) { interrupt() }) // there is no answer
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(f.Client.Conn.Flush()).To(Succeed())
		err = cli.Interruptible(commands[name])(ctx)
		expectInterrupted(f, err, name)
		if name == "resign" || name == "transfer" {
			f.Expect(err).To(MatchError(ContainSubstring(`it is not known whether "web-1" hands over`)), name)
		}
		f.Expect(sub.Unsubscribe()).To(Succeed())
	}
}

// failingDeletes is a JetStream that fails to delete a bucket.
type failingDeletes struct {
	jetstream.JetStream
	err error
}

// DeleteKeyValue returns the error, and deletes nothing.
func (d *failingDeletes) DeleteKeyValue(context.Context, string) error { return d.err }

func TestARemovalWithoutAnAnswerIsReportedAsUnknown(t *testing.T) {
	t.Parallel()
	f := newFixture(t, clitest.LongTTL)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	b := &bucketCommand{Env: &cli.Env{Bucket: cli.DefaultBucket}}
	remove := func(ctx context.Context, err error) error {
		return b.remove(ctx, &cli.Client{Conn: f.Client.Conn, JetStream: &failingDeletes{f.Client.JetStream, err}, Timeout: time.Second})
	}
	f.Expect(remove(t.Context(), context.DeadlineExceeded)).To(And(
		MatchError(context.DeadlineExceeded), MatchError(ContainSubstring("it is not known whether bucket"))))
	f.Expect(remove(t.Context(), nats.ErrConnectionClosed)).To(MatchError(ContainSubstring("it is not known whether bucket")))
	err := remove(over, context.Canceled)
	expectInterrupted(f, err, "bucket rm")
	f.Expect(err).To(MatchError(ContainSubstring("it is not known whether bucket")))
	refused := &jetstream.APIError{Code: 503, ErrorCode: 10008, Description: "temporarily unavailable"}
	f.Expect(remove(t.Context(), refused)).To(And(MatchError(refused), MatchError(ContainSubstring("was not removed"))))
	f.Expect(remove(t.Context(), jetstream.ErrBucketNotFound)).To(MatchError(ContainSubstring("nothing was removed")))
}

func TestAnInterruptedEvictionIsReportedAsUnknown(t *testing.T) {
	t.Parallel()
	f := newFixture(t, clitest.LongTTL)
	f.Put("jobs", clitest.LeaderRecord("web-1", nil))
	ctx, interrupt := context.WithCancel(t.Context())
	v, shown := f.beginEviction(1, interrupt)
	_, err := v.Evict(ctx, shown, 0)
	expectInterrupted(f, err, "evict")
	f.Expect(err).To(MatchError(ContainSubstring(`it is not known whether "web-1" was evicted`)))
	_, err = v.Evict(ctx, shown, 0)
	f.Expect(err).To(MatchError(context.Canceled), "the second call does not reach the deletion")
}
