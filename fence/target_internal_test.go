package fence

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"
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
