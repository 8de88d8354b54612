package election_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
)

// What the handler goes by: how long the loop may be busy, and how late it may be.
const (
	busy     = 8 * time.Second
	patience = 8 * time.Second
)

// ask sends a handler one request.
func ask(h http.Handler, method, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, path, nil))
	return w
}

// health is what /healthz says.
type health struct {
	Healthy bool           `json:"healthy"`
	Why     string         `json:"why"`
	Name    string         `json:"name"`
	Key     string         `json:"key"`
	State   election.State `json:"state"`
	Doing   string         `json:"doing"`
}

// health asks /healthz, and sees to it that the code and the body agree.
func (c *candidate) health() health {
	c.fleet.Helper()
	w := ask(c.Handler(), http.MethodGet, "/healthz")
	var h health
	c.fleet.Expect(json.Unmarshal(w.Body.Bytes(), &h)).To(Succeed())
	c.fleet.Expect(w.Code == http.StatusOK).To(Equal(h.Healthy), w.Body.String())
	c.fleet.Expect(h.Healthy).To(Equal(h.Why == ""), w.Body.String())
	return h
}

// staysHealthy asks again and again, for some time.
func (c *candidate) staysHealthy(d, every time.Duration) {
	c.fleet.Helper()
	for range d / every {
		after(every)
		c.fleet.Expect(c.health().Why).To(BeEmpty())
	}
}

// leads asks /leader.
func (c *candidate) leads() int { return ask(c.Handler(), http.MethodGet, "/leader").Code }

func TestLeaderPathIsFoundExactlyWhileItLeads(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.candidate("a")
		f.Expect(a.leads()).To(Equal(http.StatusServiceUnavailable), "before Start")
		f.Expect(a.health().Healthy).To(BeTrue(), "before Start")
		a.start()
		f.Expect(a.leads()).To(Equal(http.StatusServiceUnavailable), "leader-elect")
		after(interval)
		f.Expect(a.leads()).To(Equal(http.StatusOK))
		b := f.candidate("b").start()
		after(time.Second)
		f.Expect(b.leads()).To(Equal(http.StatusServiceUnavailable), "standby")
		f.Expect(b.health().Healthy).To(BeTrue(), "standby")

		w := ask(a.Handler(), http.MethodGet, "/leader")
		var s election.Status
		f.Expect(json.Unmarshal(w.Body.Bytes(), &s)).To(Succeed())
		f.Expect(s.Name).To(Equal("a"))
		f.Expect(s.IsLeader).To(BeTrue())
		f.Expect(s.LeaseRemaining).To(Equal(lease - time.Second))
		f.Expect(w.Header().Get("Content-Type")).To(Equal("application/json"))

		a.link.Cut()
		after(lease - time.Second - instant)
		f.Expect(a.leads()).To(Equal(http.StatusOK))
		after(instant)
		f.Expect(a.leads()).To(Equal(http.StatusServiceUnavailable))
		a.Stop()
		f.Expect(a.leads()).To(Equal(http.StatusServiceUnavailable), "after Stop")
		f.Expect(a.health()).To(Equal(health{Healthy: true, Name: "a", Key: key, State: election.UnknownState}))
	})
}

func TestHandlerOffersTwoPathsToReadBelowAnyPrefix(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.leading("a")
		for prefix, h := range map[string]http.Handler{
			"": a.Handler(), "/election": http.StripPrefix("/election", a.Handler()), "/elections/": http.StripPrefix("/elections/", a.Handler()),
		} {
			base := prefix
			if base == "/elections/" {
				base = "/elections"
			}
			for _, path := range []string{"/leader", "/healthz"} {
				get, head := ask(h, http.MethodGet, base+path), ask(h, http.MethodHead, base+path)
				f.Expect(get.Code).To(Equal(http.StatusOK), base+path)
				f.Expect(head.Code).To(Equal(http.StatusOK))
				f.Expect(head.Body.Len()).To(BeZero())
				f.Expect(head.Header()).To(Equal(get.Header()), "but for the body HEAD is GET")
				f.Expect(get.Header().Get("Cache-Control")).To(Equal("no-store"))
				for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch, http.MethodOptions, "RESIGN"} {
					w := ask(h, method, base+path)
					f.Expect(w.Code).To(Equal(http.StatusMethodNotAllowed), method)
					f.Expect(w.Header().Get("Allow")).To(Equal("GET, HEAD"))
					f.Expect(w.Header().Get("Cache-Control")).To(Equal("no-store"))
				}
			}
			for _, path := range []string{"/", "/leader/", "/Leader", "/healthz/x", "/metrics", "/leader%2f"} {
				f.Expect(ask(h, http.MethodGet, base+path).Code).To(Equal(http.StatusNotFound), base+path)
			}
		}
	})
}

func TestStandbyIsHealthyHoweverLongItSleeps(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		f.hearing("a").start()
		b := f.hearing("b").start()
		b.staysHealthy(200*ttl, ttl/3)
		f.Expect(b.health().Doing).To(Equal("waiting for its next campaign"))
		b.Pause()
		b.staysHealthy(200*ttl, ttl)
		f.Expect(b.health().Doing).To(Equal("waiting to be let campaign"))
		b.Resume()
		b.staysHealthy(2*ttl, time.Second)
	}, republished)
}

func TestServerThatCannotBeReachedMakesNobodyUnhealthy(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a, b, c := f.leading("a"), f.candidate("b").start(), f.candidate("c")
		for _, c := range []*candidate{a, b, c} {
			c.link.Cut()
		}
		c.start() // and has not even seen the bucket
		for range 300 {
			after(100 * time.Millisecond)
			for _, c := range []*candidate{a, b, c} {
				f.Expect(c.health().Why).To(BeEmpty())
			}
		}
		f.Expect(a.IsLeader()).To(BeFalse())
		c.staysHealthy(20*ttl, time.Second)
	})
}

func TestUnhealthyInOnesOwnEyesIsNoReasonToStartAgain(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		var disk ailing
		disk.ill.Store(true)
		a := f.candidate("a", election.WithHealthCheck(disk.check)).start()
		a.staysHealthy(10*ttl, time.Second)
		f.Expect(a.Status().Unhealthy).To(Equal("disk full"))
	})
}

func TestBackoffThatDoesNotReturnIsUnhealthy(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		f.leading("a")
		asked := make(chan struct{})
		hang, letGo := f.hanging()
		b := f.deafCandidate("b", election.WithBackoff(backoffFunc(func(n int) time.Duration {
			if n == 1 {
				close(asked)
				hang()
			}
			return time.Second
		}))).start()
		<-asked
		after(busy + patience)
		f.Expect(b.health().Healthy).To(BeTrue())
		after(instant)
		f.Expect(b.health()).To(Equal(health{
			Why:  "its loop is stuck asking its Backoff: it should have been done 8s ago",
			Name: "b", Key: key, State: election.CandidateState, Doing: "asking its Backoff",
		}))
		letGo()
		after(instant)
		b.staysHealthy(2*ttl, time.Second)
	})
}

func TestStandbyWhoseRequestNeverEndsIsUnhealthy(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		f.leading("a")
		b, bucket := f.faultyCandidate("b")
		bucket.deaf = true
		hang, letGo := f.hanging()
		bucket.onGet(func(_ context.Context, get func() (jetstream.KeyValueEntry, error)) (jetstream.KeyValueEntry, error) {
			hang() // and not for the end of its context
			return get()
		})
		b.start()
		after(settle)
		b.staysHealthy(busy+patience-time.Second, time.Second)
		after(time.Second + instant)
		f.Expect(b.health().Why).To(HavePrefix("its loop is stuck campaigning"))
		letGo()
		after(instant)
		f.Expect(b.health().Healthy).To(BeTrue())
	})
}

func TestLeaderWhoseRenewalNeverEndsIsUnhealthyOnceItsLeaseIsOver(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a, bucket := f.faultyCandidate("a")
		a.start()
		after(interval)
		f.Expect(a.IsLeader()).To(BeTrue())
		hang, letGo := f.hanging()
		bucket.onUpdate(func(_ context.Context, _ []byte, _ uint64, update func() (uint64, error)) (uint64, error) {
			hang()
			return update()
		})
		after(lease)
		f.Expect(a.IsLeader()).To(BeFalse())
		f.Expect(a.health().Healthy).To(BeTrue(), "it may be about to notice")
		after(2*time.Second + instant)
		f.Expect(a.health()).To(Equal(health{
			Why:  "the lease of term 1 ran out 2s ago, and it still has not stood down",
			Name: "a", Key: key, State: election.CandidateState, Doing: "renewing",
		}))
		f.Expect(a.leads()).To(Equal(http.StatusServiceUnavailable))
		letGo()
		after(instant)
		a.staysHealthy(2*ttl, time.Second)
	})
}

func TestWorkThatOutlivesItsTermForTooLongIsUnhealthy(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		for name, run := range map[string]func(c *candidate, hang func()) error{
			"work": func(c *candidate, hang func()) error {
				return c.Run(context.Background(), func(context.Context, election.Term) error { hang(); return nil })
			},
			"callback": func(c *candidate, _ func()) error { return c.Start(context.Background()) },
		} {
			hang, letGo := f.hanging()
			var opts []election.Option
			if name == "callback" {
				opts = append(opts, election.OnWon(hang))
			}
			a := f.candidate(name, append(opts, election.WithReleaseTimeout(30*time.Second))...)
			go func() { a.result <- run(a, hang) }()
			f.Cleanup(a.Stop)
			after(interval)
			a.staysHealthy(3*ttl, time.Second)
			f.Expect(a.IsLeader()).To(BeTrue(), "for all that work takes")
			f.write("intruder")
			after(interval)
			f.Expect(a.IsLeader()).To(BeFalse())
			a.staysHealthy(30*time.Second, time.Second)
			after(patience)
			f.Expect(a.health().Why).To(HavePrefix("its loop is stuck waiting for callbacks and work to return"), name)
			letGo()
			after(instant)
			f.Expect(a.health().Healthy).To(BeTrue())
			a.Stop()
			f.Expect(<-a.result).To(Succeed())
			after(ttl)
		}
	})
}

func TestLeaderThatStopsIsHealthyWhileItsWorkMayWindUp(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.candidate("a", election.WithReleaseTimeout(time.Minute))
		go func() {
			a.result <- a.Run(context.Background(), func(ctx context.Context, _ election.Term) error {
				<-ctx.Done()
				time.Sleep(50 * time.Second)
				return nil
			})
		}()
		f.Cleanup(a.Stop)
		after(interval)
		go a.Stop()
		a.staysHealthy(49*time.Second, time.Second)
		f.Expect(a.State()).To(Equal(election.CandidateState))
		after(2 * time.Second)
		f.Expect(<-a.result).To(Succeed())
		f.Expect(a.health().Healthy).To(BeTrue())
	})
}
