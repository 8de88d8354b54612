package history

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"
)

// Belief is a time in which a candidate considered itself leader, by its own answers.
type Belief struct {
	Candidate string
	Term      uint64
	Token     string
	From, To  time.Duration
	Deadline  time.Duration // the last known one
	Reason    string        // of the end of the term; empty if the process was killed
}

// Overtaking is a moment in which a candidate considered itself leader although the leader of a later term had appended a
// record. It proves two leaders even where their beliefs, which are shorter than they really were, do not overlap.
type Overtaking struct {
	Candidate string
	Term      uint64
	Later     string // the token of the later term
	At        time.Duration
}

// Hold is a time in which a candidate held the key, from the write that acquired it.
type Hold struct {
	Candidate string
	Term      uint64
	From, To  time.Duration
}

// Candidate is the content of one candidate's history.
type Candidate struct {
	Name      string
	Beliefs   []Belief
	Holds     []Hold
	Alive     []Hold   // the times in which its process ran; they have no term
	Pauses    []Span   // long times from one answer to the next
	Works     []Belief // the times in which the work of a session's key ran
	Samples   int
	Requests  uint64 // of a session, most from one beat to the next
	Fenced    int
	Overtaken []Overtaking
}

// Read reads the history of the candidate of that name, which ends at the given time at the latest. It skips a last line
// that was cut short.
func Read(r io.Reader, name string, end time.Duration) (*Candidate, error) {
	all, err := ReadKeys(r, name, []string{""}, end)
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// ReadKeys does as [Read] for the process of a session, and returns the history of each of its keys.
func ReadKeys(r io.Reader, name string, keys []string, end time.Duration) (all []*Candidate, err error) {
	readers := map[string]*reader{}
	for _, key := range keys {
		readers[key] = &reader{Candidate: &Candidate{Name: name}}
		all = append(all, readers[key].Candidate)
	}
	lines := bufio.NewReader(r)
	for n := 1; ; n++ {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		var e Event
		if err := json.Unmarshal(bytes.TrimSpace(line), &e); err != nil {
			return nil, fmt.Errorf("history of %s, line %d: %w", name, n, err)
		}
		for key, c := range readers {
			if e.Key == "" || e.Key == key {
				c.add(e)
			}
		}
	}
	for _, c := range readers {
		c.endProcess(end)
		c.cutWorks()
	}
	return all, nil
}

// LongestPause returns the longest time from one answer to the next, without the times in which one of the faults stopped
// the process.
func (c *Candidate) LongestPause(stops []Fault) time.Duration {
	longest := time.Duration(0)
	for _, p := range c.Pauses {
		stopped := slices.ContainsFunc(stops, func(f Fault) bool { return f.hits(c.Name) && f.overlap(p) > 0 })
		if !stopped {
			longest = max(longest, p.To-p.From)
		}
	}
	return longest
}

// reader is the state of a candidate after some events.
type reader struct {
	*Candidate
	belief   *Belief
	hold     *Hold
	alive    *Hold
	work     *Belief
	samples  int // of the running process
	requests uint64
}

func (c *reader) add(e Event) {
	switch e.What {
	case Started:
		c.endProcess(e.At)
		c.alive = &Hold{Candidate: c.Name, From: e.At}
	case Elected:
		c.endHold(e.At)
		c.hold = &Hold{Candidate: c.Name, Term: e.Term, From: e.At}
	case Believes:
		c.endBelief(e.At)
		c.belief = &Belief{Candidate: c.Name, Term: e.Term, Token: e.Token, From: e.At, Deadline: e.Deadline}
	case Renewed:
		if c.belief != nil {
			c.belief.Deadline = e.Deadline
		}
	case Doubts:
		c.endBelief(e.Last)
	case Paused:
		c.Pauses = append(c.Pauses, Span{From: e.Last, To: e.At})
	case Lost:
		c.explain(e)
		c.endHold(e.At)
	case Fenced:
		c.Fenced++
	case Overtaken:
		c.Overtaken = append(c.Overtaken, Overtaking{Candidate: c.Name, Term: e.Term, Later: e.Token, At: e.At})
	case Beat:
		c.samples = e.Samples
		c.Requests = max(c.Requests, e.Requests-c.requests)
		c.requests = e.Requests
	case Works:
		c.endWork(e.At)
		c.work = &Belief{Candidate: c.Name, Term: e.Term, From: e.At}
	case Rests:
		c.endWork(e.At)
	case Killed, Stopped:
		c.endProcess(e.At)
	}
}

// endProcess ends the process, with its belief and hold. A belief ends no later than the lease: the last answers were not
// recorded, and the clock alone would have made them false.
func (c *reader) endProcess(at time.Duration) {
	if c.belief != nil {
		c.endBelief(min(at, c.belief.Deadline))
	}
	c.endHold(at)
	c.endWork(at)
	if c.alive != nil {
		c.alive.To = at
		c.Alive = append(c.Alive, *c.alive)
		c.alive = nil
	}
	c.Samples += c.samples
	c.samples, c.requests = 0, 0
}

func (c *reader) endBelief(at time.Duration) {
	if c.belief != nil {
		c.belief.To = max(at, c.belief.From)
		c.Beliefs = append(c.Beliefs, *c.belief)
		c.belief = nil
	}
}

func (c *reader) endWork(at time.Duration) {
	if c.work != nil {
		c.work.To = max(at, c.work.From)
		c.Works = append(c.Works, *c.work)
		c.work = nil
	}
}

// cutWorks ends each work at a pause that its term did not outlast: nothing can end work while its process is stopped, and the process
// needs a moment after that.
func (c *reader) cutWorks() {
	terms := map[uint64]Belief{}
	for _, b := range c.Beliefs {
		terms[b.Term] = b
	}
	for i := range c.Works {
		w := &c.Works[i]
		w.Deadline = terms[w.Term].Deadline
		for _, p := range c.Pauses {
			if w.From < p.To && p.From < w.To && terms[w.Term].To < p.To {
				w.To = max(w.From, p.From)
			}
		}
	}
}

func (c *reader) endHold(at time.Duration) {
	if c.hold != nil {
		c.hold.To = max(at, c.hold.From)
		c.Holds = append(c.Holds, *c.hold)
		c.hold = nil
	}
}

// explain adds the reason to the belief that has ended or is about to end.
func (c *reader) explain(e Event) {
	if c.belief != nil && c.belief.Term == e.Term {
		c.belief.Reason = e.Reason
		return
	}
	if n := len(c.Beliefs); n > 0 && c.Beliefs[n-1].Term == e.Term {
		c.Beliefs[n-1].Reason = e.Reason
	}
}
