// Package lease_test tests that IsLeader is true only within the lease, and that a term ends only when its loss is proven.
package lease_test

import (
	"testing"

	"github.com/natscampaign/election/internal/test/natstest"
)

func TestMain(m *testing.M) { natstest.VerifyTestMain(m) }
