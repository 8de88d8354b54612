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

	"github.com/natscampaign/election/admin"
	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/clitest"
)

// interruptible are the commands that ask and change, each as it is called once its flags are read.
func (a *arena) interruptible() map[string]func(context.Context) error {
	t := &cli.Env{Connection: cli.ConnFlags{Server: a.Server.URL(), Timeout: clitest.Patience}, Bucket: cli.DefaultBucket, Stdout: &bytes.Buffer{}, Stderr: &bytes.Buffer{}}
	bucket := &bucketCommand{Env: t, ttl: clitest.Quiet, replicas: 1, force: true}
	return map[string]func(context.Context) error{
		"candidates": (&candidatesCommand{Env: t, key: "jobs"}).run,
		"pause":      (&pauseCommand{Env: t, key: "jobs", do: (*admin.Admin).Pause}).run,
		"resume":     (&pauseCommand{Env: t, key: "jobs", do: (*admin.Admin).Resume}).run,
		"resign":     (&handoverCommand{Env: t, key: "jobs", force: true}).run,
		"transfer":   (&handoverCommand{Env: t, key: "jobs", to: "web-2"}).run,
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

func TestACommandThatIsInterruptedBeforeItAskedSaysSo(t *testing.T) {
	t.Parallel()
	a := newArena(t, clitest.Quiet)
	a.Put("jobs", clitest.Leading("web-1", nil))
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for name, run := range a.interruptible() {
		expectInterrupted(a, run(over), name)
	}
	a.Expect(a.Stands("jobs")).To(BeTrue())
}

func TestACommandThatIsInterruptedWhileItAsksSaysSo(t *testing.T) {
	t.Parallel()
	a := newArena(t, clitest.Quiet)
	a.Put("jobs", clitest.Leading("web-1", nil))
	commands := a.interruptible()
	for name, verb := range map[string]string{"candidates": "candidates", "pause": "refresh", "resume": "refresh", "resign": "resign", "transfer": "transfer"} {
		ctx, interrupt := context.WithCancel(t.Context())
		sub, err := a.S.Conn.Subscribe("election-control.LEADER_ELECTION."+verb+".jobs", func(*nats.Msg) { interrupt() }) // and does not answer
		a.Expect(err).NotTo(HaveOccurred())
		a.Expect(a.S.Conn.Flush()).To(Succeed())
		err = commands[name](ctx)
		expectInterrupted(a, err, name)
		if name == "resign" || name == "transfer" {
			a.Expect(err).To(MatchError(ContainSubstring("whether web-1 hands over is not known")), name)
		}
		a.Expect(sub.Unsubscribe()).To(Succeed())
	}
}

// answering is a JetStream that answers removals with an error.
type answering struct {
	jetstream.JetStream
	err error
}

// DeleteKeyValue removes nothing.
func (a *answering) DeleteKeyValue(context.Context, string) error { return a.err }

func TestARemovalWithoutAnAnswerIsNotSaidToHaveFailed(t *testing.T) {
	t.Parallel()
	a := newArena(t, clitest.Quiet)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	b := &bucketCommand{Env: &cli.Env{Bucket: cli.DefaultBucket}}
	remove := func(ctx context.Context, err error) error {
		return b.remove(ctx, &cli.Session{Conn: a.S.Conn, JetStream: &answering{a.S.JetStream, err}, Timeout: time.Second})
	}
	a.Expect(remove(t.Context(), context.DeadlineExceeded)).To(And(
		MatchError(context.DeadlineExceeded), MatchError(ContainSubstring("was removed is not known"))))
	a.Expect(remove(t.Context(), nats.ErrConnectionClosed)).To(MatchError(ContainSubstring("was removed is not known")))
	err := remove(over, context.Canceled)
	expectInterrupted(a, err, "bucket rm")
	a.Expect(err).To(MatchError(ContainSubstring("was removed is not known")))
	refused := &jetstream.APIError{Code: 503, ErrorCode: 10008, Description: "temporarily unavailable"}
	a.Expect(remove(t.Context(), refused)).To(And(MatchError(refused), MatchError(ContainSubstring("was not removed"))))
	a.Expect(remove(t.Context(), jetstream.ErrBucketNotFound)).To(MatchError(ContainSubstring("nothing was removed")))
}

func TestAnEvictionThatIsInterruptedIsNotSaidToHaveFailed(t *testing.T) {
	t.Parallel()
	a := newArena(t, clitest.Quiet)
	a.Put("jobs", clitest.Leading("web-1", nil))
	ctx, interrupt := context.WithCancel(t.Context())
	c, v, meant := a.asked(1, interrupt)
	_, err := c.evict(ctx, v, meant)
	expectInterrupted(a, err, "evict")
	a.Expect(err).To(MatchError(ContainSubstring("whether web-1 was evicted is not known")))
	_, err = c.evict(ctx, v, meant)
	a.Expect(err).To(MatchError("interrupted"), "it has not got that far")
}
