package faultproxy

// Connections returns how many connections the link still carries.
func (l *Link) Connections() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.conns)
}
