package topologies_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/drill/faultproxy"
	. "github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/natstest"
)

// choria is a candidate by the rules of Choria's election, in a bucket of the old interface of nats.go. It creates the key with its bare
// name, updates the key over its last revision every 0.75 of the TTL, and leads from its first update until an update fails. It reads
// nothing, receives no notifications, and releases nothing.
type choria struct {
	name   string
	link   *faultproxy.Link
	bucket nats.KeyValue

	stop  func()
	leads atomic.Bool
}

func joinChoria(f *Fleet, name string) *choria {
	f.Helper()
	c := &choria{name: name, link: f.Server.Link(f.T)}
	js, err := natstest.Connect(f.T, c.link).JetStream()
	f.Expect(err).NotTo(HaveOccurred())
	c.bucket, err = js.KeyValue(natstest.BucketName)
	f.Expect(err).NotTo(HaveOccurred())
	return c
}

func (c *choria) start() {
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan struct{})
	c.stop = func() { cancel(); <-over }
	go func() {
		defer close(over)
		defer c.leads.Store(false)
		wait := rand.N(5 * time.Second)
		for revision := uint64(0); ; wait = Interval {
			select {
			case <-ctx.Done():
				return
			case <-time.After(wait):
			}
			revision = c.campaign(revision)
		}
	}()
}

// campaign returns the revision of the key if this candidate holds the key, else 0.
func (c *choria) campaign(held uint64) uint64 {
	if held == 0 {
		revision, err := c.bucket.Create(Key, []byte(c.name))
		if err != nil {
			return 0
		}
		return revision
	}
	revision, err := c.bucket.Update(Key, []byte(c.name), held)
	c.leads.Store(err == nil)
	if err != nil {
		return 0
	}
	return revision
}

// member is a candidate of either kind.
type member struct {
	ours        bool
	name        string
	leads       func() bool
	start, stop func()
	link        *faultproxy.Link
}

// mixedFleet is a fleet with candidates of both kinds. It counts the times at which two of them lead.
type mixedFleet struct {
	*Fleet
	members []*member
	repairs map[time.Time]func()
	overlap int
}

func mixed(f *Fleet, candidate NewCandidate, opts ...election.Option) *mixedFleet {
	m := &mixedFleet{Fleet: f, repairs: map[time.Time]func(){}}
	for i := range 2 {
		c := candidate(fmt.Sprintf("ours-%d", i), opts...)
		o := &member{ours: true, name: c.Status().Name, leads: c.IsLeader, link: c.Link}
		o.start = func() {
			ctx, cancel := context.WithCancel(context.Background())
			over := make(chan struct{})
			o.stop = func() { cancel(); <-over }
			go func() { defer close(over); _ = c.Start(ctx) }()
		}
		m.members = append(m.members, o)
	}
	for i := range 3 {
		c := joinChoria(f, fmt.Sprintf("choria-%d", i))
		m.members = append(m.members, &member{name: c.name, leads: c.leads.Load, start: c.start, stop: func() { c.stop() }, link: c.link})
	}
	for _, each := range m.members {
		each.start()
		f.Cleanup(func() { each.stop() })
	}
	return m
}

// step lets a little time pass, and returns the leaders.
func (m *mixedFleet) step() []*member {
	After(10 * time.Millisecond)
	for at, repair := range m.repairs {
		if !time.Now().Before(at) {
			delete(m.repairs, at)
			repair()
		}
	}
	leaders := slices.DeleteFunc(slices.Clone(m.members), func(each *member) bool { return !each.leads() })
	if len(leaders) > 1 {
		m.overlap++
	}
	return leaders
}

// term lets time pass until the next term begins, and returns its leader; before is the leader of the last.
func (m *mixedFleet) term(before *member) *member {
	m.Helper()
	ended := before == nil
	for began := time.Now(); time.Since(began) < 20*TTL; {
		leaders := m.step()
		ended = ended || !slices.Contains(leaders, before)
		if ended && len(leaders) > 0 {
			return leaders[0]
		}
	}
	m.Fatal("nobody leads")
	return nil
}

// disturb ends the term of the leader.
func (m *mixedFleet) disturb(leader *member, how string) {
	m.Helper()
	mended := time.Now().Add(2*TTL + rand.N(6*TTL)) // so that at times all candidates of one kind are gone
	switch how {
	case "stop":
		leader.stop()
		m.repairs[mended] = leader.start
	case "crash":
		leader.link.Cut()
		m.repairs[mended] = leader.link.Heal
	case "eviction":
		m.Expect(m.Bucket.Delete(context.Background(), Key)).To(Succeed())
	}
}

func TestCandidatesOfChoriaAndOursNeverLeadTogether(t *testing.T) {
	natstest.SkipIfShort(t)
	terms := 100
	for name, c := range map[string]struct {
		candidate func(*Fleet, string, ...election.Option) *Candidate
		opts      []election.Option
	}{
		"records":          {(*Fleet).Candidate, nil},
		"bare names":       {(*Fleet).Candidate, []election.Option{election.WithPlainValue()}},
		"no notifications": {(*Fleet).Unnotified, nil},
	} {
		t.Run(name, func(t *testing.T) {
			Run(t, func(f *Fleet) {
				m := mixed(f, func(name string, opts ...election.Option) *Candidate { return c.candidate(f, name, opts...) }, c.opts...)
				wins, ends := map[bool]int{}, map[string]int{}
				var leader *member
				for range terms {
					leader = m.term(leader)
					wins[leader.ours]++
					for until := time.Now().Add(rand.N(2 * TTL)); time.Now().Before(until); {
						m.step()
					}
					how := []string{"stop", "crash", "eviction"}[rand.N(3)]
					ends[fmt.Sprint(how, leader.ours)]++
					m.disturb(leader, how)
				}
				synctest.Wait()
				t.Logf("terms of ours %d, of Choria's %d; ends %v", wins[true], wins[false], ends)
				f.Expect(m.overlap).To(BeZero())
				f.Expect(wins[true]).To(BeNumerically(">=", terms/8))
				f.Expect(wins[false]).To(BeNumerically(">=", terms/8))
			}, WithoutMarkers)
		})
	}
}
