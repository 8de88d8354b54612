package witness

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
)

// ErrUnsupported is the error on a system that has no way to learn of the death of another process.
var ErrUnsupported = fmt.Errorf("a witness needs Linux or macOS, and this is %s: leave the witness out, and a leader that dies is replaced when its lease is over: %w",
	runtime.GOOS, errors.ErrUnsupported)

// Config says how a program and its witness are arranged.
type Config struct {
	Dial      Dial
	Log       *slog.Logger
	GroupRuns func(group int) bool // reports whether any process of a group runs
}

// roleVariable is the environment variable that says what a process is which [Start] has started: "witness of" and the number of the process
// that it watches, or "program".
const roleVariable = "ELECTION_WITNESS_ROLE"

const (
	roleWitness = "witness of "
	roleProgram = "program"
)

// linkDescriptor is the number of the connection in a process that Start has started.
const linkDescriptor = 3
