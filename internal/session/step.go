package session

// Step is what a session does at present.
type Step uint8

// The steps of a session.
const (
	NotOpen Step = iota
	Opening
	Open
	Releasing
	Released

	numSteps
)

// steps says of each step of a session what the session does in it, and which other steps may follow. The simulator fails if a session goes another way, or
// if no schedule goes one of these.
var steps = [numSteps]struct {
	doing  string
	follow []Step
}{
	NotOpen:   {"not open", []Step{Opening, Released}},
	Opening:   {"opening", []Step{NotOpen, Open, Released}},
	Open:      {"open", []Step{NotOpen, Releasing, Released}},
	Releasing: {"releasing all claims", []Step{Open, Released}},
	Released:  {"released", nil},
}

// String says what the session does.
func (s Step) String() string { return steps[s].doing }

// Follow returns the steps that may follow.
func (s Step) Follow() []Step { return steps[s].follow }

// Steps returns all steps of a session.
func Steps() (all []Step) {
	for s := range numSteps {
		all = append(all, s)
	}
	return all
}

// enter has the session go to a step.
func (s *Session) enter(step Step) {
	before := s.step
	if s.step = step; step != before && s.Stepped != nil {
		s.Stepped(before, step)
	}
}

// ClaimStep is what a claim does at present.
type ClaimStep uint8

// The steps of a claim.
const (
	NotRunning ClaimStep = iota
	Watching
	Taking
	Holding
	Ending
	Sharing
	Giving
	Returning
	Finished

	numClaimSteps
)

// claimSteps says of each step of a claim what the claim does in it, and which other steps may follow, as steps does of a session. A claim that does not run
// any more was stopped, or the loop of its election has panicked.
var claimSteps = [numClaimSteps]struct {
	doing  string
	follow []ClaimStep
}{
	NotRunning: {"", []ClaimStep{Watching}},
	Watching:   {"watching the claim", []ClaimStep{Taking, Holding, Finished, NotRunning}},
	Taking:     {"taking the claim", []ClaimStep{Watching, Holding, NotRunning}},
	Holding:    {"holding the claim", []ClaimStep{Ending, Returning}},
	Ending:     {"waiting for callbacks and work to return", []ClaimStep{Sharing, Giving, Returning}},
	Sharing:    {"waiting for the release of the session", []ClaimStep{Giving, Returning}},
	Giving:     {"releasing the claim", []ClaimStep{Returning}},
	Returning:  {"waiting for callbacks and work to return, the term being over", []ClaimStep{Watching, NotRunning}},
	Finished:   {"stopping", []ClaimStep{NotRunning}},
}

// String says what a claim does in the step; "" if it does not run.
func (s ClaimStep) String() string { return claimSteps[s].doing }

// WithRole says the same: a claim has no roles.
func (s ClaimStep) WithRole() string { return s.String() }

// Follow returns the steps that may follow.
func (s ClaimStep) Follow() []ClaimStep { return claimSteps[s].follow }

// ClaimSteps returns all steps of a claim.
func ClaimSteps() (all []ClaimStep) {
	for s := range numClaimSteps {
		all = append(all, s)
	}
	return all
}

// enter has the claim go to a step.
func (c *Claim) enter(step ClaimStep) {
	before := c.step
	if c.step = step; step != before && c.s.ClaimStepped != nil {
		c.s.ClaimStepped(c, before, step)
	}
}
