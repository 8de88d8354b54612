package processes

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/drill/history"
)

func TestTheLatestReportedTermNamesTheLeader(t *testing.T) {
	g := NewWithT(t)
	var terms []uint64
	l := &Leaders{Reported: []map[string]ReportedTerm{{}, {}}, OnTerm: func(_ int, term uint64) { terms = append(terms, term) }}
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

func TestLeaderOfMostKeysIsTheLeaderAndAllKeysAreLedOnceTheLastOneIs(t *testing.T) {
	g := NewWithT(t)
	l := &Leaders{Reported: []map[string]ReportedTerm{{}, {}}}
	report := func(candidate int, key string, term uint64) {
		l.update(candidate, history.Event{What: history.Believes, Key: key, Term: term, At: time.Duration(term)})
	}
	report(0, "a", 1)
	report(0, "b", 2)
	_, all := l.Since([]string{"a", "b", "c"})
	g.Expect(all).To(BeFalse())
	report(1, "c", 3)
	candidate, _ := l.Latest()
	g.Expect(candidate).To(Equal(0))
	since, all := l.Since([]string{"a", "b", "c"})
	g.Expect(all).To(BeTrue())
	g.Expect(since).To(Equal(time.Duration(3)))
	report(1, "b", 4) // candidate 0 is stopped and reports nothing
	l.update(0, history.Event{What: history.Doubts, Key: "b"})
	g.Expect(l.Of(0)).To(HaveLen(1))
	candidate, _ = l.Latest()
	g.Expect(candidate).To(Equal(1))
	l.update(0, history.Event{What: history.Stopped})
	g.Expect(l.Of(0)).To(BeEmpty())
}
