package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/choria-io/fisk"

	"github.com/natscampaign/election"
)

// Exit codes, as the help documents them.
const (
	ExitOK          = 0
	ExitNegative    = 1
	ExitFailure     = 2
	ExitInterrupted = 130
)

// ExitError is an error that decides the exit code by itself.
type ExitError struct {
	Code    int
	Message string // empty if all was said
}

// Error returns the message for the user.
func (v *ExitError) Error() string { return v.Message }

// Failure marks an error that a command returned, as opposed to one of the command line.
type Failure struct{ error }

// Unwrap returns the error that was marked.
func (f Failure) Unwrap() error { return f.error }

// OrInterrupted returns the verdict on a command that was interrupted before it had a result, or else err.
func OrInterrupted(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return &ExitError{Code: ExitInterrupted, Message: "interrupted"}
	}
	return err
}

// InDoubt returns the error of a request that may have been carried out although err is all that came of it, or the
// verdict on a command that was interrupted meanwhile. Either says what is not known.
func InDoubt(ctx context.Context, err error, format string, a ...any) error {
	what := fmt.Sprintf(format, a...)
	if ctx.Err() != nil {
		return &ExitError{Code: ExitInterrupted, Message: "interrupted: " + what}
	}
	return fmt.Errorf("%s: %w", what, err)
}

// UnlessOver returns no error if ctx ended: whoever ended it knows why.
func UnlessOver(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// InFlags returns err in words for the command line, where there are flags and no options.
func InFlags(err error) error {
	if err == nil || !errors.Is(err, election.ErrInvalidOption) {
		return err
	}
	return errors.New(strings.ReplaceAll(err.Error(), election.ErrInvalidOption.Error()+": ", ""))
}

// doubleSignal is within what time two signals count as one.
const doubleSignal = time.Second

// Action adapts a command to fisk and gives it a context that ends with the first INT or TERM, or HUP when a terminal
// is closed. A second one kills the process, should winding up take longer than the user cares to wait, unless it comes
// with the first, as from timeout(1), which signals the process and its group.
func Action(command func(context.Context) error) fisk.Action {
	return func(*fisk.ParseContext) error {
		signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
		if !signal.Ignored(syscall.SIGHUP) { // as it is under nohup
			signals = append(signals, syscall.SIGHUP)
		}
		ctx, stop := signal.NotifyContext(context.Background(), signals...)
		defer stop()
		context.AfterFunc(ctx, func() { time.AfterFunc(doubleSignal, stop) })
		// Once asked for, a reader that went away is an error of the write and no longer the end of the process.
		signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
		return Failed(command(ctx))
	}
}

// Failed marks the error of a command; nil stays nil.
func Failed(err error) error {
	if err == nil {
		return nil
	}
	return Failure{err}
}
