// Package quiet_test tests that candidates cost few requests, receive notifications by the best source, and are not alarmed all at once.
package quiet_test

import (
	"testing"

	"github.com/natscampaign/election/internal/test/natstest"
)

func TestMain(m *testing.M) { natstest.VerifyTestMain(m) }
