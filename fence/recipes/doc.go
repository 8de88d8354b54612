// Package recipes has receivers of a leader's effects refuse the effects of older terms: a database, an HTTP server and two kinds of object
// stores. Copy and change this code rather than import it; docs/FENCING.md says when to use which. It is a module of its own, so that users
// of package election do not depend on a database driver.
package recipes
