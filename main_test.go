package election_test

import (
	"testing"

	"github.com/natscampaign/election/internal/test/natstest"
)

func TestMain(m *testing.M) { natstest.VerifyTestMain(m) }
