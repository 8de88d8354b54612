package admin_test

import (
	"context"
	"testing"

	"github.com/nats-io/nats.go"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/admin"
	"github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/natstest"
)

func TestMain(m *testing.M) { natstest.VerifyTestMain(m) }

type (
	fleet     = fleettest.Fleet
	candidate = fleettest.Candidate
)

const (
	ttl      = fleettest.TTL
	interval = fleettest.Interval
	key      = fleettest.Key
	instant  = fleettest.Instant
)

var (
	after          = fleettest.After
	republished    = fleettest.Republished
	withoutMarkers = fleettest.WithoutMarkers

	ctx = context.Background()
)

// operator returns an admin on a connection of its own.
func operator(f *fleet, opts ...nats.Option) *admin.Admin {
	f.Helper()
	a, err := admin.New(f.Open(f.Server.Connect(f.T, opts...)))
	f.Expect(err).NotTo(HaveOccurred())
	return a
}
