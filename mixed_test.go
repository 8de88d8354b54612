package election_test

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
	"github.com/natscampaign/election/internal/link"
	"github.com/natscampaign/election/internal/natstest"
)

// legacy is a candidate by the rules of Choria's election, in the bucket as nats.go used to have them: it creates the key
// with its bare name, updates it over its last revision every 0.75 of the TTL, and leads from its first update on. It
// reads nothing, hears nothing, bounds its leadership by nothing but a failed update, and releases nothing.
type legacy struct {
	name   string
	link   *link.Link
	bucket nats.KeyValue

	stop  func()
	leads atomic.Bool
}

func (f *fleet) legacy(name string) *legacy {
	f.Helper()
	l := &legacy{name: name, link: f.server.Link(f.T)}
	js, err := natstest.Connect(f.T, l.link).JetStream()
	f.Expect(err).NotTo(HaveOccurred())
	l.bucket, err = js.KeyValue(natstest.BucketName)
	f.Expect(err).NotTo(HaveOccurred())
	return l
}

func (l *legacy) start() {
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan struct{})
	l.stop = func() { cancel(); <-over }
	go func() {
		defer close(over)
		defer l.leads.Store(false)
		wait := rand.N(5 * time.Second)
		for revision := uint64(0); ; wait = interval {
			select {
			case <-ctx.Done():
				return
			case <-time.After(wait):
			}
			revision = l.campaign(revision)
		}
	}()
}

// campaign returns the revision of the key if it is this candidate's, else 0.
func (l *legacy) campaign(held uint64) uint64 {
	if held == 0 {
		revision, err := l.bucket.Create(key, []byte(l.name))
		if err != nil {
			return 0
		}
		return revision
	}
	revision, err := l.bucket.Update(key, []byte(l.name), held)
	l.leads.Store(err == nil)
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
	link        *link.Link
}

// mixed is a fleet with candidates of both kinds, of which it watches how many lead.
type mixed struct {
	*fleet
	members []*member
	repairs map[time.Time]func()
	overlap int
}

func (f *fleet) mixed(candidate func(name string, opts ...election.Option) *candidate, opts ...election.Option) *mixed {
	m := &mixed{fleet: f, repairs: map[time.Time]func(){}}
	for i := range 2 {
		c := candidate(fmt.Sprintf("ours-%d", i), opts...)
		o := &member{ours: true, name: c.Status().Name, leads: c.IsLeader, link: c.link}
		o.start = func() {
			ctx, cancel := context.WithCancel(context.Background())
			over := make(chan struct{})
			o.stop = func() { cancel(); <-over }
			go func() { defer close(over); _ = c.Start(ctx) }()
		}
		m.members = append(m.members, o)
	}
	for i := range 3 {
		l := f.legacy(fmt.Sprintf("legacy-%d", i))
		m.members = append(m.members, &member{name: l.name, leads: l.leads.Load, start: l.start, stop: func() { l.stop() }, link: l.link})
	}
	for _, each := range m.members {
		each.start()
		f.Cleanup(func() { each.stop() })
	}
	return m
}

// step lets a little time pass, and returns who leads.
func (m *mixed) step() []*member {
	after(10 * time.Millisecond)
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

// term lets time pass until somebody leads other than the one before, or the one before again.
func (m *mixed) term(before *member) *member {
	m.Helper()
	ended := before == nil
	for began := time.Now(); time.Since(began) < 20*ttl; {
		leaders := m.step()
		ended = ended || !slices.Contains(leaders, before)
		if ended && len(leaders) > 0 {
			return leaders[0]
		}
	}
	m.Fatal("nobody leads")
	return nil
}

// disturb ends the term of the leader, in one of the ways that terms end in.
func (m *mixed) disturb(leader *member, how string) {
	m.Helper()
	mended := time.Now().Add(2*ttl + rand.N(6*ttl)) // so that at times none of a kind is there
	switch how {
	case "stop":
		leader.stop()
		m.repairs[mended] = leader.start
	case "crash":
		leader.link.Cut()
		m.repairs[mended] = leader.link.Heal
	case "eviction":
		m.Expect(m.bucket.Delete(context.Background(), key)).To(Succeed())
	}
}

func TestCandidatesOfChoriaStandInTheSameElectionWithoutOverlap(t *testing.T) {
	const terms = 100
	for name, c := range map[string]struct {
		candidate func(*fleet, string, ...election.Option) *candidate
		opts      []election.Option
	}{
		"records":               {(*fleet).candidate, nil},
		"bare names":            {(*fleet).candidate, []election.Option{election.WithPlainValue()}},
		"nobody hears anything": {(*fleet).deafCandidate, nil},
	} {
		t.Run(name, func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				m := f.mixed(func(name string, opts ...election.Option) *candidate { return c.candidate(f, name, opts...) }, c.opts...)
				wins, ends := map[bool]int{}, map[string]int{}
				var leader *member
				for range terms {
					leader = m.term(leader)
					wins[leader.ours]++
					for until := time.Now().Add(rand.N(2 * ttl)); time.Now().Before(until); {
						m.step()
					}
					how := []string{"stop", "crash", "eviction"}[rand.N(3)]
					ends[fmt.Sprint(how, leader.ours)]++
					m.disturb(leader, how)
				}
				synctest.Wait()
				t.Logf("wins of ours %d, of Choria's %d; ends %v", wins[true], wins[false], ends)
				f.Expect(m.overlap).To(BeZero())
				f.Expect(wins[true]).To(BeNumerically(">=", terms/8))
				f.Expect(wins[false]).To(BeNumerically(">=", terms/8))
			}, withoutMarkers)
		})
	}
}
