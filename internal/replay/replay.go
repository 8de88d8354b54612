package replay

import (
	"time"

	"github.com/natscampaign/election/internal/model"
)

// replay follows a trace.
type replay struct {
	trace     *Trace
	limits    model.Limits // of the bucket
	followers []*follower
	key       *Entry
	seq       uint64
	buckets   int // how many were made so far
	made      map[string]int
	widest    int
	next      []int // by event: the next event of the same candidate
}

// Result is what came of a replay.
type Result struct {
	Steps       int            // events that were steps of the model
	Transitions map[string]int // how many runs of candidates surely made each transition, and how often the server did
	Widest      int            // how many states a candidate was in at once at most
	Event       int            // the first event that the model does not have; -1 if it has all
	Problem     string         // what the model has instead
}

// Follow replays a trace.
func Follow(t *Trace) Result {
	r := &replay{trace: t, buckets: 1, made: map[string]int{}}
	for i := range t.Plans {
		p := &t.Plans[i]
		f := &follower{replay: r, who: i, plan: p, gone: true}
		slack := (p.TTL - p.Margin - p.Interval) / 4
		f.limits = model.Limits{
			N: 1, TTL: int64(p.TTL), Interval: int64(p.Interval + slack), Margin: int64(p.Margin), StandDown: int64(p.StandDown), Exact: true,
		}
		r.limits = model.Limits{TTL: int64(p.TTL), Early: int64(p.TTL), Exact: true}
		r.followers = append(r.followers, f)
	}
	r.link()
	for i := range t.Events {
		e := &t.Events[i]
		if !r.event(i, e) {
			return Result{i, r.made, r.widest, i, r.problem(e)}
		}
	}
	for _, f := range r.followers {
		f.leave()
	}
	return Result{len(t.Events), r.made, r.widest, -1, ""}
}

// link finds the next event of each candidate.
func (r *replay) link() {
	r.next = make([]int, len(r.trace.Events))
	last := make([]int, len(r.trace.Plans))
	for i := len(r.trace.Events) - 1; i >= 0; i-- {
		e := &r.trace.Events[i]
		if e.Who < 0 {
			continue
		}
		if r.next[i] = last[e.Who]; e.Kind != Shows && e.Kind != Told {
			last[e.Who] = i
		}
	}
}

// loads reports whether the candidate requests the bucket's info in the instant of an event, after it.
func (r *replay) loads(i int) bool {
	at := r.trace.Events[i].At
	for i = r.next[i]; i > 0 && r.trace.Events[i].At == at; i = r.next[i] {
		if r.trace.Events[i].Kind == AsksInfo {
			return true
		}
	}
	return false
}

// event follows one event, and reports whether the model has it.
func (r *replay) event(i int, e *Event) bool {
	ok := true
	if e.Who >= 0 {
		f := r.followers[e.Who]
		f.pass(e.At)
		if !f.gone || e.Kind == Starts {
			ok = f.event(i, e)
		}
		if e.Kind != Shows && e.Kind != Told {
			f.touched = e.At
		}
	}
	switch e.Kind {
	case Serves:
		if !e.Write.Accepted {
			return ok
		}
		if e.Write.Releases {
			r.followers[e.Who].released = e.Write.Rev
		}
		switch w := e.Write; {
		case w.Late:
			ok = ok && r.arrives(e)
		case w.Deletes:
			ok = ok && r.serve(ptr(r.bucket()), e, "Delete")
		}
		r.key, r.seq = e.Entry, e.Entry.Rev
	case Changes, Rewinds, Remakes:
		ok = r.changes(e)
		fallthrough
	case Clears:
		r.change(e)
	}
	return ok
}

func ptr[T any](v T) *T { return &v }

// change takes note of a change of the key.
func (r *replay) change(e *Event) {
	r.key = e.Entry
	switch {
	case e.Kind == Clears, e.Kind == Remakes:
		r.seq = 0
	case e.Kind == Rewinds:
		r.seq = e.Seq
	case e.Entry != nil:
		r.seq = e.Entry.Rev
	}
	if e.Kind != Remakes {
		return
	}
	r.buckets++
	for _, f := range r.followers {
		f.pass(e.At)
		for i := range f.states {
			f.states[i].Cand.Remade()
			f.states[i].sent.Remade()
		}
	}
}

// since returns when what is stored was written.
func (r *replay) since() time.Duration {
	if r.key == nil {
		return 0
	}
	return r.key.At
}
