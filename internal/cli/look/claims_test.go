package look

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/admin"
	"github.com/natscampaign/election/internal/control"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/natstest"
)

func TestMain(m *testing.M) { natstest.VerifyTestMain(m) }

// claimant is a process that says that it leads, until it has stood down.
type claimant struct {
	instance string
	created  time.Time
	answers  int // until it stands down; negative for ever
}

func (c *claimant) Describe() control.Candidate {
	state := election.LeaderState
	if c.answers == 0 {
		state = election.CandidateState
	}
	c.answers--
	return control.Candidate{Key: fleettest.Key, Name: "web-1", Instance: c.instance, Host: "h", PID: 7, State: state.String(), Version: "1"}
}
func (c *claimant) BucketCreated() time.Time             { return c.created }
func (*claimant) HoldsKey() bool                         { return true }
func (*claimant) Resign(context.Context) error           { return nil }
func (*claimant) Transfer(context.Context, string) error { return nil }
func (*claimant) Refresh(context.Context) bool           { return true }
func (*claimant) ExpectRelease(time.Duration)            {}
func (*claimant) HandoverTimeout() time.Duration         { return time.Second }

// claiming has each claimant answer from a process of its own, and returns the candidates that dispute the election.
func claiming(f *fleettest.Fleet, claimants ...*claimant) []admin.Candidate {
	f.Helper()
	bucket := f.Open(f.Server.Connect(f.T))
	info, err := kv.With(bucket, nil).Load(context.Background())
	f.Expect(err).NotTo(HaveOccurred())
	for _, c := range claimants {
		c.created = info.Created
		defer control.Join(kv.With(f.Open(f.Server.Connect(f.T)), nil), fleettest.Key, c, slog.New(slog.DiscardHandler)).Leave()
	}
	synctest.Wait() // until the server knows that they listen
	a, err := admin.New(bucket)
	f.Expect(err).NotTo(HaveOccurred())
	v := &View{Admin: a}
	return v.Disputed(context.Background(), v.Ask(context.Background(), []string{fleettest.Key}))[fleettest.Key]
}

func TestTwoProcessesWithOneInstanceThatLeadAreTwoClaims(t *testing.T) {
	fleettest.Run(t, func(f *fleettest.Fleet) {
		claims := claiming(f, &claimant{instance: "i", answers: -1}, &claimant{instance: "i", answers: -1})
		f.Expect(claims).To(HaveLen(2))
		f.Expect(claims[0].Instance).To(Equal(claims[1].Instance))
		f.Expect(claims[0].Connection).To(MatchRegexp(`^\d+@\S+$`))
		f.Expect(claims[0].Connection).NotTo(Equal(claims[1].Connection))
		f.Expect(Copied(claims)).To(BeTrue())
	}, fleettest.Republished)
}

func TestTwoInstancesThatLeadAreTwoClaimsAndNoCopies(t *testing.T) {
	fleettest.Run(t, func(f *fleettest.Fleet) {
		claims := claiming(f, &claimant{instance: "i", answers: -1}, &claimant{instance: "j", answers: -1})
		f.Expect(claims).To(HaveLen(2))
		f.Expect(Copied(claims)).To(BeFalse())
	}, fleettest.Republished)
}

func TestAClaimCountsOnlyIfItIsMadeTwice(t *testing.T) {
	fleettest.Run(t, func(f *fleettest.Fleet) {
		f.Expect(claiming(f, &claimant{instance: "i", answers: -1}, &claimant{instance: "i", answers: 1})).To(BeEmpty(), "a copy that has stood down meanwhile")
		f.Expect(claiming(f, &claimant{instance: "i", answers: -1}, &claimant{instance: "j", answers: 1})).To(BeEmpty(), "a handover")
		f.Expect(claiming(f, &claimant{instance: "i", answers: -1})).To(BeEmpty())
	}, fleettest.Republished)
}

func TestAProcessThatAnswersTwiceIsOneCandidate(t *testing.T) {
	fleettest.Run(t, func(f *fleettest.Fleet) {
		nc, subject := f.Server.Connect(f.T), control.Subject(natstest.BucketName, "candidates", fleettest.Key)
		answer := func(connection string) nats.MsgHandler {
			return func(m *nats.Msg) {
				for range 2 {
					f.Expect(m.Respond([]byte(`{"candidates":[{"key":"scheduler","name":"web-1","instance":"i","state":"leader"` + connection + `}]}`))).To(Succeed())
				}
			}
		}
		candidates := func(connections ...string) []admin.Candidate {
			for _, c := range connections {
				sub, err := nc.Subscribe(subject, answer(c))
				f.Expect(err).NotTo(HaveOccurred())
				defer func() { _ = sub.Unsubscribe() }()
			}
			f.Expect(nc.Flush()).To(Succeed())
			a := f.Operator()
			found, err := a.Candidates(context.Background(), fleettest.Key)
			f.Expect(err).NotTo(HaveOccurred())
			return found
		}
		f.Expect(candidates(`,"connection":"1@n","server_id":"N"`)).To(HaveLen(1))
		f.Expect(candidates(``)).To(HaveLen(1), "also where it does not name its connection")
		f.Expect(candidates(`,"connection":"1@n","server_id":"N"`, `,"connection":"2@n","server_id":"N"`)).To(HaveLen(2))
		f.Expect(candidates(`,"connection":"1@n","server_id":"N"`, `,"connection":"1@n","server_id":"M"`)).To(HaveLen(2), "servers of one name")
	}, fleettest.Republished)
}
