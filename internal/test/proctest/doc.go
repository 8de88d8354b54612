// Package proctest stops processes in tests, and tells whether they run.
package proctest
