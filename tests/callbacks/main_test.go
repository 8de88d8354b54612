// Package callbacks_test tests that callbacks and work are called in order, cost no lease, and may call every method.
package callbacks_test

import (
	"testing"

	"github.com/natscampaign/election/internal/test/natstest"
)

func TestMain(m *testing.M) { natstest.VerifyTestMain(m) }
