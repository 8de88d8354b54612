package faultproxy

// request reports whether a message to the server gets lost.
func (l *Link) request(m Message) bool {
	l.judge <- struct{}{}
	defer func() { <-l.judge }()

	l.mu.Lock()
	hook := l.onRequest
	l.asked.note(m)
	l.mu.Unlock()
	if hook != nil {
		hook(m)
	}

	l.mu.Lock()
	lose := l.requests.lose // after the hook, which may have set it
	l.mu.Unlock()
	return lose != nil && lose(m)
}

// reply reports whether a message to the client gets lost.
func (l *Link) reply(m Message) bool {
	l.judge <- struct{}{}
	defer func() { <-l.judge }()

	l.mu.Lock()
	lose := l.replies.lose
	m.Request = l.asked[m.Subject]
	l.mu.Unlock()
	return lose != nil && lose(m)
}

// asked remembers which request a reply subject belongs to.
type asked map[string]string

// askedLimit bounds the memory for requests. When it is full all are forgotten, most of them answered long ago.
const askedLimit = 10_000

func (a asked) note(m Message) {
	if m.Reply == "" {
		return
	}
	if len(a) >= askedLimit {
		clear(a)
	}
	a[m.Reply] = m.Subject
}

// Once returns a match for the first message that match accepts, and for none after it. A nil match accepts any message.
func Once(match func(Message) bool) func(Message) bool {
	match = orAll(match)
	var done bool
	return func(m Message) bool {
		if done || !match(m) {
			return false
		}
		done = true
		return true
	}
}

func orAll(match func(Message) bool) func(Message) bool {
	if match == nil {
		return func(Message) bool { return true }
	}
	return match
}
