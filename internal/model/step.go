package model

// byName are all transitions.
var byName = func() map[string]*Transition {
	all := map[string]*Transition{}
	for _, process := range [][]Transition{ofCandidate, ofServer, ofClock} {
		for i := range process {
			all[process[i].Name] = &process[i]
		}
	}
	return all
}()

// Names returns the names of all transitions: of the candidates, of the server, of the clock.
func Names() (names []string) {
	for _, process := range [][]Transition{ofCandidate, ofServer, ofClock} {
		for _, t := range process {
			names = append(names, t.Name)
		}
	}
	return names
}

// numbers are the places of the transitions in Names.
var numbers = func() map[string]int {
	all := map[string]int{}
	for i, name := range Names() {
		all[name] = i
	}
	return all
}()

// Number returns the place of a transition in Names.
func Number(name string) int { return numbers[name] }

// Step makes the named transition, and returns false if the model does not have it in this state. It panics if there is no such name.
func (l *Limits) Step(s *State, i int, name string) bool {
	t := byName[name]
	if t == nil {
		panic("model: there is no transition " + name)
	}
	if !t.Can(l, s, i) {
		return false
	}
	t.Do(l, s, i)
	return true
}

// Each calls visit with every state that one transition leads to.
func (l *Limits) Each(s *State, visit func(name string, next *State)) {
	try := func(t *Transition, i int) {
		if t.Can(l, s, i) {
			next := *s
			t.Do(l, &next, i)
			visit(t.Name, &next)
		}
	}
	for i := range l.N {
		for n := range ofCandidate {
			try(&ofCandidate[n], i)
		}
	}
	for _, process := range [][]Transition{ofServer, ofClock} {
		for n := range process {
			try(&process[n], 0)
		}
	}
}
