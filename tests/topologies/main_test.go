// Package topologies_test tests elections across leaf nodes, gateways and WebSocket, and together with candidates of Choria.
package topologies_test

import (
	"testing"

	"github.com/natscampaign/election/internal/test/natstest"
)

func TestMain(m *testing.M) { natstest.VerifyTestMain(m) }
