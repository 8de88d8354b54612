package reports_test

import (
	"context"
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	. "github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/natstest"
)

// The limits of the handler: how long the loop may be busy, and how late it may be.
const (
	busyTime = 8 * time.Second
	lateTime = 8 * time.Second
)

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
func probe(c *Candidate) health {
	c.Fleet.Helper()
	w := Get(c.Handler(), http.MethodGet, "/healthz")
	var h health
	c.Fleet.Expect(json.Unmarshal(w.Body.Bytes(), &h)).To(Succeed())
	c.Fleet.Expect(w.Code == http.StatusOK).To(Equal(h.Healthy), w.Body.String())
	c.Fleet.Expect(h.Healthy).To(Equal(h.Why == ""), w.Body.String())
	return h
}

// staysHealthy requests /healthz every so often for some time.
func staysHealthy(c *Candidate, d, every time.Duration) {
	c.Fleet.Helper()
	for range d / every {
		After(every)
		c.Fleet.Expect(probe(c).Why).To(BeEmpty())
	}
}

// leads requests /leader, and returns the code.
func leads(c *Candidate) int { return Get(c.Handler(), http.MethodGet, "/leader").Code }

func TestLeaderPathIsOKOnlyWhileItLeads(t *testing.T) {
	Run(t, func(f *Fleet) {
		a := f.Candidate("a")
		f.Expect(leads(a)).To(Equal(http.StatusServiceUnavailable), "before Start")
		f.Expect(probe(a).Healthy).To(BeTrue(), "before Start")
		a.Begin()
		f.Expect(leads(a)).To(Equal(http.StatusServiceUnavailable), "leader-elect")
		After(Interval)
		f.Expect(leads(a)).To(Equal(http.StatusOK))
		b := f.Candidate("b").Begin()
		After(time.Second)
		f.Expect(leads(b)).To(Equal(http.StatusServiceUnavailable), "standby")
		f.Expect(probe(b).Healthy).To(BeTrue(), "standby")

		w := Get(a.Handler(), http.MethodGet, "/leader")
		var s election.Status
		f.Expect(json.Unmarshal(w.Body.Bytes(), &s)).To(Succeed())
		f.Expect(s.Name).To(Equal("a"))
		f.Expect(s.IsLeader).To(BeTrue())
		f.Expect(s.LeaseRemaining).To(Equal(Lease - time.Second))
		f.Expect(w.Header().Get("Content-Type")).To(Equal("application/json"))

		a.Link.Cut()
		After(Lease - time.Second - Instant)
		f.Expect(leads(a)).To(Equal(http.StatusOK))
		After(Instant)
		f.Expect(leads(a)).To(Equal(http.StatusServiceUnavailable))
		a.End()
		f.Expect(leads(a)).To(Equal(http.StatusServiceUnavailable), "after Shutdown")
		f.Expect(probe(a)).To(Equal(health{Healthy: true, Name: "a", Key: Key, State: election.UnknownState}))
	})
}

func TestHandlerServesTwoReadOnlyPathsBelowAnyPrefix(t *testing.T) {
	Run(t, func(f *Fleet) {
		a := f.Leading("a")
		for prefix, h := range map[string]http.Handler{
			"": a.Handler(), "/election": http.StripPrefix("/election", a.Handler()), "/elections/": http.StripPrefix("/elections/", a.Handler()),
		} {
			base := prefix
			if base == "/elections/" {
				base = "/elections"
			}
			for _, path := range []string{"/leader", "/healthz"} {
				full, head := Get(h, http.MethodGet, base+path), Get(h, http.MethodHead, base+path)
				f.Expect(full.Code).To(Equal(http.StatusOK), base+path)
				f.Expect(head.Code).To(Equal(http.StatusOK))
				f.Expect(head.Body.Len()).To(BeZero())
				f.Expect(head.Header()).To(Equal(full.Header()), "HEAD differs from GET by the body alone")
				f.Expect(full.Header().Get("Cache-Control")).To(Equal("no-store"))
				for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch, http.MethodOptions, "RESIGN"} {
					w := Get(h, method, base+path)
					f.Expect(w.Code).To(Equal(http.StatusMethodNotAllowed), method)
					f.Expect(w.Header().Get("Allow")).To(Equal("GET, HEAD"))
					f.Expect(w.Header().Get("Cache-Control")).To(Equal("no-store"))
				}
			}
			for _, path := range []string{"/", "/leader/", "/Leader", "/healthz/x", "/metrics", "/leader%2f"} {
				f.Expect(Get(h, http.MethodGet, base+path).Code).To(Equal(http.StatusNotFound), base+path)
			}
		}
	})
}

func TestSleepingStandbyIsHealthy(t *testing.T) {
	natstest.SkipIfShort(t)
	Run(t, func(f *Fleet) {
		f.Connected("a").Begin()
		b := f.Connected("b").Begin()
		staysHealthy(b, 200*TTL, TTL/3)
		f.Expect(probe(b).Doing).To(Equal("waiting for its next campaign"))
		b.Pause()
		staysHealthy(b, 200*TTL, TTL)
		f.Expect(probe(b).Doing).To(Equal("waiting until nothing holds it back"))
		b.Resume()
		staysHealthy(b, 2*TTL, time.Second)
	}, Republished)
}

func TestUnreachableServerMakesNoCandidateUnhealthy(t *testing.T) {
	natstest.SkipIfShort(t)
	Run(t, func(f *Fleet) {
		a, b, c := f.Leading("a"), f.Candidate("b").Begin(), f.Candidate("c")
		for _, c := range []*Candidate{a, b, c} {
			c.Link.Cut()
		}
		c.Begin() // without having reached the bucket
		for range 300 {
			After(100 * time.Millisecond)
			for _, c := range []*Candidate{a, b, c} {
				f.Expect(probe(c).Why).To(BeEmpty())
			}
		}
		f.Expect(a.IsLeader()).To(BeFalse())
		staysHealthy(c, 20*TTL, time.Second)
	})
}

func TestFailedHealthCheckLeavesTheProbeHealthy(t *testing.T) {
	Run(t, func(f *Fleet) {
		var d Disk
		d.Full.Store(true)
		a := f.Candidate("a", election.WithHealthCheck(d.Check)).Begin()
		staysHealthy(a, 10*TTL, time.Second)
		f.Expect(a.Status().Unhealthy).To(Equal("disk full"))
	})
}

func TestHangingBackoffIsUnhealthy(t *testing.T) {
	Run(t, func(f *Fleet) {
		f.Leading("a")
		asked := make(chan struct{})
		hang, unblock := f.Hanging()
		b := f.Unnotified("b", election.WithBackoff(BackoffFunc(func(n int) time.Duration {
			if n == 1 {
				close(asked)
				hang()
			}
			return time.Second
		}))).Begin()
		<-asked
		After(busyTime + lateTime)
		f.Expect(probe(b).Healthy).To(BeTrue())
		After(Instant)
		f.Expect(probe(b)).To(Equal(health{
			Why:  "its loop is stuck asking its Backoff: it should have been done 8s ago",
			Name: "b", Key: Key, State: election.CandidateState, Doing: "asking its Backoff",
		}))
		unblock()
		After(Instant)
		staysHealthy(b, 2*TTL, time.Second)
	})
}

func TestStandbyWithAHangingRequestIsUnhealthy(t *testing.T) {
	Run(t, func(f *Fleet) {
		f.Leading("a")
		b, bucket := f.FaultyCandidate("b")
		bucket.KeyValue = Unwatchable{KeyValue: bucket.KeyValue}
		hang, unblock := f.Hanging()
		bucket.OnGet(func(_ context.Context, get func() (jetstream.KeyValueEntry, error)) (jetstream.KeyValueEntry, error) {
			hang() // beyond the end of its context
			return get()
		})
		b.Begin()
		After(ReadyTimeout)
		staysHealthy(b, busyTime+lateTime-time.Second, time.Second)
		After(time.Second + Instant)
		f.Expect(probe(b).Why).To(HavePrefix("its loop is stuck reading the key"))
		unblock()
		After(Instant)
		f.Expect(probe(b).Healthy).To(BeTrue())
	})
}

func TestLeaderWithAHangingRenewalIsUnhealthyAfterItsLease(t *testing.T) {
	Run(t, func(f *Fleet) {
		a, bucket := f.FaultyCandidate("a")
		a.Begin()
		After(Interval)
		f.Expect(a.IsLeader()).To(BeTrue())
		hang, unblock := f.Hanging()
		bucket.OnUpdate(func(_ context.Context, _ []byte, _ uint64, update func() (uint64, error)) (uint64, error) {
			hang()
			return update()
		})
		After(Lease)
		f.Expect(a.IsLeader()).To(BeFalse())
		f.Expect(probe(a).Healthy).To(BeTrue(), "the loop may be about to notice")
		After(2*time.Second + Instant)
		f.Expect(probe(a)).To(Equal(health{
			Why:  "the lease of term 1 ran out 2s ago, and it still has not stood down",
			Name: "a", Key: Key, State: election.CandidateState, Doing: "renewing",
		}))
		f.Expect(leads(a)).To(Equal(http.StatusServiceUnavailable))
		unblock()
		After(Instant)
		staysHealthy(a, 2*TTL, time.Second)
	})
}

func TestWorkThatOutlivesItsTermIsUnhealthy(t *testing.T) {
	Run(t, func(f *Fleet) {
		for _, name := range []string{"work", "callback"} {
			hang, unblock := f.Hanging()
			timeout := election.WithReleaseTimeout(30 * time.Second)
			var a *Candidate
			if name == "work" {
				a = f.Candidate(name, timeout).BeginRun(func(context.Context, election.Term) error { hang(); return nil })
			} else {
				a = f.Candidate(name, timeout, election.OnWon(hang)).Begin()
			}
			After(Interval)
			staysHealthy(a, 3*TTL, time.Second)
			f.Expect(a.IsLeader()).To(BeTrue(), "work may take as long as the term lasts")
			f.Write("stranger")
			After(Interval)
			f.Expect(a.IsLeader()).To(BeFalse())
			staysHealthy(a, 30*time.Second, time.Second)
			After(lateTime)
			f.Expect(probe(a).Why).To(HavePrefix("its loop is stuck waiting for callbacks and work to return"), name)
			unblock()
			After(Instant)
			f.Expect(probe(a).Healthy).To(BeTrue())
			a.End()
			f.Expect(<-a.Result).To(Succeed())
			After(TTL)
		}
	})
}

func TestStoppingLeaderIsHealthyWhileItsWorkReturns(t *testing.T) {
	Run(t, func(f *Fleet) {
		a := f.Candidate("a", election.WithReleaseTimeout(time.Minute)).BeginRun(func(ctx context.Context, _ election.Term) error {
			<-ctx.Done()
			time.Sleep(50 * time.Second)
			return nil
		})
		After(Interval)
		a.Stop()
		staysHealthy(a, 49*time.Second, time.Second)
		f.Expect(a.State()).To(Equal(election.CandidateState))
		After(2 * time.Second)
		f.Expect(<-a.Result).To(Succeed())
		f.Expect(probe(a).Healthy).To(BeTrue())
	})
}
