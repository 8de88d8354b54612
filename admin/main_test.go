package admin_test

import (
	"context"
	"testing"

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

	operator = (*fleet).Operator

	ctx = context.Background()
)
