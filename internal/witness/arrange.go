package witness

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

// DefaultSettleTime is how long the successor of a leader that has died stands down by default.
const DefaultSettleTime = 250 * time.Millisecond

// ErrUnsupported is the error on a system that has no way to learn of the death of another process.
var ErrUnsupported = fmt.Errorf("a witness needs Linux or macOS, and this is %s: leave the witness out, and a leader that dies is replaced when its lease is over: %w",
	runtime.GOOS, errors.ErrUnsupported)

// Config says how a program and its witness are arranged.
type Config struct {
	Dial      Dial
	Log       *slog.Logger
	GroupRuns func(group int) bool // reports whether any process of a group runs

	// StartChild starts the witness as a child of this process, and returns what reaps it. If StartChild is set, the witness is always a child,
	// even of process 1: for a program that must stay the first process, or that reaps children itself.
	StartChild func(cmd *exec.Cmd) (reap func() error, err error)
	// Exiting is called before a witness that is a child exits, for example to write what was logged; nil for nothing.
	Exiting func()
}

// IsWitness reports whether this process is a witness that [Start] has started as a child. There Start does not return.
func IsWitness() bool { return strings.HasPrefix(os.Getenv(roleVariable), roleWitness) }

// roleVariable is the environment variable that says what a process is which [Start] has started: "witness of" and the number of the process
// that it watches, or "program".
const roleVariable = "ELECTION_WITNESS_ROLE"

const (
	witnessName = "witness" // of the process, in lists
	roleWitness = "witness of "
	roleProgram = "program"
)

// The numbers of descriptors in a process that Start has started: of the connection, and in a witness also of the program's image, if it has one.
const (
	linkDescriptor = 3 + iota
	imageDescriptor
)
