package session_test

import (
	"context"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/natstest"
	"github.com/natscampaign/election/session"
)

// block returns the subjects of a list in the block of the README, each with its comment.
func block(g Gomega, list string) (subjects, comments []string) {
	readme, err := os.ReadFile("README.md")
	g.Expect(err).NotTo(HaveOccurred())
	_, text, _ := strings.Cut(string(readme), "  "+list+" = [\n")
	text, _, _ = strings.Cut(text, "  ]")
	for _, m := range regexp.MustCompile(`"(.*?)" +# (.*)`).FindAllStringSubmatch(text, -1) {
		subjects, comments = append(subjects, m[1]), append(comments, m[2])
	}
	return subjects, comments
}

// works reports what two processes with these permissions can do: open sessions, lead, read who leads, and transfer a key.
func works(t *testing.T, publish, subscribe []string) (opens, leads, reads, transfers bool) {
	natstest.Bubble(t, func(t *testing.T) {
		g, ctx := NewWithT(t), context.Background()
		s := natstest.Start(t, func(o *server.Options) {
			o.Users = []*server.User{{Username: "root", Password: "p"}, {Username: "worker", Password: "p", Permissions: &server.Permissions{
				Publish: &server.SubjectPermission{Allow: publish}, Subscribe: &server.SubjectPermission{Allow: subscribe},
			}}}
		})
		connect := func(user string) jetstream.JetStream {
			js, err := jetstream.New(s.Connect(t, nats.UserInfo(user, "p"), nats.CustomInboxPrefix("_INBOX_"+user)))
			g.Expect(err).NotTo(HaveOccurred())
			return js
		}
		cfg := session.Config{Bucket: "TENANTS", Name: "root", TTL: ttl, Storage: jetstream.MemoryStorage}
		first, err := session.Open(ctx, connect("root"), cfg)
		g.Expect(err).NotTo(HaveOccurred())
		time.Sleep(2 * ttl)
		g.Expect(first.Close(ctx)).To(Succeed())
		var sessions []*session.Session
		var elections []*election.Election
		for _, name := range []string{"a", "b"} {
			cfg.Name = name
			limited, cancel := context.WithTimeout(ctx, ttl)
			s, err := session.Open(limited, connect("worker"), cfg)
			cancel()
			if err != nil {
				time.Sleep(3 * ttl) // until what it began has ended
				return
			}
			e, err := s.Election("k")
			g.Expect(err).NotTo(HaveOccurred())
			go func() { _ = e.Start(ctx) }()
			time.Sleep(time.Second)
			sessions, elections = append(sessions, s), append(elections, e)
		}
		opens = true
		if leads = elections[0].IsLeader(); leads {
			_, err := elections[1].Leader(ctx)
			reads = err == nil
			transfers = elections[0].Transfer(ctx, "b") == nil && elections[1].IsLeader()
		}
		for _, s := range sessions {
			g.Expect(s.Close(ctx)).To(Succeed())
		}
	})
	return opens, leads, reads, transfers
}

func TestBlockOfTheReadmePermitsWhatASessionNeeds(t *testing.T) {
	g := NewWithT(t)
	publish, _ := block(g, "publish")
	subscribe, _ := block(g, "subscribe")
	opens, leads, reads, transfers := works(t, publish, subscribe)
	g.Expect([]bool{opens, leads, reads, transfers}).To(HaveEach(true))
}

func TestEachLineOfTheBlockIsNeededForWhatItsCommentSays(t *testing.T) {
	g := NewWithT(t)
	publish, comments := block(g, "publish")
	subscribe, subscribed := block(g, "subscribe")
	g.Expect(publish).To(HaveLen(10))
	g.Expect(subscribe).To(HaveLen(3))
	check := func(comment string, publish, subscribe []string) {
		if slices.Contains([]string{"leave no consumer", "follow for long", "have later first terms begin at once"}, comment) {
			return // what is missed is seen later only
		}
		opens, leads, reads, transfers := works(t, publish, subscribe)
		switch comment {
		case "open the bucket", "follow the bucket", "renew a session, and close others":
			g.Expect(opens).To(BeFalse(), comment)
		case "claim keys":
			g.Expect(leads).To(BeFalse(), comment)
		case "Election.Leader":
			g.Expect(reads).To(BeFalse(), comment)
		case "transfer":
			g.Expect(transfers).To(BeFalse(), "without %v", publish)
		default:
			t.Errorf("nothing tries what is said to be permitted: %s", comment)
		}
	}
	for i, comment := range comments {
		check(comment, slices.Delete(slices.Clone(publish), i, i+1), subscribe)
	}
	for i, comment := range subscribed {
		check(comment, publish, slices.Delete(slices.Clone(subscribe), i, i+1))
	}
}

func TestLastErrorNamesWhatTheElectionOfAKeyLacks(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		g, ctx := NewWithT(t), context.Background()
		server := natstest.Start(t, func(o *server.Options) {
			o.Users = []*server.User{
				{Username: "worker", Password: "p", Permissions: &server.Permissions{Publish: &server.SubjectPermission{Deny: []string{"$KV.S.c.denied"}}}},
				{Username: "blind", Password: "p", Permissions: &server.Permissions{Publish: &server.SubjectPermission{Deny: []string{"$JS.API.CONSUMER.>"}}}},
			}
		})
		connect := func(user string) jetstream.JetStream {
			js, err := jetstream.New(server.Connect(t, nats.UserInfo(user, "p")))
			g.Expect(err).NotTo(HaveOccurred())
			return js
		}
		var log fleettest.Log
		s, err := session.Open(ctx, connect("worker"), config("a"), election.WithLogger(log.Logger()))
		g.Expect(err).NotTo(HaveOccurred())
		denied, err := s.Election("denied")
		g.Expect(err).NotTo(HaveOccurred())
		led, err := s.Election("led")
		g.Expect(err).NotTo(HaveOccurred())
		for _, e := range []*election.Election{denied, led} {
			go func() { _ = e.Start(ctx) }()
		}
		time.Sleep(3 * ttl)
		for range 1000 {
			time.Sleep(17 * time.Millisecond)
			g.Expect(denied.Status().LastError).NotTo(BeEmpty())
			g.Expect(led.Status().LastError).To(BeEmpty())
			g.Expect(s.Status().LastError).NotTo(BeEmpty())
		}
		g.Expect(led.IsLeader()).To(BeTrue())
		g.Expect(log.Count("Write failed")).To(Equal(1))
		g.Expect(log.String()).To(ContainSubstring("subject=$KV.S.c.denied"))
		for range 10 {
			within, cancel := context.WithTimeout(ctx, ttl)
			_, err := session.Open(within, connect("blind"), config("b"))
			cancel()
			g.Expect(err).To(MatchError(ContainSubstring("CONSUMER.CREATE")))
		}
		time.Sleep(3 * ttl)
		g.Expect(s.Close(ctx)).To(Succeed())
	})
}
