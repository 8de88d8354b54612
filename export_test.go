package election

// SetInstance gives a candidate that has not started the instance of another, as a copy of its process has it.
func SetInstance(e *Election, instance string) { e.instance = instance }
