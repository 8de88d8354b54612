package main

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/chaos"
)

func TestForgedChangesCauseNoChangeOfLeader(t *testing.T) {
	t.Parallel()
	r := drillWith(t, "--for", "15s", "--ttl", "2s", "--fault", "forge")
	g := NewWithT(t)
	g.Expect(r.Changes).To(BeEmpty())
	g.Expect(r.OverlapMS).To(BeZero())
	g.Expect(r.Terms).To(Equal(1))
	g.Expect(r.Faults).To(ContainElement(And(HaveField("Kind", "forge"), HaveField("Count", BeNumerically(">=", 3)))))
}

// In this drill the bucket forgets renewals and whole terms.
func TestALeaderStandsDownAtOnceWhenItDetectsARewind(t *testing.T) {
	t.Parallel()
	r := drillWith(t, "--for", "22s", "--ttl", "3s", "--replicas", "1", "--fault", "rewind")
	g := NewWithT(t)
	g.Expect(r.OverlapMS).To(BeZero())
	g.Expect(r.TermsOutOfOrder).To(BeZero())
	g.Expect(r.Faults).To(ContainElement(And(HaveField("Kind", chaos.Rewind), HaveField("Count", BeNumerically(">=", 2)))))
}
