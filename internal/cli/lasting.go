package cli

import (
	"context"
	"io"
	"log/slog"

	"github.com/natscampaign/election/internal/cli/terminal"
)

// Lasting is what a command has that lasts until the user ends it. A reader that stops reading does not block the command.
type Lasting struct {
	Stdout io.Writer
	Log    slog.Handler
	Fail   context.CancelCauseFunc // ends the command with an error
}

// RunLasting runs a command until the user ends it, or until it fails, as when its output cannot be written. It logs what has the level, or a higher
// one. dropped returns the line of stdout that takes the place of lines which are not read in time.
func (e *Env) RunLasting(ctx context.Context, level slog.Level, dropped func(lines int) string, run func(context.Context, Lasting) error) error {
	user := ctx
	ctx, fail := context.WithCancelCause(user)
	defer fail(nil)
	stdout, stderr := terminal.NewQueue(e.Stdout, dropped, fail), terminal.NewQueue(e.Stderr, terminal.DroppedLines, fail)
	defer stderr.Close()
	defer stdout.Close()
	err := run(ctx, Lasting{stdout, terminal.NewLogHandler(stderr, terminal.StyleFor(e.Stderr), level), fail})
	if err == nil && user.Err() == nil {
		err = context.Cause(ctx) // fail ended the command, not the user
	}
	return err
}

// Log returns a log of what has the level, or a higher one, on stderr.
func (e *Env) Log(level slog.Level) *slog.Logger {
	return slog.New(terminal.NewLogHandler(e.Stderr, terminal.StyleFor(e.Stderr), level))
}

// LevelFor returns the level to log, with --verbose or without.
func LevelFor(verbose bool) slog.Level {
	if verbose {
		return slog.LevelDebug
	}
	return slog.LevelInfo
}
