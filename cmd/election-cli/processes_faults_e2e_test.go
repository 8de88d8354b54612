package main

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/drill/chaos"
)

// A leader that may still write needs none of its other permissions, and no message of a stranger ends its term.
func TestALeaderKeepsLeadingWhilePermissionsAreRevokedAndChangesAreForged(t *testing.T) {
	t.Parallel()
	r := drillWith(t, "--fault", "revoke", "--fault", "forge")
	g := NewWithT(t)
	g.Expect(r.Changes).To(BeEmpty())
	g.Expect(r.Overlap).To(BeZero())
	g.Expect(r.Terms).To(Equal(1))
	for _, kind := range []string{"revoke", "forge"} {
		g.Expect(r.Faults).To(ContainElement(And(HaveField("Kind", kind), HaveField("Count", BeNumerically(">=", 1)))))
	}
}

// In this drill the bucket forgets renewals and whole terms.
func TestALeaderStandsDownAtOnceWhenItDetectsARewind(t *testing.T) {
	t.Parallel()
	r := drillWith(t, "--replicas", "1", "--fault", "rewind")
	g := NewWithT(t)
	g.Expect(r.Overlap).To(BeZero())
	g.Expect(r.TermsOutOfOrder).To(BeZero())
	g.Expect(r.Faults).To(ContainElement(And(HaveField("Kind", chaos.Rewind), HaveField("Count", BeNumerically(">=", 1)))))
}
