package alerts

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/fence"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/settings"
	"github.com/natscampaign/election/internal/timeutil"
)

// Provocation is what is done to have one alert fire.
type Provocation struct {
	Alert   string        // its name, which is also the key of the election
	What    string        // what happens
	After   time.Duration // how long it takes until the alert fires with the rules as they are, about
	provoke func(*stage) error
}

// Provocations are those of all alerts that a drill can provoke. [ElectionScrapeMissing] follows when the drill ends: its target is gone then.
var Provocations = []Provocation{
	{"ElectionNoLeader", "the only candidate fails its health check", 2 * time.Minute, provokeNoLeader},
	{"ElectionPausedWithoutLeader", "the only candidate is paused, and nobody leads", 15 * time.Minute, provokePausedWithoutLeader},
	{"ElectionPaused", "the leader is paused", time.Hour, provokePaused},
	{"ElectionNoCandidate", "the only candidate stops after two minutes", 7 * time.Minute, provokeNoCandidate},
	{"ElectionNoStandby", "a leader is alone", 10 * time.Minute, provokeNoStandby},
	{"ElectionTwoLeaders", "two candidates lead, each on a server of its own", time.Minute, provokeTwoLeaders},
	{"ElectionFlapping", "leaders resign one after the other, each after a minute", 6 * time.Minute, provokeFlapping},
	{"ElectionRenewalsFailing", "every second renewal fails", 7 * time.Minute, provokeRenewalsFailing},
	{"ElectionLeaseNearlySpent", "renewals fail until little of the lease is left, which ElectionRenewalsFailing tells too", 2 * time.Minute, provokeLeaseNearlySpent},
	{"ElectionCandidateNotNotified", "the server permits no watcher, and the candidate does not know its connection", 15 * time.Minute, provokeNotNotified},
	{"ElectionWritesAfterTerm", "a program goes on writing with the handle of a term before", 7 * time.Minute, provokeWritesAfterTerm},
}

func provokeNoLeader(s *stage) error {
	_, err := s.candidate("sick", s.bucket, election.WithHealthThreshold(1), election.WithHealthCheck(func(context.Context) error { return errors.New("a drill") }))
	return err
}

func provokePausedWithoutLeader(s *stage) error {
	e, err := s.prepare("paused", s.bucket, settings.WithoutStandbys)
	if err != nil {
		return err
	}
	e.Pause()
	s.begin(e)
	return nil
}

func provokePaused(s *stage) error {
	e, err := s.leader("paused", s.bucket)
	if err == nil {
		e.Pause()
	}
	return err
}

func provokeNoCandidate(s *stage) error {
	e, err := s.leader("gone", s.bucket)
	if err != nil || timeutil.Pause(s.ctx, s.Pace) != nil {
		return err
	}
	s.tell("the candidate stops")
	return e.Shutdown(s.ctx)
}

func provokeNoStandby(s *stage) error {
	e, err := s.prepare("alone", s.bucket)
	if err == nil {
		s.begin(e)
	}
	return err
}

func provokeTwoLeaders(s *stage) error {
	if _, err := s.leader("first", s.bucket); err != nil {
		return err
	}
	if err := timeutil.Pause(s.ctx, 2*time.Second); err != nil { // the alert forgives clocks that differ by a second
		return err
	}
	if _, err := s.leader("second", s.other.bucket); err != nil {
		return err
	}
	s.tell("two candidates lead")
	return nil
}

func provokeFlapping(s *stage) error {
	for _, name := range []string{"one", "another"} {
		if _, err := s.candidate(name, s.bucket); err != nil {
			return err
		}
	}
	for {
		for _, e := range s.candidates {
			if e.IsLeader() {
				_ = e.Resign(s.ctx) // it may have lost the key meanwhile
			}
		}
		if err := timeutil.Pause(s.ctx, s.Pace/2); err != nil {
			return err
		}
	}
}

func provokeRenewalsFailing(s *stage) error {
	_, err := s.leader("unlucky", &failing{KeyValue: s.bare()}, election.WithJetStream(s.js))
	return err
}

func provokeLeaseNearlySpent(s *stage) error {
	// A renewal is due after a quarter of the TTL, and comes after four fifths of it: for a quarter of the time less than half of the room is left.
	_, err := s.leader("late", &late{KeyValue: s.bare(), spacing: ttl * 4 / 5}, election.WithJetStream(s.js), election.WithCampaignInterval(ttl/4))
	return err
}

func provokeNotNotified(s *stage) error {
	_, err := s.candidate("unnotified", kv.Unwatchable{KeyValue: s.bare()})
	return err
}

func provokeWritesAfterTerm(s *stage) error {
	_, err := s.js.CreateStream(s.ctx, jetstream.StreamConfig{Name: "DRILL", Subjects: []string{"drill.>"}, Storage: jetstream.MemoryStorage, MaxMsgs: 1000})
	if err != nil {
		return err
	}
	e, err := s.leader("writer", s.bucket)
	if err != nil {
		return err
	}
	open := func() (*fence.Stream, error) {
		term, _ := e.Term()
		return fence.OpenStream(s.ctx, s.js, "DRILL", "drill.epoch", term, fence.WithRegisterer(s.Metrics))
	}
	before, err := open()
	if err != nil {
		return err
	}
	if err := e.Resign(s.ctx); err != nil {
		return err
	}
	if err := s.until(e.IsLeader); err != nil {
		return err
	}
	if _, err := open(); err != nil {
		return err
	}
	s.tell("writes of the term before are refused")
	for {
		if _, err := before.Publish(s.ctx, "drill.work", nil); err == nil {
			return errors.New("a write of the term before was stored")
		}
		if err := timeutil.Pause(s.ctx, time.Second); err != nil {
			return err
		}
	}
}

// leader starts a candidate, and returns when it leads.
func (s *stage) leader(name string, bucket jetstream.KeyValue, opts ...election.Option) (*election.Election, error) {
	e, err := s.candidate(name, bucket, opts...)
	if err != nil {
		return nil, err
	}
	return e, s.until(e.IsLeader)
}
