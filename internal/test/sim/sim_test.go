package sim

import (
	"slices"
	"testing"

	"github.com/natscampaign/election/internal/test/schedules"
	"github.com/natscampaign/election/internal/test/sim/judge"
)

var simulator = schedules.Simulator{
	Package: "./internal/test/sim",
	Run:     Run,
	Names:   slices.Concat(faultNames[:], actNames[:]),
	Others:  slices.Concat(forgeryNames[:], []string{renewalDeleted, differentSpeeds, judge.WonAndLed, silentAPI, targetGone}),
	Steps:   steps,
	Own:     2000,
	Moves:   200_000,
}

func TestSchedules(t *testing.T) { simulator.Test(t) }

func TestTheSeedDecidesEverything(t *testing.T) { simulator.TestSeeds(t, 200) }
