package group_test

import (
	"context"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/group"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/settings"
	"github.com/natscampaign/election/internal/test/natstest"
	"github.com/natscampaign/election/internal/witness"

	"github.com/natscampaign/election"
)

// watching is a witness that is told the terms of one member.
type watching struct {
	mu    sync.Mutex
	terms map[record.Commitment]witness.Term
}

func (w *watching) Began(t witness.Term) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.terms[t.Commitment()] = t
}

func (w *watching) Over(c record.Commitment) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.terms, c)
}

// held returns the terms that are not over.
func (w *watching) held() []witness.Term {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Values(w.terms))
}

// witnessed returns a member with a witness.
func (f *fleet) witnessed(name string, keys []string) (*member, *watching) {
	f.Helper()
	w := &watching{terms: map[record.Commitment]witness.Term{}}
	return f.member(name, "shards", keys, group.WithElectionOptions(election.Option(func(o *settings.Options) { o.Witness = w }))), w
}

// threeWitnessed returns three members with witnesses that lead their shares.
func (f *fleet) threeWitnessed(keys []string) (members []*member, witnesses []*watching) {
	f.Helper()
	for _, name := range []string{"a", "b", "c"} {
		m, w := f.witnessed(name, keys)
		members, witnesses = append(members, m.start()), append(witnesses, w)
	}
	after(standDown + time.Second)
	f.expectEven(keys, members)
	f.journal.reset()
	return members, witnesses
}

// released writes the release of a term as its witness does, if the key has a record of the term.
func (f *fleet) released(t witness.Term) {
	f.Helper()
	bucket := kv.With(f.bucket, f.bucket.JetStream())
	s, err := bucket.Read(context.Background(), t.Key)
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(s.Record.Instance).To(Equal(t.Instance))
	f.Expect(s.Record.Commitment.OpenedBy(t.Secret)).To(BeTrue())
	r := s.Record
	r.Attempt, r.Released, r.Secret, r.Reason = record.NewID(), time.Now(), t.Secret, "died"
	_, err = bucket.Update(context.Background(), t.Key, r.Encode(), s.Revision)
	f.Expect(err).NotTo(HaveOccurred())
}

func TestKeysOfAMemberThatAWitnessFoundDeadAreLedAtOnce(t *testing.T) {
	natstest.SkipIfShort(t)
	for i, role := range []string{"the planner", "the second planner", "a follower"} {
		t.Run(role, func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				keys := keysOf(20)
				members, witnesses := f.threeWitnessed(keys)
				dead := members[i]
				led := len(dead.Keys())
				dead.link.Cut()
				terms := witnesses[i].held()
				f.Expect(terms).To(HaveLen(led + 1))
				for _, term := range terms {
					f.Expect(term.Bucket).To(Equal(natstest.BucketName))
					f.Expect(term.LeaseMs).To(Equal(ttl.Milliseconds()))
					f.released(term)
				}
				after(100 * time.Millisecond)
				f.expectEven(keys, without(members, dead))
				for _, m := range without(members, dead) {
					f.Expect(m.Status().Members).NotTo(ContainElement(dead.name))
				}
			})
		})
	}
}

func TestWitnessIsToldWhenAMemberHasLeft(t *testing.T) {
	natstest.SkipIfShort(t)
	onVirtualTime(t, func(f *fleet) {
		members, witnesses := f.threeWitnessed(keysOf(6))
		members[0].leave()
		f.Expect(witnesses[0].held()).To(BeEmpty())
		f.Expect(witnesses[1].held()).To(HaveLen(4))
	})
}

func TestForgedReleaseOfAPresenceMovesNothing(t *testing.T) {
	natstest.SkipIfShort(t)
	for name, forge := range map[string]func(p map[string]any, others witness.Term){
		"without a secret":           func(p map[string]any, _ witness.Term) { p["released"] = time.Now() },
		"with another secret":        func(p map[string]any, _ witness.Term) { p["secret"] = record.NewSecret() },
		"with another term's secret": func(p map[string]any, others witness.Term) { p["secret"] = others.Secret },
		"with a commitment of its own": func(p map[string]any, others witness.Term) {
			p["secret"], p["commitment"] = others.Secret, others.Commitment()
		},
	} {
		t.Run(name, func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				keys := keysOf(6)
				members, witnesses := f.threeWitnessed(keys)
				p := f.presence("c")
				p["attempt"] = "forged"
				forge(p, witnesses[0].held()[0])
				members[2].link.StallReplies() // it is not notified of the value
				f.forge("shards.members.c", p)
				after(time.Second)
				f.Expect(members[0].Status().Members).To(HaveLen(3))
				f.expectUndisturbed(keys, members, 1)
			})
		})
	}
}

// As when a machine that runs was copied with its witness.
func TestMemberThatAWitnessTakesForDeadJoinsAgain(t *testing.T) {
	natstest.SkipIfShort(t)
	onVirtualTime(t, func(f *fleet) {
		keys := keysOf(6)
		members, witnesses := f.threeWitnessed(keys)
		for _, term := range witnesses[1].held() {
			if term.Key == "shards.members.b" {
				f.released(term)
			}
		}
		after(time.Second)
		f.Expect(members[1].result).To(BeEmpty())
		f.expectEven(keys, members)
		f.Expect(f.journal.twice).To(BeEmpty())
	})
}
