package election

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

const (
	// maxCounted bounds the memory for counting candidates. Answers to a vacancy are spread no wider for more.
	maxCounted = 4096
	// maxHeirs and maxHeirBytes bound what a release says of those that stand.
	maxHeirs     = 8
	maxHeirBytes = 256
	// maxLevels bounds what a record says of their priorities.
	maxLevels = 8
	// headStart is for how long a release is left to the heir that it names. By then the others have seen that one win,
	// unless it is gone.
	headStart = 25 * time.Millisecond
)

// standing is one that was heard to stand.
type standing struct {
	name     string
	hears    bool
	priority int
	attempts int
	last     time.Time
}

// count starts or ends the counting of those that stand, by the attempts that are heard on the subject of the key itself.
// Only a leader counts, and only with a connection of its own to hear by.
func (a *ear) count(on bool) {
	a.mu.Lock()
	was := a.counting
	a.counting, a.others = on, map[string]standing{}
	a.mu.Unlock()
	if on != was {
		a.hub.countAttempts(on)
	}
}

// attempted notes an attempt to write the key, by whomever.
func (a *ear) attempted(r record) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.counting || r.Instance == "" {
		return
	}
	if s, known := a.others[r.Instance]; known || len(a.others) < maxCounted {
		a.others[r.Instance] = standing{r.Name, r.Hears, r.Priority, s.attempts + 1, time.Now()}
	}
}

// candidates returns roughly how many stand, this one included, in a term since the given time. Each that stays makes two
// attempts at its start, and one now and then; one that made a single attempt some time ago is gone. Until all must have
// made themselves heard it is at least as many as were known before, or half of them where chance decides, or may have been
// where nobody had counted. It is 0, not known, if not even this one was heard.
func (a *ear) candidates(self string, before int, uncounted bool, since time.Time) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	window := a.ttl * fallbackPoll * 2
	maps.DeleteFunc(a.others, func(_ string, s standing) bool { return time.Since(s.last) > window })
	counted := 0
	for _, s := range a.others {
		if s.attempts >= openingCampaigns || time.Since(s.last) < a.ttl*openingCampaigns {
			counted++
		}
	}
	if time.Since(since) > window {
		before, uncounted = 0, false
	}
	if a.fair {
		before /= 2 // who waits for a lock is soon gone, and terms are too short to see it
	}
	if _, heard := a.others[self]; !heard {
		return before
	}
	if uncounted {
		before = cmp.Or(a.guessed, unknownCandidates)
	}
	return max(counted, before, 1)
}

// levels returns the highest priorities of others that were heard to stand and to hear of vacancies, each once, and for a
// while after the given time those that were known before.
func (a *ear) levels(self string, before []int, since time.Time) []int {
	a.mu.Lock()
	defer a.mu.Unlock()
	var levels []int
	if time.Since(since) <= a.ttl*fallbackPoll*2 {
		levels = slices.Clone(before[:min(len(before), maxLevels)])
	}
	for instance, s := range a.others {
		if instance != self && s.hears {
			levels = append(levels, s.priority)
		}
	}
	slices.SortFunc(levels, func(a, b int) int { return cmp.Compare(b, a) })
	levels = slices.Compact(levels)
	if len(levels) == 1 && levels[0] == 0 {
		return nil // which is how it is where nobody has a priority
	}
	return levels[:min(len(levels), maxLevels)]
}

// heirs returns the names of some that stand and hear of vacancies: the nominee if there is one, then those of the highest
// priority, among these the one heard last, and at the end those that were known before. The first is to take over: one
// that was heard just now is there, and in a rolling update it is one that was started again already. Where chance is to
// decide there is none but the nominee.
func (a *ear) heirs(nominee string, before []string) []string {
	var heirs []string
	left := maxHeirBytes
	if nominee != "" {
		heirs, left = []string{nominee}, left-len(nominee)
	}
	if a.fair {
		return heirs
	}
	add := func(name string) {
		if name != a.name && len(heirs) < maxHeirs && len(name) <= left && !slices.Contains(heirs, name) {
			heirs = append(heirs, name)
			left -= len(name)
		}
	}
	a.mu.Lock()
	heard := slices.SortedFunc(maps.Values(a.others), func(s, other standing) int {
		return cmp.Or(cmp.Compare(other.priority, s.priority), other.last.Compare(s.last))
	})
	a.mu.Unlock()
	for _, s := range heard {
		if s.hears {
			add(s.name)
		}
	}
	for _, name := range before {
		add(name)
	}
	return heirs
}
