package replay

import "github.com/natscampaign/election/internal/model"

// changes has the server or an operator change the key.
func (r *replay) changes(e *Event) bool {
	s := r.bucket()
	age := int64(e.At - r.since())
	s.Key.Age = age
	var steps []string
	switch entry := e.Entry; {
	case e.Kind == Rewinds:
		steps = []string{"Rewind"}
		s.IsCopy, s.CopySeq, s.Copy = true, int64(e.Seq), raw(entry)
		if entry != nil {
			r.made["MakeCopy"]++
		}
	case e.Kind == Remakes:
		steps = []string{"Remake"}
	case entry == nil && (s.Key.Kind == model.Marker || age >= r.limits.TTL):
		steps = []string{"Expire"}
	case entry == nil:
		steps = []string{"ExpireEarly", "Expire"}
	case entry.Expired && age >= r.limits.TTL:
		steps = []string{"ExpireMarked"}
	case entry.Expired:
		steps = []string{"ExpireEarly"}
	case entry.Record:
		steps = []string{"Overwrite"}
	default:
		steps = []string{"Delete"}
	}
	return r.serve(&s, e, steps...)
}

// arrives has a write arrive that its sender gave up.
func (r *replay) arrives(e *Event) bool {
	s, w := r.bucket(), e.Write
	s.IsLate, s.Over, s.Late = true, int64(w.Expect), raw(e.Entry)
	if w.Create && s.Key.Kind == model.Nothing { // the client had not read the marker yet
		s.Over = 0
	}
	return r.serve(&s, e, "LateArrives")
}

// bucket returns the state of the bucket.
func (r *replay) bucket() model.State {
	s := model.State{Key: raw(r.key), Seq: max(1, int64(r.seq)), Faults: trouble}
	return s
}

// serve makes steps of the server, which must leave what the trace has.
func (r *replay) serve(s *model.State, e *Event, steps ...string) bool {
	if e.Entry != nil && e.Kind != Rewinds {
		s.Seq = int64(e.Entry.Rev) - 1
	}
	for _, name := range steps {
		if !r.limits.Step(s, 0, name) {
			return false
		}
		r.made[name]++
	}
	want := raw(e.Entry)
	return s.Key.Rev == want.Rev && s.Key.Kind == want.Kind
}

// raw returns an entry as the server has it.
func raw(e *Entry) model.Rec {
	r := model.Rec{Kind: model.Nothing, Own: model.Stranger}
	switch {
	case e == nil:
		return r
	case e.Release:
		r.Kind = model.Release
	case e.Record:
		r.Kind = model.Record
	case e.Expired:
		r.Kind = model.Marker
	default:
		r.Kind = model.Tombstone
	}
	r.Rev = int64(e.Rev)
	return r
}
