// Package handover_test tests that work ends before the key is released, and that the next leader follows at once.
package handover_test

import (
	"testing"

	"github.com/natscampaign/election/internal/test/natstest"
)

func TestMain(m *testing.M) { natstest.VerifyTestMain(m) }
