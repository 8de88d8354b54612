package kv

import (
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"
)

func TestAPIPrefixIsThatOfTheRequestsOfTheClient(t *testing.T) {
	nc := &nats.Conn{}
	for _, c := range []struct {
		prefix, domain, want string
	}{
		{"", "", "$JS.API."}, {"$JS.API", "", "$JS.API."}, {"$JS.API.", "", "$JS.API."},
		{"", "leaf", "$JS.leaf.API."}, {"ops.js", "", "ops.js."}, {"ops.", "", "ops."},
	} {
		g := NewWithT(t)
		js, err := jetstream.New(nc)
		switch {
		case c.domain != "":
			js, err = jetstream.NewWithDomain(nc, c.domain)
		case c.prefix != "":
			js, err = jetstream.NewWithAPIPrefix(nc, c.prefix)
		}
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(APIPrefix(js)).To(Equal(c.want), "%+v", c)
	}
}

func TestRequestWithoutAConnectionIsDescribedAsThat(t *testing.T) {
	g := NewWithT(t)
	err := Describe(fmt.Errorf("update: %w", nats.ErrReconnectBufExceeded))
	g.Expect(err.Error()).To(Equal("not connected to a server"))
	g.Expect(Classify(err)).To(Equal(Unsent))
	g.Expect(Describe(nats.ErrTimeout)).To(Equal(nats.ErrTimeout))
	g.Expect(Describe(nil)).To(BeNil())
}

func TestOnlyWhatIsNeverSentCountsAsCertainlyNotApplied(t *testing.T) {
	tooLarge := &jetstream.APIError{Code: 400, ErrorCode: MessageExceedsMaximum}
	for _, c := range []struct {
		err     error
		outcome Outcome
		failure string
	}{
		{nats.ErrReconnectBufExceeded, Unsent, FailedDisconnected},
		{nats.ErrConnectionDraining, Unsent, FailedDisconnected},
		{nats.ErrInvalidConnection, Unsent, FailedDisconnected},
		{jetstream.ErrNoStreamResponse, Unsent, FailedNoStream},
		{nats.ErrMaxPayload, Unsent, FailedTooLarge},
		{tooLarge, Unsent, FailedTooLarge},
		{nats.ErrConnectionClosed, Unknown, FailedDisconnected}, // the request may have been under way
		{nats.ErrDisconnected, Unknown, FailedDisconnected},
		{nats.ErrTimeout, Unknown, FailedTimeout},
	} {
		g := NewWithT(t)
		err := fmt.Errorf("update: %w", c.err)
		g.Expect(Classify(err)).To(Equal(c.outcome), c.err.Error())
		g.Expect(Failure(err)).To(Equal(c.failure), c.err.Error())
	}
}
