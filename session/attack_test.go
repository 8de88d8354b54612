package session_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/session"
)

// attack has a and b campaign for a key, which a leads, and a stranger write to the bucket. c starts afterwards. It returns for how long nobody led, and
// fails if two ever lead.
func attack(t *testing.T, stranger func(f *fixture, js jetstream.JetStream, claim, own string)) {
	play(t, func(f *fixture) {
		a := f.open("a")
		one := f.start(a, "k")
		time.Sleep(time.Second)
		elections := []*election.Election{one, f.start(f.open("b"), "k")}
		time.Sleep(time.Second)
		f.Expect(one.IsLeader()).To(BeTrue())
		stranger(f, f.js(), "$KV.S.c.k", "$KV.S.s."+a.Status().ID)
		elections = append(elections, f.start(f.open("c"), "k"))
		led := 0
		for range 400 {
			time.Sleep(ttl / 100)
			leaders := 0
			for _, e := range elections {
				if e.IsLeader() {
					leaders++
				}
			}
			f.Expect(leaders).To(BeNumerically("<=", 1))
			if led = 0; leaders == 1 {
				led = 1
			}
		}
		f.Expect(led).To(Equal(1), "somebody leads again")
	})
}

// stored returns what is stored under a subject.
func stored(f *fixture, js jetstream.JetStream, subject string) (record map[string]any, revision uint64) {
	stream, err := js.Stream(context.Background(), "KV_S")
	f.Expect(err).NotTo(HaveOccurred())
	m, err := stream.GetLastMsgForSubject(context.Background(), subject)
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(json.Unmarshal(m.Data, &record)).To(Succeed())
	return record, m.Sequence
}

// write writes a record over a revision, as sessions do.
func write(f *fixture, js jetstream.JetStream, subject string, record map[string]any, revision uint64, opts ...jetstream.PublishOpt) {
	text, err := json.Marshal(record)
	f.Expect(err).NotTo(HaveOccurred())
	_, err = js.Publish(context.Background(), subject, text, append(opts, jetstream.WithExpectLastSequencePerSubject(revision))...)
	f.Expect(err).NotTo(HaveOccurred())
}

func TestClaimOfASessionThatNeverWasHasNoTwoLeadTheKey(t *testing.T) {
	attack(t, func(f *fixture, js jetstream.JetStream, claim, _ string) {
		record, revision := stored(f, js, claim)
		record["instance"], record["name"] = "nobody", "nobody"
		write(f, js, claim, record, revision)
	})
}

func TestSessionThatAStrangerClosesHasNoTwoLeadItsKeys(t *testing.T) {
	attack(t, func(f *fixture, js jetstream.JetStream, _, own string) {
		record, revision := stored(f, js, own)
		record["closed_by"] = "stranger"
		write(f, js, own, record, revision)
	})
}

func TestClaimThatAStrangerHasExpireHasNoTwoLeadTheKey(t *testing.T) {
	attack(t, func(f *fixture, js jetstream.JetStream, claim, _ string) {
		record, revision := stored(f, js, claim)
		write(f, js, claim, record, revision, jetstream.WithMsgTTL(time.Second))
	})
}

func TestClaimThatAnyClientOverwritesHasNoTwoLeadTheKey(t *testing.T) {
	attack(t, func(f *fixture, js jetstream.JetStream, claim, _ string) {
		_, err := js.Publish(context.Background(), claim, []byte("mine"))
		f.Expect(err).NotTo(HaveOccurred())
	})
}

func TestReleaseThatAStrangerForgesHasNoTwoLeadTheKey(t *testing.T) {
	attack(t, func(f *fixture, js jetstream.JetStream, claim, _ string) {
		record, revision := stored(f, js, claim)
		record["released"], record["secret"] = time.Now(), "AAAAAAAAAAAAAAAAAAAAAA"
		write(f, js, claim, record, revision)
	})
}

// led returns a session that leads the key k, and a stranger's access to the stream of the bucket.
func led(f *fixture) (s *session.Session, e *election.Election, js jetstream.JetStream, stream jetstream.Stream) {
	s = f.open("a")
	e = f.start(s, "k")
	time.Sleep(time.Second)
	js = f.js()
	stream, err := js.Stream(context.Background(), "KV_S")
	f.Expect(err).NotTo(HaveOccurred())
	return s, e, js, stream
}

// leadsOn expects that an election leads on for some leases.
func leadsOn(f *fixture, e *election.Election) {
	for range 100 {
		time.Sleep(ttl / 20)
		f.Expect(e.IsLeader()).To(BeTrue())
	}
}

// The server takes from no client what looks like a delivery, for its reply subject is reserved. A sign of life looks like any message.
func TestForgedDeliveryCostsASessionAReadAndNoKey(t *testing.T) {
	play(t, func(f *fixture) {
		s, e, js, stream := led(f)
		before := s.Status().Requests
		for info := range stream.ListConsumers(context.Background()).Info() {
			m := nats.NewMsg(info.Config.DeliverSubject)
			m.Header.Set("Status", "100")
			m.Header.Set("Nats-Last-Consumer", "900")
			f.Expect(js.Conn().PublishMsg(m)).To(Succeed())
		}
		time.Sleep(time.Second)
		f.Expect(s.Status().Requests).To(BeNumerically("==", before+1), "it reads everything anew")
		leadsOn(f, e)
	})
}

func TestRecordThatLooksLikeASignOfLifeCostsASessionNothing(t *testing.T) {
	play(t, func(f *fixture) {
		s, e, js, _ := led(f)
		m := nats.NewMsg("$KV.S.c.other")
		m.Header.Set("Status", "100")
		_, err := js.PublishMsg(context.Background(), m)
		f.Expect(err).NotTo(HaveOccurred())
		before := s.Status().Requests
		leadsOn(f, e)
		f.Expect(s.Status().Requests-before).To(BeNumerically("<", 30), "it renews its lease")
	})
}

// Anybody who may make a consumer of a stream of his own has the server deliver from it to any subject, and who may read has it answer there.
func TestWhatOtherStreamsDeliverToASessionCountsForNothing(t *testing.T) {
	play(t, func(f *fixture) {
		_, e, js, stream := led(f)
		ctx := context.Background()
		_, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "OTHER", Subjects: []string{"a", "b"}, Storage: jetstream.MemoryStorage, AllowDirect: true})
		f.Expect(err).NotTo(HaveOccurred())
		_, err = js.Publish(ctx, "a", nil)
		f.Expect(err).NotTo(HaveOccurred())
		asks := nats.NewMsg("b")
		asks.Header.Set("Status", "100")
		asks.Header.Set("Nats-Consumer-Stalled", "$KV.S.c.k")
		_, err = js.PublishMsg(ctx, asks)
		f.Expect(err).NotTo(HaveOccurred())
		_, before := stored(f, js, "$KV.S.c.k")
		for info := range stream.ListConsumers(ctx).Info() {
			inbox := info.Config.DeliverSubject
			_, err := js.CreatePushConsumer(ctx, "OTHER", jetstream.ConsumerConfig{DeliverSubject: inbox, AckPolicy: jetstream.AckNonePolicy})
			f.Expect(err).NotTo(HaveOccurred())
			f.Expect(js.Conn().PublishRequest("$JS.API.DIRECT.GET.OTHER.b", inbox, nil)).To(Succeed())
		}
		leadsOn(f, e)
		_, after := stored(f, js, "$KV.S.c.k")
		f.Expect(after).To(Equal(before))
	})
}

func TestBucketThatIsGivenAnAgeLimitIsNotLedIn(t *testing.T) {
	play(t, func(f *fixture) {
		s, e, js, stream := led(f)
		ctx, cfg := context.Background(), stream.CachedInfo().Config
		cfg.MaxAge = time.Hour
		_, err := js.UpdateStream(ctx, cfg)
		f.Expect(err).NotTo(HaveOccurred())
		_, err = session.Open(ctx, js, config("b"))
		f.Expect(err).To(MatchError(election.ErrBucketUnsuitable))
		f.Expect(err).To(MatchError(ContainSubstring("nats stream edit KV_S --max-age 0")))
		time.Sleep(45 * ttl) // by then the session has read everything again
		f.Expect(e.IsLeader()).To(BeFalse())
		f.Expect(s.Status().LastError).To(ContainSubstring("--max-age 0"))
		cfg.MaxAge = 0
		_, err = js.UpdateStream(ctx, cfg)
		f.Expect(err).NotTo(HaveOccurred())
		time.Sleep(2 * ttl)
		f.Expect(e.IsLeader()).To(BeTrue())
	})
}
