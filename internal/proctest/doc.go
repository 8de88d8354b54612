// Package proctest stops processes in tests.
package proctest
