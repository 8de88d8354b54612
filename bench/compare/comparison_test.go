//go:build linux

package compare

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"
)

// comparison is one system with one set of durations: a row of the table.
type comparison struct {
	name      string
	start     func(*stage) // the server
	candidate func(context.Context, place, *comparison) (candidate, error)
	ttl       time.Duration
	renewal   time.Duration // about how long from one renewal to the next
	limit     time.Duration // how long to wait for another leader, or for the end of leadership, after a fault
	witness   bool          // whether each process has one
	polls     bool          // whether followers poll once per second or less: all handovers are then made at once

	requestTimeout, renewDeadline, retryPeriod time.Duration // client-go's
	releaseOnCancel                            bool
	settings                                   map[string]string // PostgreSQL's
}

func natsCase(name string, ttl time.Duration, start func(*stage),
	candidate func(context.Context, place, *comparison) (candidate, error), polls bool) comparison {
	return comparison{
		name: name, start: start, candidate: candidate, ttl: ttl, renewal: ttl * 3 / 4, limit: ttl*5/2 + 10*time.Second, polls: polls,
	}
}

func witnessCase(name string, ttl time.Duration) comparison {
	c := natsCase(name, ttl, startElection, newOurs, false)
	c.witness = true
	return c
}

func etcdCase(name string, ttl time.Duration) comparison {
	return comparison{name: name, start: startEtcd, candidate: newEtcd, ttl: ttl, renewal: ttl / 3, limit: ttl*3/2 + 10*time.Second}
}

func redisCase(name string, ttl time.Duration) comparison {
	return comparison{name: name, start: startRedis, candidate: newRedsync, ttl: ttl, renewal: ttl / 3, limit: 2*ttl + 10*time.Second}
}

func postgresCase(name string, limit time.Duration, settings map[string]string) comparison {
	return comparison{
		name: name, start: startPostgres, candidate: newPostgres, renewal: checkEvery, limit: limit, polls: true, settings: settings,
	}
}

func kubernetesCase(name string, share float64, requestTimeout time.Duration, release bool) comparison {
	scale := func(d time.Duration) time.Duration { return time.Duration(share * float64(d)) }
	return comparison{
		name: name, start: startKubernetes, candidate: newKubernetes, polls: true,
		ttl: scale(leaseDuration), renewDeadline: scale(renewDeadline), retryPeriod: scale(retryPeriod), renewal: scale(retryPeriod),
		limit: 3*scale(leaseDuration) + 10*time.Second, requestTimeout: requestTimeout, releaseOnCancel: release,
	}
}

var comparisons = []comparison{
	natsCase("election, TTL 5 s", 5*time.Second, startElection, newOurs, false),
	natsCase("election, TTL 15 s", 15*time.Second, startElection, newOurs, false),
	natsCase("election, TTL 30 s", 30*time.Second, startElection, newOurs, false),
	witnessCase("election, TTL 5 s, witness", 5*time.Second),
	etcdCase("etcd, TTL 5 s", 5*time.Second),
	etcdCase("etcd, TTL 60 s", 60*time.Second),
	redisCase("redsync, expiry 5 s", 5*time.Second),
	redisCase("redsync, expiry 8 s", 8*time.Second),
	postgresCase("PostgreSQL, keepalives 5 s", 30*time.Second, map[string]string{
		"tcp_keepalives_idle": "2", "tcp_keepalives_interval": "1", "tcp_keepalives_count": "3", "tcp_user_timeout": "5000",
	}),
	postgresCase("PostgreSQL", 90*time.Second, nil),
	kubernetesCase("client-go, 5/3.3/0.67 s", 1.0/3, 0, true),
	kubernetesCase("client-go, 15/10/2 s", 1, 0, true),
	kubernetesCase("client-go, 15/10/2 s, no release", 1, 0, false),
	kubernetesCase("client-go, 15/10/2 s, request timeout 5 s", 1, renewDeadline/2, true),
	natsCase("Choria, TTL 5 s", 5*time.Second, startChoria, newChoria, true),
	natsCase("Choria, TTL 60 s", time.Minute, startChoria, newChoria, true),
}

func caseNamed(name string) (*comparison, bool) {
	i := slices.IndexFunc(comparisons, func(c comparison) bool { return c.name == name })
	if i < 0 {
		return nil, false
	}
	return &comparisons[i], true
}

// idle is for how long requests are counted, from idleAfter after all follow.
const (
	idleAfter = 15 * time.Second
	idle      = time.Minute
)

// exclusive is held while handovers of milliseconds are measured.
var exclusive sync.Mutex

// TestComparison measures, and shows a table.
func TestComparison(t *testing.T) {
	w := newWorld(t)
	chosen, err := regexp.Compile(*only)
	if err != nil {
		t.Fatal(err)
	}
	results := make([]*result, len(comparisons))
	began := time.Now()
	t.Run("of", func(t *testing.T) {
		for i := range comparisons {
			c := &comparisons[i]
			if !chosen.MatchString(c.name) {
				continue
			}
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				s := &stage{T: t, comparison: c, world: w, journal: newJournal()}
				results[i] = &result{}
				s.measure(results[i])
				for _, m := range s.failures() {
					t.Log("a candidate ended:", m)
				}
			})
		}
	})
	fmt.Fprintf(os.Stdout, "\n%s\nTook %v.\n", table(results), time.Since(began).Round(time.Second))
}

// measure has one process lead elections until its link is cut and another until it is killed, while a third follows.
func (s *stage) measure(r *result) {
	s.comparison.start(s)
	toCut := s.process(s, s.journal, s.comparison.name, s.endpoint)
	toKill := s.process(s, s.journal, s.comparison.name, s.endpoint)
	follower := s.process(s, s.journal, s.comparison.name, s.endpoint)
	var hand, cut, kill []string
	for i := range *handed {
		hand = append(hand, fmt.Sprintf("hand-%d", i))
	}
	for i := range *elements {
		cut, kill = append(cut, fmt.Sprintf("cut-%d", i)), append(kill, fmt.Sprintf("kill-%d", i))
	}

	for _, key := range hand {
		s.startElection(toCut, key)
	}
	// Renewals are spread over their interval, so that a fault meets each at another moment.
	for i := range *elements {
		s.startElection(toCut, cut[i])
		s.startElection(toKill, kill[i])
		time.Sleep(s.renewal / time.Duration(*elements))
	}
	for _, key := range slices.Concat(hand, cut) {
		s.elected(toCut, key)
	}
	for _, key := range kill {
		s.elected(toKill, key)
	}
	for _, key := range slices.Concat(hand, cut, kill) {
		s.startElection(follower, key)
	}
	time.Sleep(max(idleAfter, s.renewal)) // start-up splays end, and every leader renews with all of them there

	killed := make(chan struct{})
	go func() {
		defer close(killed)
		s.idleThenKill(r, toKill, follower, kill)
	}()
	taken := func(key string) {
		var stopped event
		ok := s.await(10*time.Second, func() (ok bool) { stopped, ok = s.first(stopping, key, toCut, 0); return })
		won, led := s.leads(follower, key, stopped.At, s.limit)
		r.handover.add(won-stopped.At, ok && led, s.limit)
	}
	s.handovers(toCut, hand, taken)
	s.cuts(r, toCut, follower, cut)
	if s.polls {
		for _, key := range hand {
			taken(key)
		}
	}
	<-killed
}

// elected waits until the first candidate of an election leads.
func (s *stage) elected(p *process, key string) {
	s.Helper()
	if _, ok := s.leads(p, key, 0, 2*s.ttl+time.Minute); !ok {
		s.Fatal("nobody is elected to", key, s.failures())
	}
}

func (s *stage) idleThenKill(r *result, leader, follower *process, keys []string) {
	byLeader, byFollower := s.requests(leader, keys), s.requests(follower, keys)
	time.Sleep(idle)
	rate := func(p *process, before int64) float64 {
		return float64(s.requests(p, keys)-before) / idle.Seconds() / float64(len(keys))
	}
	r.leaderRate, r.followerRate = rate(leader, byLeader), rate(follower, byFollower)
	at := leader.kill()
	for _, key := range keys {
		won, ok := s.leads(follower, key, at, s.limit)
		r.kill.add(won-at, ok, s.limit)
	}
}

// handovers stops the leaders in an orderly way. Where followers poll, all are stopped before it is known who takes over.
func (s *stage) handovers(leader *process, keys []string, taken func(key string)) {
	if s.polls {
		for _, key := range keys {
			leader.tell("stop", key)
			time.Sleep(s.renewal / time.Duration(len(keys))) // at any moment of a poll
		}
		time.Sleep(2 * time.Second) // the last has stopped
		return
	}
	exclusive.Lock()
	defer exclusive.Unlock()
	for _, key := range keys {
		leader.tell("stop", key)
		taken(key)
		time.Sleep(100 * time.Millisecond)
	}
}

func (s *stage) cuts(r *result, leader, follower *process, keys []string) {
	at := leader.cut()
	deadline := at + s.limit
	for _, key := range keys {
		won, led := s.leads(follower, key, at, deadline-now())
		r.crash.add(won-at, led, s.limit)
		var end event
		ended := s.await(deadline-now(), func() (ok bool) { end, ok = s.first(ends, key, leader, at); return })
		switch {
		case !led:
			r.both.add(0, true, 0)
		case !ended:
			r.both.add(s.limit-(won-at), false, s.limit-(won-at))
		default:
			r.both.add(max(0, end.At-won), true, 0)
		}
		r.believed.add(end.At-at, ended, s.limit)
	}
}
