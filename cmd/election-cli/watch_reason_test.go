package main

import (
	"context"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/drill/faultproxy"
	"github.com/natscampaign/election/internal/test/clitest"
	"github.com/natscampaign/election/observe"
)

func TestWatchGivesTheReasonOfAChangeAndTheOperatorOfAnEviction(t *testing.T) {
	t.Parallel()
	f := newFixture(t, clitest.LongTTL)
	link := faultproxy.New(nil) // of web-2
	defer link.Close()
	var leader *election.Election
	leader, err := election.NewElection("web-1", "jobs", f.Bucket, election.WithSplay(0), election.WithStandDown(0), election.OnLost(func() {
		leader.Pause()      // else it may win again
		link.StallReplies() // so that the release is stored until it was seen
	}))
	f.Expect(err).NotTo(HaveOccurred())
	go func() { _ = leader.Start(context.Background()) }()
	defer clitest.Shutdown(t, leader)
	f.Eventually(leader.IsLeader).WithTimeout(clitest.Timeout).Should(BeTrue())
	w := startWatch(t, f.Server.URL(), "jobs")
	w.next(observe.Leading, "web-1")
	nc, err := nats.Connect(f.Server.URL(), nats.SetCustomDialer(link))
	f.Expect(err).NotTo(HaveOccurred())
	defer nc.Close()
	js, err := jetstream.New(nc)
	f.Expect(err).NotTo(HaveOccurred())
	bucket, err := election.OpenBucket(t.Context(), js, f.Bucket.Bucket())
	f.Expect(err).NotTo(HaveOccurred())
	e, err := election.NewElection("web-2", "jobs", bucket, election.WithSplay(0), election.WithStandDown(0))
	f.Expect(err).NotTo(HaveOccurred())
	go func() { _ = e.Start(context.Background()) }()
	defer clitest.Shutdown(t, e)
	f.Eventually(func() string { _, _, stderr := f.run("transfer", "jobs", "--to", "web-2"); return stderr }).WithTimeout(clitest.Timeout).ShouldNot(ContainSubstring("no candidate"))
	f.Expect(w.next(observe.Released, "web-1").Reason).To(Equal(election.ReasonTransferred))
	link.Heal()
	f.Expect(w.next(observe.Elected, "web-2").Reason).To(Equal(election.ReasonReleased))
	w.next(observe.Leading, "web-2")
	f.Expect(e.Resign(t.Context())).To(Succeed())
	f.Expect(w.next(observe.Released, "web-2").Reason).To(Equal(election.ReasonResigned))

	f.Put("other", clitest.LeaderRecord("db-1", nil))
	w = startWatch(t, f.Server.URL(), "other")
	w.next(observe.Leading, "db-1")
	f.Put("other", clitest.LeaderRecord("db-2", nil))
	overwritten := w.next(observe.Evicted, "db-1")
	f.Expect([]any{overwritten.Reason, overwritten.By}).To(Equal([]any{election.ReasonOverwritten, "db-2"}))
	w.next(observe.Elected, "db-2")
	w.next(observe.Leading, "db-2")
	code, _, stderr := f.run("evict", "other", "--force")
	f.Expect(code).To(Equal(cli.ExitOK), stderr)
	evicted := w.next(observe.Evicted, "db-2")
	f.Expect(evicted.Reason).To(Equal(election.ReasonDeleted))
	f.Expect(evicted.By).To(MatchRegexp(`^\S+@\S+$`))
}
