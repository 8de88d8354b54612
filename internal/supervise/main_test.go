package supervise

import (
	"os"
	"testing"

	"github.com/natscampaign/election/internal/natstest"
)

func TestMain(m *testing.M) {
	PassGate(os.Args)
	if len(os.Args) > 1 && os.Args[1] == GuardianCommand {
		Guard()
		return
	}
	natstest.VerifyTestMain(m)
}
