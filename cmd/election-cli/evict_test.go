package main

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/cli/look"
	"github.com/natscampaign/election/internal/test/clitest"
)

func TestEvictDeletesOnlyTheKeyOfTheElection(t *testing.T) {
	t.Parallel()
	f := newFixture(t, clitest.LongTTL)
	revision := f.Put("jobs", clitest.LeaderRecord("web-1", nil))
	f.Put("other", clitest.LeaderRecord("db-1", nil))
	var found look.ElectionInfo
	f.read(cli.ExitOK, &found, "evict", "jobs", "--force")
	f.Expect([]any{found.Key, found.Leader.Name, found.Leader.Term, found.Leader.Revision}).To(Equal([]any{"jobs", "web-1", uint64(7), revision}))
	f.Expect(f.HasRecord("jobs")).To(BeFalse())
	f.Expect(f.HasRecord("other")).To(BeTrue())

	code, stdout, stderr := f.run("evict", "other", "--force")
	f.Expect([]any{code, stdout, stderr}).To(Equal([]any{cli.ExitOK, "Evicted \"db-1\" from \"other\", term 7, revision 2\n", ""}))
}

func TestEvictDeletesWhateverIsStoredUnderTheKey(t *testing.T) {
	t.Parallel()
	f := newFixture(t, clitest.LongTTL)
	nc := f.Client.Conn
	f.Put("theirs", "x")
	subject := "$KV." + f.Bucket.Bucket() + "."
	for name, store := range map[string]func() error{
		"a bare name": func() error { return nc.Publish(subject+"jobs", []byte("x")) },
		"nothing":     func() error { return nc.Publish(subject+"jobs", nil) },
		"other data":  func() error { return nc.Publish(subject+"jobs", []byte(`{"number":1}`)) },
		"a server's reply": func() error {
			return nc.PublishRequest("$JS.API.DIRECT.GET.KV_"+f.Bucket.Bucket()+"."+subject+"theirs", subject+"jobs", nil)
		},
	} {
		f.Expect(store()).To(Succeed(), name)
		f.Expect(nc.Flush()).To(Succeed())
		f.Eventually(func() bool { return f.HasRecord("jobs") }).Should(BeTrue(), name)
		code, _, stderr := f.run("evict", "jobs", "--force")
		f.Expect(code).To(Equal(cli.ExitOK), name+": "+stderr)
		f.Expect(f.HasRecord("jobs")).To(BeFalse(), name)
	}
	f.Put("jobs", `{"number":1}`)
	code, _, stderr := f.run("evict", "jobs") // stdin is the null device
	f.Expect(code).To(Equal(cli.ExitFailure))
	f.Expect(stderr).To(ContainSubstring(`is stored under "jobs", and no record of an election; it was written`))
}

func TestEvictWithoutATerminalDoesNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t, clitest.LongTTL)
	f.Put("jobs", clitest.LeaderRecord("web-1", nil))
	code, stdout, stderr := f.run("evict", "jobs") // stdin is the null device
	f.Expect([]any{code, stdout}).To(Equal([]any{cli.ExitFailure, ""}))
	f.Expect(stderr).To(And(ContainSubstring("--force"), ContainSubstring(`"web-1" leads "jobs" since`), ContainSubstring("two candidates may lead")))
	f.Expect(f.HasRecord("jobs")).To(BeTrue())
}

// Without a TTL the bucket does not say when a lease is over, and check says what to do about the bucket alone.
func TestNobodyIsToldThatALeaseIsOverInABucketWithoutATTL(t *testing.T) {
	t.Parallel()
	f := newFixture(t, clitest.LongTTL)
	lose(f.Fixture, func(cfg *jetstream.StreamConfig) { cfg.MaxAge = 0 })
	f.Put("jobs", clitest.LeaderRecord("web-1", nil))
	for _, c := range []struct {
		command []string
		says    string
	}{
		{[]string{"ls"}, "no TTL"},
		{[]string{"info", "jobs"}, "Expires: never: the bucket has no TTL"},
		{[]string{"check", "jobs"}, "critical  no-ttl: "},
		{[]string{"check", "jobs", "--format", "nagios"}, "the bucket has no TTL"},
		{[]string{"evict", "jobs"}, "and the bucket has no TTL.\nIt loses its term when it is notified, or at its next renewal. Nobody is elected then before 'election-cli bucket edit' has given"},
	} {
		_, stdout, stderr := f.run(c.command...)
		f.Expect(stdout+stderr).To(And(ContainSubstring(c.says), Not(MatchRegexp(`lease-over|over for|ended \S+ ago|ends in|about to be removed`))), "%q", c.command)
	}
	_, _, stderr := f.run("resign", "jobs", "--force")
	f.Expect(stderr).To(MatchRegexp(`"web-1" does not answer, and the bucket has no TTL, without which nobody takes over\n\s+Fix: run 'election-cli bucket edit', and try again\n`))
}

func TestEvictOfAVacantElectionExits1AndDoesNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t, clitest.LongTTL)
	f.Put("gone", clitest.LeaderRecord("web-1", clitest.Record{"released": time.Now()}))
	for _, key := range []string{"never", "gone"} {
		code, stdout, stderr := f.run("evict", key, "--force", "--json")
		f.Expect([]any{code, stdout}).To(Equal([]any{cli.ExitNegative, ""}))
		f.Expect(stderr).To(And(ContainSubstring(`nobody leads "`+key+`"`), HaveSuffix("; 'election-cli check "+key+"' says why; nothing was done\n")))
	}
	f.Expect(f.HasRecord("gone")).To(BeTrue(), "evict must not delete a release, because a release spares the successor its stand-down")
}

func TestEvictWithARevisionEvictsOnlyThatRevision(t *testing.T) {
	t.Parallel()
	f := newFixture(t, clitest.LongTTL)
	f.Put("jobs", clitest.LeaderRecord("web-1", nil))
	f.Put("jobs", clitest.LeaderRecord("web-1", nil))
	code, _, stderr := f.run("evict", "jobs", "--force", "--revision", "1")
	f.Expect(code).To(Equal(cli.ExitNegative))
	f.Expect(stderr).To(ContainSubstring("has revision 2 and not 1; nothing was done"))
	f.Expect(f.HasRecord("jobs")).To(BeTrue())
	f.ok("evict", "jobs", "--force", "--revision", "2")
	f.Expect(f.HasRecord("jobs")).To(BeFalse())
}

// racingBucket is a bucket that calls a function before each of the first deletions.
type racingBucket struct {
	jetstream.KeyValue
	before func()
	times  int
}

// Delete calls the function, and deletes the key.
func (b *racingBucket) Delete(ctx context.Context, key string, opts ...jetstream.KVDeleteOpt) error {
	if b.times > 0 {
		b.times--
		b.before()
	}
	return b.KeyValue.Delete(ctx, key, opts...)
}

// beginEviction returns an eviction of the leader of jobs after the leader was shown. The bucket calls a function before each of
// the first deletions.
func (f *fixture) beginEviction(times int, before func()) (v *look.View, shown *look.Holder) {
	f.T.Helper()
	v, err := look.New(f.T.Context(), f.Client, f.Bucket)
	f.Expect(err).NotTo(HaveOccurred())
	shown, err = v.Leader(f.T.Context(), "jobs")
	f.Expect(err).NotTo(HaveOccurred())
	v.Bucket = &election.Bucket{KeyValue: &racingBucket{f.Bucket, before, times}}
	return v, shown
}

func TestALeaderThatRenewsAfterTheQuestionIsEvicted(t *testing.T) {
	t.Parallel()
	f := newFixture(t, clitest.LongTTL)
	renew := func() { f.Put("jobs", clitest.LeaderRecord("web-1", nil)) }
	renew()
	v, shown := f.beginEviction(2, renew)
	renew() // while the command waits for the answer
	evicted, err := v.Evict(t.Context(), shown, 0)
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(evicted.Revision).To(Equal(uint64(4)), "the revision that was deleted, after three renewals")
	f.Expect(f.HasRecord("jobs")).To(BeFalse())
}

func TestALeaderElectWhoseLeadershipBeginsToCountIsEvicted(t *testing.T) {
	t.Parallel()
	f := newFixture(t, clitest.LongTTL)
	f.Put("jobs", clitest.LeaderRecord("web-1", clitest.Record{"term": 0}))
	v, shown := f.beginEviction(0, nil)
	f.Put("jobs", clitest.LeaderRecord("web-1", nil))
	_, err := v.Evict(t.Context(), shown, 0)
	f.Expect(err).NotTo(HaveOccurred())
}

func TestOnlyTheShownLeaderIsEvicted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		record any
		text   string
	}{
		"another candidate leads":  {clitest.LeaderRecord("web-2", nil), "it is \"web-2\" now; nothing was done"},
		"it leads in another term": {clitest.LeaderRecord("web-1", clitest.Record{"since": time.Now()}), "it is \"web-1\" now; nothing was done"},
		"it restarted on the host": {clitest.LeaderRecord("web-1", clitest.Record{"instance": "i-2"}), "it is \"web-1\" now; nothing was done"},
		"it has released":          {clitest.LeaderRecord("web-1", clitest.Record{"released": time.Now()}), "nobody leads; nothing was done"},
	} {
		for when, times := range map[string]int{"before the answer": 0, "before the deletion": 1} {
			t.Run(name+" "+when, func(t *testing.T) {
				t.Parallel()
				f := newFixture(t, clitest.LongTTL)
				f.Put("jobs", clitest.LeaderRecord("web-1", nil))
				change := func() { f.Put("jobs", c.record) }
				v, shown := f.beginEviction(times, change)
				if times == 0 {
					change()
				}
				_, err := v.Evict(t.Context(), shown, 0)
				f.Expect(err).To(And(BeAssignableToTypeOf(&cli.ExitError{}), MatchError(ContainSubstring(c.text))))
				f.Expect(f.HasRecord("jobs")).To(BeTrue())
			})
		}
	}
}

func TestEvictGivesUpOnALeaderThatRenewsBeforeEachDeletion(t *testing.T) {
	t.Parallel()
	f := newFixture(t, clitest.LongTTL)
	renew := func() { f.Put("jobs", clitest.LeaderRecord("web-1", nil)) }
	renew()
	v, shown := f.beginEviction(1000, renew)
	_, err := v.Evict(t.Context(), shown, 0)
	f.Expect(err).To(MatchError(ContainSubstring("renewed too often")))
	f.Expect(f.HasRecord("jobs")).To(BeTrue())

	_, err = v.Evict(t.Context(), shown, 6)
	f.Expect(err).To(MatchError(ContainSubstring("no longer has revision 6")))
	f.Expect(f.HasRecord("jobs")).To(BeTrue())
}

func TestAnEvictedLeaderLosesItsTerm(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 15*time.Second)
	lost := make(chan struct{}, 1)
	clitest.Lead(t, f.Bucket, "web-1", "jobs", election.WithCampaignInterval(time.Second), election.OnLost(func() { lost <- struct{}{} }))
	stdout := f.ok("evict", "jobs", "--force")
	f.Expect(stdout).To(HavePrefix(`Evicted "web-1" from "jobs"`))
	f.Eventually(lost).Should(Receive())
}
