// Package cli contains the code that the commands of election-cli share.
//
// ConnectionFlags turns flags, environment and natscli contexts into a Client: a NATS connection with its JetStream
// context and the timeout of a request. Errors are written for the terminal: they name flags instead of Go options, contain
// no credentials, and tell the user what to do. ExitError carries an exit code. Action gives a command a context that ends
// with the first signal; Request and RunLasting say what its error is then. Confirm asks before a command deletes something, and refuses where nobody can answer. RegisterHelp has the parser
// write help, a manual page and a completion script, and ExplainUsage says in plain words what the parser did not understand.
package cli

import "io"

// DefaultBucket is the bucket that commands use unless --bucket names another bucket.
const DefaultBucket = "LEADER_ELECTION"

// Env is the environment of a command: its input and output, and the values of the global flags.
type Env struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Connection     ConnectionFlags
	Bucket         string
	Argv           []string // the program that the command run starts, and its arguments
}
