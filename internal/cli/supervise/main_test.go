package supervise

import (
	"os"
	"testing"

	"github.com/natscampaign/election/internal/test/natstest"
)

func TestMain(m *testing.M) {
	PassGate(os.Args)
	natstest.VerifyTestMain(m)
}
