package election

import "context"

// SetInstance gives a candidate that has not started the instance of another, as a copy of its process has it.
func SetInstance(e *Election, instance string) { e.instance = instance }

// FindReady returns what Transfer of the present run does to find its target.
func FindReady(e *Election) func(ctx context.Context, to string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	r := e.current
	return func(ctx context.Context, to string) error {
		_, err := r.readyCandidate(ctx, to)
		return err
	}
}
