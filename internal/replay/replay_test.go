package replay

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// story is a trace of one candidate, event by event.
type story struct {
	Trace
	now time.Duration
	key *Entry
	seq uint64
}

func newStory() *story {
	s := &story{}
	s.Plans = []Plan{{Name: "a", TTL: 10 * time.Second, Interval: 7500 * time.Millisecond, Margin: 200 * time.Millisecond, StandDown: 7500 * time.Millisecond}}
	s.Buckets = []time.Time{{}}
	s.add(Event{Kind: Starts})
	return s
}

func (s *story) add(e Event) {
	e.At = s.now
	s.Events = append(s.Events, e)
}

func (s *story) wait(d time.Duration) { s.now += d }

// read has the candidate read the key.
func (s *story) read() {
	s.add(Event{Kind: Asks})
	s.wait(time.Millisecond)
	s.add(Event{Kind: Reads, Entry: s.key})
}

// write has the candidate write, with an outcome.
func (s *story) write(w *Write, o Outcome) {
	w.Sent = s.now
	s.add(Event{Kind: Sends, Write: w})
	s.wait(time.Millisecond)
	w.Served, w.Accepted, w.Before, w.Outcome, w.Returned = true, true, s.key, o, true
	s.seq++
	w.Rev = s.seq
	s.key = &Entry{At: s.now, Rev: s.seq, Record: true, Release: w.Releases, Left: w.Left, Write: w}
	s.add(Event{Kind: Serves, Write: w, Entry: s.key})
	s.wait(time.Millisecond)
	w.At = s.now
	s.add(Event{Kind: Receives, Write: w})
}

func (s *story) loadInfo() {
	s.add(Event{Kind: AsksInfo})
	s.wait(time.Millisecond)
	s.add(Event{Kind: HasInfo})
}

// win has the candidate win a key that is free.
func (s *story) win() {
	s.read()
	s.write(&Write{Create: true, Wins: true, Left: 7500 * time.Millisecond}, Applied)
	s.loadInfo()
	s.show(IsElect)
}

func (s *story) renew(left time.Duration, o Outcome) {
	s.write(&Write{Expect: s.key.Rev, Left: left}, o)
}

func (s *story) show(state State) {
	s.wait(1)
	s.add(Event{Kind: Shows, State: state})
}

// lead has the candidate win the key, and renew after its stand-down.
func (s *story) lead() {
	s.win()
	s.wait(7500 * time.Millisecond)
	s.renew(0, Applied)
	s.show(Leads)
}

// stories end in a step that the model has not, or follow the model to their ends.
var stories = []struct {
	name    string
	problem string // of the last step; empty if the model has it
	tell    func(s *story)
}{
	{"a candidate leads from its stand-down to its deadline", "", func(s *story) {
		s.lead()
		s.wait(9 * time.Second)
		s.show(Leads)
	}},
	{"a candidate leads before the end of its stand-down", "shows itself as leader", func(s *story) {
		s.win()
		s.show(Leads)
	}},
	{"a leader leads after its deadline", "shows itself as leader", func(s *story) {
		s.lead()
		s.wait(10 * time.Second)
		s.show(Leads)
	}},
	{"a leader gives up without a reason", "shows itself as candidate", func(s *story) {
		s.lead()
		s.show(Campaigns)
	}},
	{"a candidate writes over what it has not read", "a write to win over 3", func(s *story) {
		s.read()
		s.add(Event{Kind: Sends, Write: &Write{Expect: 3, Wins: true, Left: 7500 * time.Millisecond}})
	}},
	{"a leader reads its own renewal whose reply was lost", "", func(s *story) {
		s.lead()
		before := s.key.Rev
		s.wait(7500 * time.Millisecond)
		s.renew(0, Unknown)
		w := &Write{Expect: before, Sent: s.now, Served: true, Before: s.key, Returned: true, Outcome: Refused, Named: true, Last: s.key.Rev}
		s.add(Event{Kind: Sends, Write: w})
		s.wait(time.Millisecond)
		s.add(Event{Kind: Serves, Write: w})
		s.wait(time.Millisecond)
		s.add(Event{Kind: Receives, Write: w})
		s.read()
		s.loadInfo()
		s.wait(9 * time.Second) // longer than the lease was that it had before
		s.show(Leads)
	}},
	{"a leader releases the key before its work has returned", "a release", func(s *story) {
		s.lead()
		s.add(Event{Kind: Resigns})
		s.add(Event{Kind: Sends, Busy: true, Write: &Write{Expect: s.key.Rev, Releases: true}})
	}},
}

func TestReplayFindsTheStepsThatTheModelHasNotAndNoOthers(t *testing.T) {
	for _, c := range stories {
		t.Run(c.name, func(t *testing.T) {
			s := newStory()
			c.tell(s)
			g, r := NewWithT(t), Follow(&s.Trace)
			if c.problem == "" {
				g.Expect(r.Event).To(Equal(-1), "%s%s", s.Text(max(0, r.Event), 20), r.Problem)
				return
			}
			g.Expect(r.Event).To(Equal(len(s.Events)-1), "%s", r.Problem)
			g.Expect(r.Problem).To(ContainSubstring(c.problem))
		})
	}
}
