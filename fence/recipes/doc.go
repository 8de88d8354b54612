// Package recipes has receivers of a leader's effects refuse those of older terms: a database, an HTTP server and two kinds
// of object stores. It is code to copy and to change rather than to import, and docs/FENCING.md says when to use which. It is
// a module of its own, so that nobody depends on a database driver who does not use it.
package recipes
