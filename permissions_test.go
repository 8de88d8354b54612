package election_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/natstest"
)

// leastPermissions is a server on which "least" has what Choria grants to a candidate, and a connection without a user name everything.
const leastPermissions = `authorization: { users: [
	{user: admin, password: x},
	{user: least, password: x, permissions: {publish: ["$JS.API.STREAM.INFO.KV_ELECTIONS", "$KV.ELECTIONS.scheduler"], subscribe: ["_INBOX.>"]}}
] }, no_auth_user: admin`

// violations are those that the server reported to a connection.
type violations struct {
	mu   sync.Mutex
	each []string
}

func (v *violations) handler(_ *nats.Conn, _ *nats.Subscription, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.each = append(v.each, err.Error())
}

// of returns how many are about a subject that has part in it.
func (v *violations) of(part string) (n int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, each := range v.each {
		if strings.Contains(each, part) {
			n++
		}
	}
	return n
}

// restricted returns a candidate with the permissions of a user, and the violations that are reported to its connection.
func (f *fleet) restricted(user, name string, withJetStream bool, opts ...election.Option) (*candidate, *violations) {
	f.Helper()
	v, l := &violations{}, f.server.Link(f.T)
	js, err := jetstream.New(natstest.Connect(f.T, l, nats.UserInfo(user, "x"), nats.ErrorHandler(v.handler)))
	f.Expect(err).NotTo(HaveOccurred())
	bucket, err := js.KeyValue(context.Background(), natstest.BucketName)
	f.Expect(err).NotTo(HaveOccurred())
	if withJetStream {
		opts = append(opts, election.WithJetStream(js))
	}
	return f.candidateOn(name, l, bucket, opts...), v
}

func TestCandidateWithChoriasPermissionsAsksOnceWhetherItMayRead(t *testing.T) {
	for withJetStream, most := range map[bool]int{true: 2, false: 3} {
		t.Run(fmt.Sprintf("WithJetStream %v", withJetStream), func(t *testing.T) {
			onGuardedServer(t, leastPermissions, func(f *fleet) {
				a, _ := f.restricted("least", "a", withJetStream)
				a.start()
				var campaigns atomic.Int64
				b, v := f.restricted("least", "b", withJetStream, election.OnCampaign(func(election.State) { campaigns.Add(1) }))
				after(instant)
				b.start()
				after(2 * interval)
				f.Expect(a.IsLeader()).To(BeTrue())
				for campaigns.Load() < 10 {
					after(interval)
				}
				f.Expect(campaigns.Load()).To(BeEquivalentTo(10))
				f.Expect(a.IsLeader()).To(BeTrue())
				f.Expect(v.of("GET")).To(And(BeNumerically(">", 0), BeNumerically("<=", most)), strings.Join(v.each, "\n"))
			})
		})
	}
}

// permit changes the permissions of the users while the server runs.
func (f *fleet) permit(config string) {
	f.Helper()
	f.server.Reload(f.T, func(o *server.Options) {
		o.Users = nil
		f.Expect(o.ProcessConfigString(config)).To(Succeed())
	})
}

func TestStatusNamesNoSourceThatTheServerRefused(t *testing.T) {
	const all = `authorization: { users: [ {user: admin, password: x}, {user: least, password: x} ] }, no_auth_user: admin`
	for name, before := range map[string]string{"ever": leastPermissions, "when the connection was down": all} {
		t.Run(name, func(t *testing.T) {
			onGuardedServer(t, before, func(f *fleet) {
				a, v := f.restricted("least", "a", true)
				const trip = 10 * time.Millisecond
				a.link.DelayReplies(trip)
				a.start()
				const subscription = `Subscription to "election.`
				refusedFor := func(d time.Duration) {
					f.Helper()
					known := v.of(subscription)
					var refused time.Time
					for end := time.Now().Add(d); time.Now().Before(end); after(time.Millisecond) {
						if refused.IsZero() && v.of(subscription) > known {
							refused = time.Now()
						}
						if !refused.IsZero() && a.Status().WakeUp == "republish" {
							f.Expect(time.Since(refused)).To(BeNumerically("<=", 10*trip), "it takes a few round trips to find out")
						}
					}
					f.Expect(refused).NotTo(BeZero())
				}
				if before == all {
					after(2 * ttl)
					f.Expect(a.Status().WakeUp).To(Equal("republish"))
				} else {
					refusedFor(2 * ttl)
				}
				for range 20 {
					a.link.Cut()
					f.permit(leastPermissions)
					after(time.Second)
					a.link.Heal()
					refusedFor(2 * time.Second)
					f.permit(before)
					after(4 * ttl)
				}
			})
		})
	}
}

func TestCandidatesThatMayNotReadTakeOverWithinWhatCheckPromises(t *testing.T) {
	const short = 2 * time.Second
	for _, c := range []struct{ withJetStream, mixed bool }{{true, false}, {false, false}, {true, true}, {false, true}} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			onGuardedServer(t, leastPermissions, func(f *fleet) {
				ctx := context.Background()
				admin, err := jetstream.New(f.server.Connect(f.T))
				f.Expect(err).NotTo(HaveOccurred())
				f.Expect(admin.DeleteKeyValue(ctx, natstest.BucketName)).To(Succeed())
				f.bucket, err = election.CreateBucket(ctx, admin, election.BucketConfig{Name: natstest.BucketName, TTL: short, Storage: jetstream.MemoryStorage, Mixed: c.mixed})
				f.Expect(err).NotTo(HaveOccurred())

				least, err := jetstream.New(f.server.Connect(f.T, nats.UserInfo("least", "x")))
				f.Expect(err).NotTo(HaveOccurred())
				bucket, err := least.KeyValue(ctx, natstest.BucketName)
				f.Expect(err).NotTo(HaveOccurred())
				var opts []election.Option
				if c.withJetStream {
					opts = append(opts, election.WithJetStream(least))
				}
				findings, err := election.Check(ctx, bucket, opts...)
				f.Expect(err).NotTo(HaveOccurred())
				worst := func(code string) time.Duration {
					for _, finding := range findings {
						if finding.Code == code {
							text := regexp.MustCompile(`in the median and (\S+) at worst`).FindStringSubmatch(finding.Message)
							f.Expect(text).To(HaveLen(2))
							d, err := time.ParseDuration(text[1])
							f.Expect(err).NotTo(HaveOccurred())
							return d
						}
					}
					f.Fatal(code)
					return 0
				}
				release, crash := worst("expect-release"), worst("expect-crash")

				led := func(c *candidate) (wait time.Duration) {
					for began := time.Now(); !c.IsLeader(); after(5 * time.Millisecond) {
						f.Expect(time.Since(began)).To(BeNumerically("<", time.Minute))
						wait = time.Since(began)
					}
					return wait
				}
				longest := map[string]time.Duration{}
				leader, _ := f.restricted("least", "0", c.withJetStream)
				led(leader.start())
				for i := range 20 {
					next, _ := f.restricted("least", fmt.Sprint(i+1), c.withJetStream)
					next.start()
					after(rand.N(10 * short))
					f.Expect(leader.IsLeader()).To(BeTrue())
					what := "stop"
					if i%2 == 0 {
						leader.Stop()
					} else {
						what = "crash"
						leader.link.Cut()
					}
					longest[what] = max(longest[what], led(next))
					leader.link.Cut()
					leader = next
				}
				f.Logf("longest %v; promised %v and %v", longest, release, crash)
				f.Expect(longest["stop"]).To(BeNumerically("<=", release))
				f.Expect(longest["crash"]).To(BeNumerically("<=", crash))
			})
		})
	}
}
