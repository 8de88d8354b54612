package sessions

import (
	"slices"
	"testing"

	"github.com/natscampaign/election/internal/test/schedules"
)

var simulator = schedules.Simulator{
	Package: "./internal/test/sim/sessions",
	Run:     Run,
	Names:   slices.Concat(faultNames[:], actNames[:]),
	Others:  others[:],
	Steps:   steps,
	Own:     2000,
	Moves:   100_000,
}

func TestSchedules(t *testing.T) { simulator.Test(t) }

func TestTheSeedDecidesEverything(t *testing.T) { simulator.TestSeeds(t, 100) }
