// Package matrix holds no code: its tests try the library, the command and the drills on servers of several versions, each in a process of
// its own. Without arguments that is the version of this module; with
//
//	go test ./internal/test/matrix -v -args -servers "2.10 2.11 2.12 2.14 2.15"
//
// it is the newest patch of each of these, built from the module proxy. The log ends with a table of what was seen on which version.
package matrix
