package election

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/core"
)

// The public names have their values beside them, for who reads the documentation. Package core has the same ones.
func TestStatesAndReasonsAreThoseThatTheDecisionsHave(t *testing.T) {
	g := NewWithT(t)
	for public, decided := range map[State]core.State{CandidateState: core.Follower, LeaderState: core.Leader, LeaderElectState: core.LeaderElect} {
		g.Expect(public).To(Equal(State(decided)))
	}
	for public, decided := range map[Reason]core.Reason{
		ReasonVacant: core.Vacant, ReasonReleased: core.Released, ReasonReclaimed: core.Reclaimed, ReasonLapsed: core.Lapsed, ReasonStoodDown: core.StoodDown,
		ReasonStopped: core.Stopped, ReasonResigned: core.Resigned, ReasonTransferred: core.Transferred, ReasonRelinquished: core.Relinquished,
		ReasonUnhealthy: core.Unhealthy, ReasonWorkEnded: core.WorkEnded, ReasonOverwritten: core.Overwritten, ReasonDeleted: core.Deleted,
		ReasonBucketReplaced: core.BucketReplaced, ReasonCloned: core.Cloned, ReasonRewound: core.Rewound, ReasonClosed: core.Closed,
		ReasonDeadline: core.Deadline, ReasonDied: core.Died,
	} {
		g.Expect(public).To(Equal(Reason(decided)))
	}
}
