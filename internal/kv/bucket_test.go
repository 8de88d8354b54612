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

func TestARefusalToWriteIsRecognisedWhateverThePrefixOfTheAPI(t *testing.T) {
	for prefix, want := range map[string]string{"$JS.API": "$KV.B.k", "$JS.leaf.API": "$JS.leaf.API.$KV.B.k", "js.acme": "js.acme.$KV.B.k"} {
		g := NewWithT(t)
		js, err := jetstream.NewWithAPIPrefix(&nats.Conn{}, prefix)
		g.Expect(err).NotTo(HaveOccurred())
		p := (&Bucket{KeyValue: named{}, js: js}).ToWrite("k")
		g.Expect(p.Subject).To(Equal(want))
		g.Expect(p.refusedBy(fmt.Errorf(`%w: Permissions Violation for Publish to "%s"`, nats.ErrPermissionViolation, want))).To(BeTrue(), want)
		g.Expect(p.refusedBy(fmt.Errorf(`%w: Permissions Violation for Publish to "%s.of.another"`, nats.ErrPermissionViolation, want))).To(BeFalse(), want)
	}
}

// named is a bucket of which only the name is known.
type named struct{ jetstream.KeyValue }

func (named) Bucket() string { return "B" }

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
