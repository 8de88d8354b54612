package tracer

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/replay"
	"github.com/natscampaign/election/internal/sim/judge"
)

func TestFactsThatAreOneRemainOneInTheTrace(t *testing.T) {
	g, now := NewWithT(t), time.Now()
	tracer := New(now, 10*time.Second)
	l := &judge.Ledger{Candidate: judge.Candidate{Name: "a"}}
	tracer.Add(l)
	q := &judge.Write{By: l, Create: true, Sent: now, Content: judge.Content{Attempt: "x", Since: now}}
	e := &judge.Entry{Revision: 7, Write: q}
	tracer.Sent(q)
	q.Revision = 7
	tracer.Served(q, nil, false, e)
	tracer.Changed(judge.Change{After: e}) // which is the write
	tracer.Returned(q, nil, 0, false)
	tracer.Read(l, e, nil)

	g.Expect(tracer.Events).To(HaveLen(4))
	w, stored := tracer.Events[0].Write, tracer.Events[1].Entry
	g.Expect(tracer.Events[1].Write).To(BeIdenticalTo(w))
	g.Expect(tracer.Events[2].Write).To(BeIdenticalTo(w))
	g.Expect(tracer.Events[3].Entry).To(BeIdenticalTo(stored))
	g.Expect(stored.Write).To(BeIdenticalTo(w))
	g.Expect(w.Wins && w.Accepted && w.Returned).To(BeTrue())
	g.Expect(w.Outcome).To(Equal(replay.Applied))
	g.Expect(stored.Rev).To(Equal(uint64(7)))
}

func TestWritesOfStrangersAreChangesInTheTrace(t *testing.T) {
	g := NewWithT(t)
	tracer := New(time.Now(), 10*time.Second)
	q := &judge.Write{Value: []byte("stranger")}
	e := &judge.Entry{Revision: 7, Value: q.Value, Write: q}
	tracer.Served(q, nil, false, e)
	tracer.Changed(judge.Change{After: e})
	g.Expect(tracer.Events).To(HaveLen(1))
	g.Expect(tracer.Events[0].Kind).To(Equal(replay.Changes))
	g.Expect(tracer.Events[0].Who).To(Equal(-1))
	g.Expect(tracer.Events[0].Entry.By).To(Equal(-1))
	g.Expect(tracer.Events[0].Entry.Write).To(BeNil())
}
