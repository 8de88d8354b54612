// Package natsconn has what the library does with a connection that it is given: wait for it, guard it against a server that has forgotten it,
// subscribe to the keys that a process uses, and show it without secrets.
package natsconn

import "strings"

// WithoutSecrets returns a server URL without everything before the host, because a username alone may be a token.
func WithoutSecrets(s string) string {
	scheme, rest, found := strings.Cut(s, "://")
	if !found {
		scheme, rest = "nats", s
	}
	if i := strings.LastIndex(rest, "@"); i >= 0 {
		rest = rest[i+1:]
	}
	if i := strings.IndexAny(rest, "?#"); i >= 0 {
		rest = rest[:i]
	}
	return scheme + "://" + rest
}
