package look

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/admin"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/natstest"
)

// viewOf returns a view of the fleet's bucket over a connection of its own.
func viewOf(f *fleettest.Fleet) *View {
	f.Helper()
	bucket := f.Open(f.Server.Connect(f.T))
	info, err := kv.With(bucket, nil).Load(context.Background())
	f.Expect(err).NotTo(HaveOccurred())
	a, err := admin.New(bucket, election.WithLogger(slog.New(slog.DiscardHandler)))
	f.Expect(err).NotTo(HaveOccurred())
	return &View{Bucket: bucket, Admin: a, info: info}
}

func TestAStandbyThatIsFarAwayIsFoundBeforeALeaderCountsAsAlone(t *testing.T) {
	fleettest.Run(t, func(f *fleettest.Fleet) {
		leader := f.Connected("a").Begin()
		fleettest.After(fleettest.Interval)
		b := f.Connected("b").Begin()
		fleettest.After(fleettest.Interval)
		b.Link.DelayReplies(300 * time.Millisecond) // it receives a request after the pause that ends Ask
		v := viewOf(f)
		holders := []Holder{{Leader: election.Leader{Key: fleettest.Key, Name: "a", Instance: leader.Status().Instance}}}
		v.CountStandbys(context.Background(), holders)
		f.Expect(holders[0].Standbys).To(HaveValue(Equal(0)), "its answer is late")
		v.ConfirmAlone(context.Background(), holders)
		f.Expect(holders[0].describeStandbys()).To(Equal("1: b"))
		b.Pause()
		holders[0].Standbys = new(0)
		v.ConfirmAlone(context.Background(), holders)
		f.Expect(holders[0].Standbys).To(HaveValue(Equal(0)))
	}, fleettest.Republished)
}

func TestNobodyKnowsOfStandbysWhereTheHolderDoesNotAnswer(t *testing.T) {
	g := NewWithT(t)
	yes, no := new(true), new(false)
	h := &Holder{Leader: election.Leader{Instance: "h"}}
	for _, c := range []struct {
		what    string
		answers []admin.Candidate
		names   []string
		known   bool
	}{
		{"nobody answers", nil, nil, false},
		{"a candidate that is held back answers", []admin.Candidate{{Name: "b", Instance: "b", Standby: no}}, nil, false},
		{"a standby answers", []admin.Candidate{{Name: "c", Instance: "c", Standby: yes}, {Name: "b", Instance: "b", Standby: yes}}, []string{"b", "c"}, true},
		{"the holder answers", []admin.Candidate{{Name: "a", Instance: "h", Standby: no}}, nil, true},
		{"the holder of a lock answers, and another waits", []admin.Candidate{{Name: "a", Instance: "h"}, {Name: "b", Instance: "b"}}, nil, false},
	} {
		names, known := Answers{Candidates: c.answers}.Standbys(h)
		g.Expect(names).To(Equal(c.names), c.what)
		g.Expect(known).To(Equal(c.known), c.what)
	}
}

func TestOnlyAFewStandbysAreNamed(t *testing.T) {
	g := NewWithT(t)
	n := 7
	h := Holder{Standbys: &n, standbys: []string{"a", "b", "c", "d", "e", "f", "g"}}
	g.Expect(h.describeStandbys()).To(Equal("7: a, b, c, d, e, and 2 more"))
}

func TestAUserWhoMayNotAskIsRefusedOnce(t *testing.T) {
	const denied = "election-control." + natstest.BucketName + ".candidates.>"
	config := fmt.Sprintf(`authorization: {users: [{user: u, password: u, permissions: {publish: {deny: [%q]}}}]}, no_auth_user: u`, denied)
	fleettest.RunGuarded(t, config, func(f *fleettest.Fleet) {
		f.Connected("a").Begin()
		fleettest.After(fleettest.Interval)
		v := viewOf(f)
		refusals := 0
		v.Bucket.JetStream().Conn().SetErrorHandler(func(*nats.Conn, *nats.Subscription, error) { refusals++ })
		var holders []Holder
		for range 50 {
			holders = append(holders, Holder{Leader: election.Leader{Key: fleettest.Key}})
		}
		f.Expect(v.CountStandbys(context.Background(), holders)).To(BeTrue())
		fleettest.After(time.Second)
		f.Expect(refusals).To(BeNumerically("<=", 2), "the request, and the message that finds out why")
		f.Expect(holders[0].Standbys).To(BeNil())
	})
}
