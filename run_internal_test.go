package election

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/core"
)

// A review found it: a Stop that came between the beginning of Start and that of its run was forgotten, and the candidate campaigned for ever.
func TestStopBeforeARunBeginsEndsIt(t *testing.T) {
	g := NewWithT(t)
	e, err := NewElection("a", "scheduler", unopened{})
	g.Expect(err).NotTo(HaveOccurred())
	r, err := e.enter(t.Context(), nil)
	g.Expect(err).NotTo(HaveOccurred())
	e.Stop()
	r.beginRun(time.Now())
	op, _ := r.begin(time.Now())
	g.Expect(op.Kind).To(Equal(core.Finish))
	e.leave(r)
}
