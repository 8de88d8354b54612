// Package reports_test tests that states, metrics, probes and logs say what is true.
package reports_test

import (
	"testing"

	"github.com/natscampaign/election/internal/test/natstest"
)

func TestMain(m *testing.M) { natstest.VerifyTestMain(m) }
