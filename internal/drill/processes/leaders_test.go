package processes

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/drill/history"
)

func TestTheLatestReportedTermNamesTheLeader(t *testing.T) {
	g := NewWithT(t)
	var terms []uint64
	l := &Leaders{Reported: make([]ReportedTerm, 2), OnTerm: func(_ int, term uint64) { terms = append(terms, term) }}
	candidate, _ := l.Latest()
	g.Expect(candidate).To(Equal(-1))
	l.update(0, history.Event{What: history.Believes, Term: 3, At: 1})
	l.update(1, history.Event{What: history.Believes, Term: 5, At: 2}) // candidate 0 is stopped and reports nothing
	candidate, latest := l.Latest()
	g.Expect(candidate).To(Equal(1))
	g.Expect(latest).To(Equal(ReportedTerm{Term: 5, Since: 2}))
	l.update(1, history.Event{What: history.Doubts})
	l.update(0, history.Event{What: history.Stopped})
	candidate, _ = l.Latest()
	g.Expect(candidate).To(Equal(-1))
	g.Expect(terms).To(Equal([]uint64{3, 5}))
}
