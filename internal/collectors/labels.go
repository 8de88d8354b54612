package collectors

// Labels are the labels of the metrics of a candidate that its terms carry along, for the metrics of what is done in a term. The terms of
// package election embed them, out of sight of its users.
type Labels struct{ bucket, identity string }

// NewLabels returns the labels of a candidate: the name of its bucket, and its identity.
func NewLabels(bucket, identity string) Labels { return Labels{bucket, identity} }

// LabelsOf returns the labels of a term; they are empty if no candidate made the term.
func LabelsOf(term interface{ labels() Labels }) (bucket, identity string) {
	l := term.labels()
	return l.bucket, l.identity
}

func (l Labels) labels() Labels { return l }
