// Package trust_test tests that no message, record or request of others elects a second leader or ends a term, and what missing permissions cost.
package trust_test

import (
	"testing"

	"github.com/natscampaign/election/internal/test/natstest"
)

func TestMain(m *testing.M) { natstest.VerifyTestMain(m) }
