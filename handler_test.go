package election_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/natscampaign/election/internal/test/natstest"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/test/fleettest"
)

// The limits of the handler: how long the loop may be busy, and how late it may be.
const (
	busyTime = 8 * time.Second
	lateTime = 8 * time.Second
)

// get sends a handler one request.
func get(h http.Handler, method, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, path, nil))
	return w
}

// health is the body of an answer of /healthz.
type health struct {
	Healthy bool           `json:"healthy"`
	Why     string         `json:"why"`
	Name    string         `json:"name"`
	Key     string         `json:"key"`
	State   election.State `json:"state"`
	Doing   string         `json:"doing"`
}

// health requests /healthz, and checks that the code and the body agree.
func (c *candidate) health() health {
	c.fleet.Helper()
	w := get(c.Handler(), http.MethodGet, "/healthz")
	var h health
	c.fleet.Expect(json.Unmarshal(w.Body.Bytes(), &h)).To(Succeed())
	c.fleet.Expect(w.Code == http.StatusOK).To(Equal(h.Healthy), w.Body.String())
	c.fleet.Expect(h.Healthy).To(Equal(h.Why == ""), w.Body.String())
	return h
}

// staysHealthy requests /healthz every so often for some time.
func (c *candidate) staysHealthy(d, every time.Duration) {
	c.fleet.Helper()
	for range d / every {
		after(every)
		c.fleet.Expect(c.health().Why).To(BeEmpty())
	}
}

// leads requests /leader, and returns the code.
func (c *candidate) leads() int { return get(c.Handler(), http.MethodGet, "/leader").Code }

func TestLeaderPathIsOKOnlyWhileItLeads(t *testing.T) {
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

		w := get(a.Handler(), http.MethodGet, "/leader")
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
		a.shutdown()
		f.Expect(a.leads()).To(Equal(http.StatusServiceUnavailable), "after Shutdown")
		f.Expect(a.health()).To(Equal(health{Healthy: true, Name: "a", Key: key, State: election.UnknownState}))
	})
}

func TestHandlerServesTwoReadOnlyPathsBelowAnyPrefix(t *testing.T) {
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
				full, head := get(h, http.MethodGet, base+path), get(h, http.MethodHead, base+path)
				f.Expect(full.Code).To(Equal(http.StatusOK), base+path)
				f.Expect(head.Code).To(Equal(http.StatusOK))
				f.Expect(head.Body.Len()).To(BeZero())
				f.Expect(head.Header()).To(Equal(full.Header()), "HEAD differs from GET by the body alone")
				f.Expect(full.Header().Get("Cache-Control")).To(Equal("no-store"))
				for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch, http.MethodOptions, "RESIGN"} {
					w := get(h, method, base+path)
					f.Expect(w.Code).To(Equal(http.StatusMethodNotAllowed), method)
					f.Expect(w.Header().Get("Allow")).To(Equal("GET, HEAD"))
					f.Expect(w.Header().Get("Cache-Control")).To(Equal("no-store"))
				}
			}
			for _, path := range []string{"/", "/leader/", "/Leader", "/healthz/x", "/metrics", "/leader%2f"} {
				f.Expect(get(h, http.MethodGet, base+path).Code).To(Equal(http.StatusNotFound), base+path)
			}
		}
	})
}

func TestSleepingStandbyIsHealthy(t *testing.T) {
	natstest.SkipIfShort(t)
	onVirtualTime(t, func(f *fleet) {
		f.connected("a").start()
		b := f.connected("b").start()
		b.staysHealthy(200*ttl, ttl/3)
		f.Expect(b.health().Doing).To(Equal("waiting for its next campaign"))
		b.Pause()
		b.staysHealthy(200*ttl, ttl)
		f.Expect(b.health().Doing).To(Equal("waiting until nothing holds it back"))
		b.Resume()
		b.staysHealthy(2*ttl, time.Second)
	}, republished)
}

func TestUnreachableServerMakesNoCandidateUnhealthy(t *testing.T) {
	natstest.SkipIfShort(t)
	onVirtualTime(t, func(f *fleet) {
		a, b, c := f.leading("a"), f.candidate("b").start(), f.candidate("c")
		for _, c := range []*candidate{a, b, c} {
			c.link.Cut()
		}
		c.start() // without having reached the bucket
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

func TestFailedHealthCheckLeavesTheProbeHealthy(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		var d disk
		d.full.Store(true)
		a := f.candidate("a", election.WithHealthCheck(d.check)).start()
		a.staysHealthy(10*ttl, time.Second)
		f.Expect(a.Status().Unhealthy).To(Equal("disk full"))
	})
}

func TestHangingBackoffIsUnhealthy(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		f.leading("a")
		asked := make(chan struct{})
		hang, unblock := f.Hanging()
		b := f.unnotified("b", election.WithBackoff(backoffFunc(func(n int) time.Duration {
			if n == 1 {
				close(asked)
				hang()
			}
			return time.Second
		}))).start()
		<-asked
		after(busyTime + lateTime)
		f.Expect(b.health().Healthy).To(BeTrue())
		after(instant)
		f.Expect(b.health()).To(Equal(health{
			Why:  "its loop is stuck asking its Backoff: it should have been done 8s ago",
			Name: "b", Key: key, State: election.CandidateState, Doing: "asking its Backoff",
		}))
		unblock()
		after(instant)
		b.staysHealthy(2*ttl, time.Second)
	})
}

func TestStandbyWithAHangingRequestIsUnhealthy(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		f.leading("a")
		b, bucket := f.faultyCandidate("b")
		bucket.KeyValue = fleettest.Unwatchable{KeyValue: bucket.KeyValue}
		hang, unblock := f.Hanging()
		bucket.onGet(func(_ context.Context, get func() (jetstream.KeyValueEntry, error)) (jetstream.KeyValueEntry, error) {
			hang() // beyond the end of its context
			return get()
		})
		b.start()
		after(readyTimeout)
		b.staysHealthy(busyTime+lateTime-time.Second, time.Second)
		after(time.Second + instant)
		f.Expect(b.health().Why).To(HavePrefix("its loop is stuck reading the key"))
		unblock()
		after(instant)
		f.Expect(b.health().Healthy).To(BeTrue())
	})
}

func TestLeaderWithAHangingRenewalIsUnhealthyAfterItsLease(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a, bucket := f.faultyCandidate("a")
		a.start()
		after(interval)
		f.Expect(a.IsLeader()).To(BeTrue())
		hang, unblock := f.Hanging()
		bucket.onUpdate(func(_ context.Context, _ []byte, _ uint64, update func() (uint64, error)) (uint64, error) {
			hang()
			return update()
		})
		after(lease)
		f.Expect(a.IsLeader()).To(BeFalse())
		f.Expect(a.health().Healthy).To(BeTrue(), "the loop may be about to notice")
		after(2*time.Second + instant)
		f.Expect(a.health()).To(Equal(health{
			Why:  "the lease of term 1 ran out 2s ago, and it still has not stood down",
			Name: "a", Key: key, State: election.CandidateState, Doing: "renewing",
		}))
		f.Expect(a.leads()).To(Equal(http.StatusServiceUnavailable))
		unblock()
		after(instant)
		a.staysHealthy(2*ttl, time.Second)
	})
}

func TestWorkThatOutlivesItsTermIsUnhealthy(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		for _, name := range []string{"work", "callback"} {
			hang, unblock := f.Hanging()
			timeout := election.WithReleaseTimeout(30 * time.Second)
			var a *candidate
			if name == "work" {
				a = f.candidate(name, timeout).run(func(context.Context, election.Term) error { hang(); return nil })
			} else {
				a = f.candidate(name, timeout, election.OnWon(hang)).start()
			}
			after(interval)
			a.staysHealthy(3*ttl, time.Second)
			f.Expect(a.IsLeader()).To(BeTrue(), "work may take as long as the term lasts")
			f.Write("stranger")
			after(interval)
			f.Expect(a.IsLeader()).To(BeFalse())
			a.staysHealthy(30*time.Second, time.Second)
			after(lateTime)
			f.Expect(a.health().Why).To(HavePrefix("its loop is stuck waiting for callbacks and work to return"), name)
			unblock()
			after(instant)
			f.Expect(a.health().Healthy).To(BeTrue())
			a.shutdown()
			f.Expect(<-a.result).To(Succeed())
			after(ttl)
		}
	})
}

func TestStoppingLeaderIsHealthyWhileItsWorkReturns(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.candidate("a", election.WithReleaseTimeout(time.Minute)).run(func(ctx context.Context, _ election.Term) error {
			<-ctx.Done()
			time.Sleep(50 * time.Second)
			return nil
		})
		after(interval)
		a.Stop()
		a.staysHealthy(49*time.Second, time.Second)
		f.Expect(a.State()).To(Equal(election.CandidateState))
		after(2 * time.Second)
		f.Expect(<-a.result).To(Succeed())
		f.Expect(a.health().Healthy).To(BeTrue())
	})
}
