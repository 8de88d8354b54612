package serving

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/drill/faultproxy"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/natstest"
	"github.com/natscampaign/election/observe"
)

// following returns a page that observes the bucket of a fleet over a link.
func following(f *fleettest.Fleet) (*statusPage, *faultproxy.Link) {
	link := f.Server.Link(f.T)
	nc := natstest.Connect(f.T, link)
	js, err := jetstream.New(nc)
	f.Expect(err).NotTo(HaveOccurred())
	p := newBucketPage("", nil, slog.New(slog.DiscardHandler))
	f.Cleanup(p.Stop)
	p.Follow(context.Background(), &cli.Client{Conn: nc, JetStream: js, Timeout: 5 * time.Second}, f.Open(nc), nil)
	return p, link
}

func TestStandbysAreKnownSoonAfterAnOutage(t *testing.T) {
	for _, c := range []struct{ down, later time.Duration }{
		{4 * time.Second, 0}, {9 * time.Second, 0}, {9 * time.Second, 4 * time.Second}, {30 * time.Second, 0}, {30 * time.Second, 6 * time.Second},
	} {
		t.Run(fmt.Sprintf("of %v, and candidates are back %v later", c.down, c.later), func(t *testing.T) {
			fleettest.Run(t, func(f *fleettest.Fleet) {
				a := f.Connected("a").Begin()
				fleettest.After(fleettest.Interval)
				b := f.Connected("b").Begin()
				p, link := following(f)
				leader, unknown := "", time.Duration(0)
				watch := func(d time.Duration, most time.Duration) {
					const step = 200 * time.Millisecond
					for range d / step {
						list, _ := p.list(context.Background(), nil, false)
						if len(list.Rows) == 1 {
							r := list.Rows[0]
							if unknown += step; r.Leader != leader || r.Leader == "" || r.Standbys != "" {
								leader, unknown = r.Leader, 0
							}
							f.Expect(unknown).To(BeNumerically("<=", most), "%s: standbys of %s are not known", r.State, r.Leader)
						}
						time.Sleep(step)
					}
				}
				watch(20*time.Second, time.Second)
				for _, l := range []*faultproxy.Link{a.Link, b.Link, link} {
					l.Disconnect() // as a server does that restarts
					l.Cut()
				}
				watch(c.down, 0)
				link.Heal()
				watch(c.later, 0)
				a.Link.Heal()
				b.Link.Heal()
				watch(time.Minute, 4*time.Second)
				f.Expect(unknown).To(BeZero())
			}, fleettest.Republished)
		})
	}
}

// While nobody reaches the server there is no event, and no connection closes.
func TestTheListSaysThatALeaseIsOverAsSoonAsItIs(t *testing.T) {
	fleettest.Run(t, func(f *fleettest.Fleet) {
		a := f.Connected("a").Begin()
		fleettest.After(2 * fleettest.Interval)
		p, link := following(f)
		feed := newFeed(p, "")
		fleettest.After(time.Second)
		feed.message(f.T)
		const leads, over = `data-key="scheduler"[^>]*>.*<td class="state leads">leader<`, `data-key="scheduler"[^>]*>.*<td class="state vacant">lease over<`
		list := func() string { return newFeed(p, "").message(f.T) } // does not wait for the server
		shows := func(row, headline string, leaders float64) {
			f.Helper()
			f.Expect(list()).To(And(MatchRegexp(row), ContainSubstring(headline)))
			f.Expect(observedValue(f, p, "election_observed_leaders")).To(Equal(leaders))
			f.Expect(observedValue(f, p, "election_observed_leader")).To(Equal(leaders))
		}
		shows(leads, "1 election, and it has a leader", 1)
		fleettest.After(3 * time.Second)
		feed.message(f.T) // has the standbys
		link.Cut()
		a.Link.Cut()
		expires := p.elections.byKey["scheduler"].holder.Expires
		fleettest.After(time.Until(expires) - time.Millisecond)
		shows(leads, "1 election, and it has a leader", 1)
		f.Expect(feed.message(f.T)).To(Equal(":\n\n"))
		fleettest.After(time.Millisecond)
		shows(over, "1 election, and it has no leader", 0)
		f.Expect(list()).To(And(ContainSubstring("1 whose lease is over"), MatchRegexp("<code>election-cli check scheduler --bucket ELECTIONS</code>"), Not(ContainSubstring("without a leader"))))
		one, _ := p.data(context.Background(), "scheduler", false)
		f.Expect([]string{one.Headline, one.HeadlineClass, one.Why, one.Fix}).To(Equal([]string{"a has not renewed in time", "vacant", "Its lease is over.", fixLeaseOver}))
		f.Expect(one.Facts).To(ContainElement(fact{"Lease left", "over for 2s", ""}), "after the wait for the candidates")
		f.Expect(feed.message(f.T)).To(And(MatchRegexp(over)), "the election is sent again, although nothing has come")
		fleettest.After(time.Minute)
		shows(over, "1 election, and it has no leader", 0)

		a.Link.Heal()
		link.Heal()
		fleettest.After(2 * fleettest.TTL)
		shows(leads, "1 election, and it has a leader", 1)
		f.Expect(feed.message(f.T)).To(And(MatchRegexp(leads)))
	}, fleettest.Republished)
}

// observedValue returns the value of a metric with one series.
func observedValue(f *fleettest.Fleet, p *statusPage, name string) float64 {
	f.Helper()
	r := prometheus.NewPedanticRegistry()
	f.Expect(r.Register(p.Metrics())).To(Succeed())
	families, err := r.Gather()
	f.Expect(err).NotTo(HaveOccurred())
	for _, family := range families {
		if family.GetName() == name {
			f.Expect(family.GetMetric()).To(HaveLen(1))
			return family.GetMetric()[0].GetGauge().GetValue()
		}
	}
	return math.NaN()
}

func TestMetricsOfAnObserverFollowPausesAndTheTTLThoughNobodyReadsThePage(t *testing.T) {
	fleettest.Run(t, func(f *fleettest.Fleet) {
		f.Connected("a").Begin()
		fleettest.After(2 * fleettest.Interval)
		p, _ := following(f)
		scrape := func(name string, d time.Duration, want float64) {
			f.Helper()
			for range d / time.Second {
				fleettest.After(time.Second)
				f.Expect(observedValue(f, p, name)).To(Equal(want))
			}
		}
		scrape("election_observed_leaders", 3*fleettest.TTL, 1)
		js := f.JetStream()
		_, err := election.CreateBucket(context.Background(), js, election.BucketConfig{Name: f.Bucket.Bucket(), TTL: 6 * fleettest.TTL, Storage: jetstream.MemoryStorage})
		f.Expect(err).NotTo(HaveOccurred())
		scrape("election_observed_leaders", 18*fleettest.TTL, 1)

		operator := f.Operator()
		f.Expect(operator.Pause(context.Background(), fleettest.Key)).To(Succeed())
		fleettest.After(queryInterval)
		observedValue(f, p, "election_observed_paused") // has the pauses read
		scrape("election_observed_paused", 10*time.Second, 1)
	}, fleettest.Republished)
}

func TestThePageSaysThatItDoesNotObserveTheElections(t *testing.T) {
	for name, cut := range map[string]func(f *fleettest.Fleet, link *faultproxy.Link){
		"its link is cut": func(_ *fleettest.Fleet, link *faultproxy.Link) { link.Disconnect(); link.Cut() },
		"the bucket is removed": func(f *fleettest.Fleet, _ *faultproxy.Link) {
			f.Expect(f.JetStream().DeleteKeyValue(f.T.Context(), natstest.BucketName)).To(Succeed())
		},
	} {
		t.Run(name, func(t *testing.T) {
			fleettest.Run(t, func(f *fleettest.Fleet) {
				f.Connected("a").Begin()
				fleettest.After(2 * fleettest.Interval)
				p, link := following(f)
				healthy := func() int { return request(p, http.MethodGet, "/healthz").Code }
				fleettest.After(time.Second)
				f.Expect(observedValue(f, p, "election_observed_up")).To(Equal(1.0))
				f.Expect(healthy()).To(Equal(http.StatusOK))
				cut(f, link)
				fleettest.After(2 * fleettest.TTL)
				f.Expect(observedValue(f, p, "election_observed_up")).To(BeZero())
				f.Expect(healthy()).To(Equal(http.StatusServiceUnavailable))
			}, fleettest.Republished)
		})
	}
}

func TestThePageFollowsTheClockOfTheServer(t *testing.T) {
	g := NewWithT(t)
	p := bucketPage(eventOf(observe.Leading, "web-1", 0))
	now := time.Now()
	p.elections.setInfo(kv.Info{Stream: &jetstream.StreamInfo{TimeStamp: now.Add(10 * time.Minute)}, Read: now})
	g.Expect(p.elections.clock.Now()).To(BeTemporally(">=", now.Add(10*time.Minute)))
}
