package fence

import (
	"cmp"
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
)

func TestRequestIsMadeAgainUntilSomebodyAnswersForTheStream(t *testing.T) {
	noLeader := &jetstream.APIError{Code: 503, ErrorCode: 10008, Description: "JetStream system temporarily unavailable"}
	for name, failure := range map[string]error{
		"no leader":     noLeader,
		"no responders": nats.ErrNoResponders,
		"no stream":     jetstream.ErrNoStreamResponse,
		"silence":       nil,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewWithT(t)
				began, tries := time.Now(), 0
				ask := func(ctx context.Context) error {
					if tries++; time.Since(began) > 5*time.Second {
						return nil
					}
					if failure == nil {
						<-ctx.Done()
						return ctx.Err()
					}
					return failure
				}
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				g.Expect(persist(ctx, ask)).To(Succeed())
				g.Expect(tries).To(BeNumerically("<", 10))
				g.Expect(time.Since(began)).To(BeNumerically("<", 7*time.Second), "soon after it is there")

				began, tries = time.Now(), 0
				short, cancel := context.WithTimeout(context.Background(), time.Second)
				defer cancel()
				g.Expect(persist(short, ask)).NotTo(Succeed())
				g.Expect(time.Since(began)).To(Equal(time.Second))
			})
		})
	}
}

func TestRequestThatIsRefusedIsNotMadeAgain(t *testing.T) {
	g, tries := NewWithT(t), 0
	refused := errors.New("refused")
	g.Expect(persist(context.Background(), func(context.Context) error { tries++; return refused })).To(MatchError(refused))
	g.Expect(tries).To(Equal(1))
}

func TestServersThatStoreWritesOfOlderEpochsAreRefused(t *testing.T) {
	for version, fit := range map[string]bool{
		"": false, "2.11.0": false, "2.11.6": false, "2.11.7-RC.1": true, "2.11.7": true, "2.11.17": true, "2.12.0": true, "2.15.2": true, "3.0.0": true,
		"development": false,
	} {
		g := NewWithT(t)
		err := checkStream(&jetstream.StreamInfo{Config: jetstream.StreamConfig{Subjects: []string{"x"}, Metadata: map[string]string{serverVersion: version}}}, "x", election.Term{})
		if fit {
			g.Expect(err).NotTo(HaveOccurred(), version)
		} else {
			g.Expect(err).To(MatchError(And(ContainSubstring(cmp.Or(version, "2.10 or older")), ContainSubstring("2.11.7 or newer"))), version)
		}
	}
}

func TestSubjectsMatchPatternsAsTheServerHasIt(t *testing.T) {
	g := NewWithT(t)
	for _, c := range []struct {
		pattern, subject string
		matches          bool
	}{
		{"a", "a", true}, {"a", "b", false}, {"a.b", "a", false}, {"a", "a.b", false}, {">", "a", true}, {">", "a.b.c", true},
		{"a.>", "a", false}, {"a.>", "a.b", true}, {"a.>", "a.b.c", true}, {"a.>", "b.c", false}, {"*", "a", true}, {"*", "a.b", false},
		{"a.*", "a", false}, {"a.*", "a.b", true}, {"a.*.c", "a.b.c", true}, {"a.*.c", "a.b.d", false}, {"*.*", "a.b", true}, {"*.>", "a", false},
	} {
		g.Expect(matches(c.pattern, c.subject)).To(Equal(c.matches), "%+v", c)
	}
}
