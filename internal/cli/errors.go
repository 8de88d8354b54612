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

// Exit codes that the help documents.
const (
	ExitOK          = 0
	ExitNegative    = 1
	ExitFailure     = 2
	ExitInterrupted = 130
)

// ExitError is an error with an exit code of its own.
type ExitError struct {
	Code    int
	Message string // for stderr; empty if the command has already written everything
}

// Error returns the message for the user.
func (e *ExitError) Error() string { return e.Message }

// Negative returns the error of a command with a negative result.
func Negative(format string, args ...any) *ExitError {
	return &ExitError{Code: ExitNegative, Message: fmt.Sprintf(format, args...)}
}

// CommandError marks an error that a command returned. Unmarked errors come from the parser of the command line.
type CommandError struct{ error }

// Unwrap returns the error that the command returned.
func (e CommandError) Unwrap() error { return e.error }

// AsCommandError marks err as the error of a command, with the names of flags: see [AsFlagError]. It returns nil for nil.
func AsCommandError(err error) error {
	if err == nil {
		return nil
	}
	return CommandError{AsFlagError(err)}
}

// Interruptible returns a command whose error, once ctx has ended, is that of an interrupted command, unless it is an ExitError, which says more.
func Interruptible(command func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		err := command(ctx)
		if _, says := errors.AsType[*ExitError](err); err == nil || says || ctx.Err() == nil {
			return err
		}
		return &ExitError{Code: ExitInterrupted, Message: "interrupted"}
	}
}

// UnknownOutcome returns the error of a request that failed with err, although the server may have executed the request.
// The format says which outcome is unknown. If ctx has ended, the result is the ExitError of an interrupted command.
func UnknownOutcome(ctx context.Context, err error, format string, args ...any) error {
	unknown := fmt.Sprintf(format, args...)
	if ctx.Err() != nil {
		return &ExitError{Code: ExitInterrupted, Message: "interrupted: " + unknown}
	}
	return fmt.Errorf("%s: %w", unknown, err)
}

// IgnoreIfDone returns nil if ctx has ended, because the cause of ctx is the error to report then. It returns err otherwise.
func IgnoreIfDone(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// AsFlagError returns err without the words "invalid option" and with the names of flags, because the command line has no Go options.
func AsFlagError(err error) error {
	if err == nil || !errors.Is(err, election.ErrInvalidOption) {
		return err
	}
	return errors.New(WithFlagNames(strings.ReplaceAll(err.Error(), election.ErrInvalidOption.Error()+": ", "")))
}

// flagNames replaces the names of the library by those of flags.
var flagNames = strings.NewReplacer("WithCampaignInterval", "--interval", "WithMetricsNamespace:", "--metrics-namespace", "check as RoleObserver or RoleOperator", "check with --as observer or --as operator")

// WithFlagNames returns a message of the library with the names of flags in place of those of Go options.
func WithFlagNames(text string) string { return flagNames.Replace(text) }

// Problems are the errors about a command line.
type Problems []error

// Add adds an error, unless it is nil.
func (p *Problems) Add(err error) {
	if err != nil {
		*p = append(*p, err)
	}
}

// If adds an error if something is wrong.
func (p *Problems) If(wrong bool, format string, args ...any) {
	if wrong {
		p.Add(fmt.Errorf(format, args...))
	}
}

// Err returns all errors in one; nil if there is none.
func (p Problems) Err() error { return errors.Join(p...) }

// signalPairWindow is the time within which two signals count as one. timeout(1) signals both the process and its group.
const signalPairWindow = time.Second

// Request is [Action] for a command that only makes requests, which is [Interruptible].
func Request(command func(context.Context) error) fisk.Action { return Action(Interruptible(command)) }

// Action adapts a command to fisk. The context of the command ends with the first INT or TERM, or with HUP when a terminal
// closes. A second signal, at least signalPairWindow later, kills the process: the user need not wait for an orderly end.
func Action(command func(context.Context) error) fisk.Action {
	return func(*fisk.ParseContext) error {
		signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
		if !signal.Ignored(syscall.SIGHUP) { // nohup ignores HUP
			signals = append(signals, syscall.SIGHUP)
		}
		ctx, stop := signal.NotifyContext(context.Background(), signals...)
		defer stop()
		context.AfterFunc(ctx, func() { time.AfterFunc(signalPairWindow, stop) })
		// With a handler for PIPE, a write to a closed pipe returns an error and does not end the process.
		signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
		return AsCommandError(command(ctx))
	}
}
