// Package standdown_test tests that a winner waits until its predecessor has stood down, whatever happened to the key, the bucket or its history.
package standdown_test

import (
	"testing"

	"github.com/natscampaign/election/internal/test/natstest"
)

func TestMain(m *testing.M) { natstest.VerifyTestMain(m) }
