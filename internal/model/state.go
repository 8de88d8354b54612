package model

// Kind is what is stored under the key, or what a candidate read there.
type Kind int8

// The kinds.
const (
	Nothing   Kind = iota + 1 // not even a marker
	Marker                    // of an expiry
	Tombstone                 // of a deletion
	Record                    // of a holder
	Release
	Blind // the key could not be read
)

// Status is what a candidate does.
type Status int8

// The states of a candidate.
const (
	Candidate Status = iota
	Elect
	Leader
	Drain // leadership has ended, the key is kept until work has returned
)

// Link is what is wrong with a candidate's connection or process.
type Link int8

// The links.
const (
	Fine    Link = iota
	Cut          // no message passes
	Mute         // requests arrive, no reply does
	Holding      // writes are held up, and arrive after their sender gave them up
	Frozen       // the process is stopped
	Hanging      // the work does not return
	NoInfo       // the bucket's info cannot be loaded
)

// Stranger is the owner of a record that no candidate of the model holds.
const Stranger int8 = 100

// Rec is what is stored under the key, or travels to it.
type Rec struct {
	Kind  Kind
	Own   int8
	Rev   int64
	Age   int64
	Lease int64 // what the write would earn its writer, who still knows the attempt; 0 if none does
	Left  int64 // of the writer's stand-down
	Named bool  // the release names successors
	Old   int8  // how many times the bucket was made again since
}

// Cand is one candidate.
type Cand struct {
	St                 Status
	Link               Link
	Rev, Num, Highest  int64
	Lease              int64 // until the deadline
	Counts             int64 // until the stand-down is over
	Next               int64 // until it renews or campaigns
	Seen               Kind  // what was read; its write is about to follow
	SeenRev, SeenLeft  int64
	SeenOwn, SeenNamed bool
	SeenOld            int8
	Sent               int64 // what an applied write earns whose reply waits for a frozen process, plus 1
	Ready              bool  // that write was sent after the stand-down
	Work, Led          bool
	Unsure, Failed     bool
	Pending, GivenUp   bool
	Unanswered         bool // its last write was not answered
	Removed            bool
	Outdated, Former   int8 // what it knows of the bucket is old; its term is of an old one
	Excused, Odd       bool // for assertions
	Acked              bool // likewise
}

// MaxCandidates is how many candidates a state has room for.
const MaxCandidates = 3

// State is one state of the model.
type State struct {
	Key, Copy, Late         Rec
	IsCopy, IsLate, LateOdd bool
	Seq, CopySeq            int64 // the last sequence of the stream, and of its copy
	Over                    int64 // what the late write demands
	Top                     int64 // number of the last term that was led
	Gap                     bool
	Faults, Slips           int8
	C                       [MaxCandidates]Cand
}

// Limits are the constants of the model.
type Limits struct {
	N                                int // candidates
	Faults, Slips                    int8
	TTL, Interval, Margin, StandDown int64
	Early, Late                      int64 // by how much the server expires keys too early or too late at most
	Exact                            bool  // revisions are those of a bucket, not ranks
}

// Lease is how long a lease lasts.
func (l *Limits) Lease() int64 { return l.TTL - l.Margin }

// Initial returns the state in which every search begins.
func (l *Limits) Initial() State {
	return State{Key: Rec{Kind: Nothing, Own: Stranger}, Faults: l.Faults, Slips: l.Slips}
}

// holder reports whether candidate i holds the key, as far as it knows.
func (s *State) holder(i int) bool { return s.C[i].St != Candidate }

// leads reports whether candidate i leads.
func (s *State) leads(i int) bool { return s.C[i].St == Leader && s.C[i].Lease > 0 }

func (s *State) up(i int) bool { return s.reaches(i) || s.C[i].Link == Hanging }

func (s *State) reaches(i int) bool { return s.C[i].Link == Fine || s.C[i].Link == NoInfo }

func (s *State) cutOff(i int) bool {
	return s.C[i].Link == Cut || s.C[i].Link == Mute || s.C[i].Link == Holding
}

func (s *State) idle(i int) bool {
	c := &s.C[i]
	return c.St == Candidate && !c.Work && c.Seen == 0 && c.Sent == 0
}

func (s *State) writes(i int) bool { return s.C[i].Seen != 0 && s.C[i].Sent == 0 }

func (s *State) renews(i int) bool {
	c := &s.C[i]
	return s.holder(i) && c.Sent == 0 && c.Next == 0 && (c.St != Drain || c.Work)
}

func (s *State) releases(i int) bool {
	c := &s.C[i]
	return c.St == Drain && c.Sent == 0 && c.Link != Frozen && !c.Work && c.Next == 0
}

// StillDue returns what is left of the stand-down of candidate i, as it writes it.
func (s *State) StillDue(i int) int64 {
	if s.C[i].Led {
		return 0
	}
	return s.C[i].Counts
}

// kept reports whether a record or a release is stored.
func (r *Rec) kept() bool { return r.Kind == Record || r.Kind == Release }

func (r *Rec) mine(i int) bool { return r.Kind == Record && r.Own == int8(i) }

func (r *Rec) writtenBy(i int) bool { return r.kept() && r.Own == int8(i) }

// tells reports whether holder i learns something if it reads r on account of a notification.
func (s *State) tells(r *Rec, i int) bool {
	c := &s.C[i]
	switch {
	case c.Next == 0:
		return false
	case r.writtenBy(i):
		return r.Rev > c.Rev
	}
	return r.Kind != Nothing && (r.Rev >= c.Num || r.Old < c.Former) || !c.Unsure && (r.Kind == Nothing || r.Kind == Record)
}
