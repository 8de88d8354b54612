// Package cli is what every command of election-cli repeats: the flags of the connection and the session that they open, the default
// bucket, errors with their exit codes, interruption by signals, and the questions before something is destroyed.
package cli

import "io"

// DefaultBucket holds the elections unless another is named.
const DefaultBucket = "LEADER_ELECTION"

// Env is what all commands share: where they write, and the flags that are theirs in common.
type Env struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Connection     ConnFlags
	Bucket         string
	Argv           []string // the program that run is to run, and its arguments
}
