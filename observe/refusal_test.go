package observe_test

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/drill/faultproxy"
	"github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/natstest"
	"github.com/natscampaign/election/observe"
)

func TestWhatTheServerRefusesIsAnErrorAtOnce(t *testing.T) {
	const atOnce = 50 * time.Millisecond
	fleettest.RunGuarded(t, `authorization: { users: [
		{user: all, password: x},
		{user: info, password: x, permissions: {publish: ["$JS.API.STREAM.INFO.KV_ELECTIONS"], subscribe: ["_INBOX.>"]}},
		{user: nodelete, password: x, permissions: {
			publish: ["$JS.API.STREAM.INFO.KV_ELECTIONS", "$JS.API.CONSUMER.CREATE.KV_ELECTIONS.>"], subscribe: ["_INBOX.>"]
		}}
	] }, no_auth_user: all`, func(f *fleet) {
		f.Write("web-1")
		as := func(user string) *observe.Observer {
			o, err := observe.New(f.Open(f.Server.Connect(f.T, nats.UserInfo(user, "x"))))
			f.Expect(err).NotTo(HaveOccurred())
			return o
		}
		began := time.Now()
		_, err := as("info").Leader(context.Background(), key)
		f.Expect(err).To(MatchError(nats.ErrPermissionViolation))
		_, err = as("info").Leaders(context.Background())
		f.Expect(err).To(MatchError(nats.ErrPermissionViolation))
		_, err = as("info").Observe(context.Background(), key)
		f.Expect(err).To(MatchError(nats.ErrPermissionViolation))
		f.Expect(time.Since(began)).To(BeNumerically("<", atOnce))

		began = time.Now()
		leaders, err := as("nodelete").Leaders(context.Background())
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(leaders).To(HaveLen(1))
		f.Expect(time.Since(began)).To(BeNumerically("<", atOnce), "the consumer that cannot be deleted is not waited for")
	})
}

func TestARequestWithoutAnAnswerNamesThePermissionThatItNeeds(t *testing.T) {
	fleettest.Run(t, func(f *fleet) {
		l := f.Server.Link(f.T)
		o, err := observe.New(f.Open(natstest.Connect(f.T, l)))
		f.Expect(err).NotTo(HaveOccurred())
		_, err = o.Leader(context.Background(), key)
		f.Expect(err).To(MatchError(election.ErrNoLeader))
		l.LoseRequests(func(faultproxy.Message) bool { return true })
		_, err = o.Leader(context.Background(), key)
		f.Expect(err).To(MatchError(ContainSubstring("no answer within 2s, as when publishing to $JS.API.DIRECT.GET.KV_ELECTIONS.$KV.ELECTIONS.scheduler is not permitted")))
		f.Expect(err).To(MatchError(context.DeadlineExceeded))
	})
}
