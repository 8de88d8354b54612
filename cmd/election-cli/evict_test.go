package main

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/clitest"
	"github.com/natscampaign/election/internal/look"
)

func TestEvictDeletesTheKeyOfTheLeaderThatItNames(t *testing.T) {
	t.Parallel()
	a := newArena(t, clitest.Quiet)
	revision := a.Put("jobs", clitest.Leading("web-1", nil))
	a.Put("other", clitest.Leading("db-1", nil))
	var f look.Election
	a.read(cli.ExitOK, &f, "evict", "jobs", "--force")
	a.Expect([]any{f.Key, f.Leader.Name, f.Leader.Term, f.Leader.Revision}).To(Equal([]any{"jobs", "web-1", uint64(7), revision}))
	a.Expect(a.Stands("jobs")).To(BeFalse())
	a.Expect(a.Stands("other")).To(BeTrue())

	code, stdout, stderr := a.run("evict", "other", "--force")
	a.Expect([]any{code, stdout, stderr}).To(Equal([]any{cli.ExitOK, "Evicted db-1 from other, term 7, revision 2\n", ""}))
}

func TestEvictWithoutAnybodyToAskDoesNothing(t *testing.T) {
	t.Parallel()
	a := newArena(t, clitest.Quiet)
	a.Put("jobs", clitest.Leading("web-1", nil))
	code, stdout, stderr := a.run("evict", "jobs") // its standard input is the null device
	a.Expect([]any{code, stdout}).To(Equal([]any{cli.ExitFailure, ""}))
	a.Expect(stderr).To(And(ContainSubstring("--force"), ContainSubstring("web-1 leads jobs since"), ContainSubstring("two may lead at once")))
	a.Expect(a.Stands("jobs")).To(BeTrue())
}

func TestEvictOfAKeyThatNobodyHoldsExits1AndDoesNothing(t *testing.T) {
	t.Parallel()
	a := newArena(t, clitest.Quiet)
	a.Put("gone", clitest.Leading("web-1", clitest.Fields{"released": time.Now()}))
	for _, key := range []string{"never", "gone"} {
		code, stdout, stderr := a.run("evict", key, "--force", "--json")
		a.Expect([]any{code, stdout}).To(Equal([]any{cli.ExitNegative, ""}))
		a.Expect(stderr).To(ContainSubstring("nobody leads " + key))
	}
	a.Expect(a.Stands("gone")).To(BeTrue(), "a release proves to the successor that it need not wait")
}

func TestEvictWithARevisionTakesNoOther(t *testing.T) {
	t.Parallel()
	a := newArena(t, clitest.Quiet)
	a.Put("jobs", clitest.Leading("web-1", nil))
	a.Put("jobs", clitest.Leading("web-1", nil))
	code, _, stderr := a.run("evict", "jobs", "--force", "--revision", "1")
	a.Expect(code).To(Equal(cli.ExitNegative))
	a.Expect(stderr).To(ContainSubstring("has revision 2 and not 1; nothing was done"))
	a.Expect(a.Stands("jobs")).To(BeTrue())
	code, _, stderr = a.run("evict", "jobs", "--force", "--revision", "2")
	a.Expect(code).To(Equal(cli.ExitOK), stderr)
	a.Expect(a.Stands("jobs")).To(BeFalse())
}

// hasty is a bucket in which something happens each time just before a key is deleted.
type hasty struct {
	jetstream.KeyValue
	happen func()
	times  int
}

// Delete lets it happen first.
func (h *hasty) Delete(ctx context.Context, key string, opts ...jetstream.KVDeleteOpt) error {
	if h.times > 0 {
		h.times--
		h.happen()
	}
	return h.KeyValue.Delete(ctx, key, opts...)
}

// asked returns a command that has shown the leader of jobs and asked about it, and what it has seen.
func (a *arena) asked(times int, happen func()) (c *evictCommand, v *look.View, meant *look.Holder) {
	a.T.Helper()
	v, err := look.Of(a.T.Context(), a.S, a.Bucket)
	a.Expect(err).NotTo(HaveOccurred())
	meant, err = v.Leader(a.T.Context(), "jobs")
	a.Expect(err).NotTo(HaveOccurred())
	v.Bucket = &election.Bucket{KeyValue: &hasty{a.Bucket, happen, times}}
	return &evictCommand{Env: &cli.Env{Stderr: &bytes.Buffer{}}, key: "jobs"}, v, meant
}

func TestALeaderThatRenewsMeanwhileIsEvictedAllTheSame(t *testing.T) {
	t.Parallel()
	a := newArena(t, clitest.Quiet)
	renew := func() { a.Put("jobs", clitest.Leading("web-1", nil)) }
	renew()
	c, v, meant := a.asked(2, renew)
	renew() // while the question waits for an answer
	evicted, err := c.evict(t.Context(), v, meant)
	a.Expect(err).NotTo(HaveOccurred())
	a.Expect(evicted.Revision).To(Equal(uint64(4)), "the one that was deleted, after three renewals")
	a.Expect(a.Stands("jobs")).To(BeFalse())
}

func TestALeaderElectThatBeginsToLeadMeanwhileIsStillTheSame(t *testing.T) {
	t.Parallel()
	a := newArena(t, clitest.Quiet)
	a.Put("jobs", clitest.Leading("web-1", clitest.Fields{"term": 0}))
	c, v, meant := a.asked(0, nil)
	a.Put("jobs", clitest.Leading("web-1", nil))
	_, err := c.evict(t.Context(), v, meant)
	a.Expect(err).NotTo(HaveOccurred())
}

func TestNobodyButTheLeaderThatWasShownIsEvicted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		happens any
		says    string
	}{
		"another leads by then":      {clitest.Leading("web-2", nil), "it is web-2 now; nothing was done"},
		"it leads again by then":     {clitest.Leading("web-1", clitest.Fields{"since": time.Now()}), "it is web-1 now; nothing was done"},
		"its successor on that host": {clitest.Leading("web-1", clitest.Fields{"instance": "i-2"}), "it is web-1 now; nothing was done"},
		"it has released by then":    {clitest.Leading("web-1", clitest.Fields{"released": time.Now()}), "nobody leads; nothing was done"},
	} {
		for when, times := range map[string]int{"before the answer": 0, "as it is deleted": 1} {
			t.Run(name+" "+when, func(t *testing.T) {
				t.Parallel()
				a := newArena(t, clitest.Quiet)
				a.Put("jobs", clitest.Leading("web-1", nil))
				happen := func() { a.Put("jobs", c.happens) }
				cmd, v, meant := a.asked(times, happen)
				if times == 0 {
					happen()
				}
				_, err := cmd.evict(t.Context(), v, meant)
				a.Expect(err).To(And(BeAssignableToTypeOf(&cli.ExitError{}), MatchError(ContainSubstring(c.says))))
				a.Expect(a.Stands("jobs")).To(BeTrue())
			})
		}
	}
}

func TestALeaderThatAlwaysOutrunsTheDeletionIsLeftAlone(t *testing.T) {
	t.Parallel()
	a := newArena(t, clitest.Quiet)
	renew := func() { a.Put("jobs", clitest.Leading("web-1", nil)) }
	renew()
	c, v, meant := a.asked(1000, renew)
	_, err := c.evict(t.Context(), v, meant)
	a.Expect(err).To(MatchError(ContainSubstring("renewed too often")))
	a.Expect(a.Stands("jobs")).To(BeTrue())

	c.revision, c.revisionSet = 6, true
	_, err = c.evict(t.Context(), v, meant)
	a.Expect(err).To(MatchError(ContainSubstring("no longer revision 6")))
	a.Expect(a.Stands("jobs")).To(BeTrue())
}

func TestAnEvictedLeaderStandsDown(t *testing.T) {
	t.Parallel()
	a := newArena(t, 10*time.Second)
	lost := make(chan struct{}, 1)
	e, err := election.NewElection("web-1", "jobs", a.Bucket, election.WithSplay(0), election.WithCampaignInterval(time.Second),
		election.OnLost(func() { lost <- struct{}{} }))
	a.Expect(err).NotTo(HaveOccurred())
	go func() { _ = e.Start(context.Background()) }()
	defer clitest.ShutDown(t, e)
	a.Eventually(e.IsLeader).WithTimeout(clitest.Patience).Should(BeTrue())
	code, stdout, stderr := a.run("evict", "jobs", "--force")
	a.Expect(code).To(Equal(cli.ExitOK), stderr)
	a.Expect(stdout).To(HavePrefix("Evicted web-1 from jobs"))
	a.Eventually(lost).WithTimeout(clitest.Patience).Should(Receive())
}

func TestEvictWithoutABucketIsAnErrorAtOnce(t *testing.T) {
	t.Parallel()
	a := newArena(t, clitest.Quiet)
	code, stdout, stderr := a.run("evict", "jobs", "--force", "--bucket", "NONE")
	a.Expect([]any{code, stdout}).To(Equal([]any{cli.ExitFailure, ""}))
	a.Expect(stderr).To(ContainSubstring(`no bucket "NONE"`))
}
