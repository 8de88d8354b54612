package group

import "testing"

// SetMaxMembers has groups hold no more than n members until the test ends.
func SetMaxMembers(t testing.TB, n int) {
	before := maxMembers
	maxMembers = n
	t.Cleanup(func() { maxMembers = before })
}
