package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/natscampaign/election/internal/cli/terminal"
)

// Confirm asks the user whether to continue with a destructive command. With force it does not ask. Without a terminal it
// returns an error, because nobody can answer.
func (e *Env) Confirm(ctx context.Context, force bool, question string) error {
	if force {
		return nil
	}
	if !terminal.IsTerminal(e.Stdin) {
		return fmt.Errorf("%s There is no terminal to ask on: add --force to continue without a question", question)
	}
	fmt.Fprintf(e.Stderr, "%s [y/N] ", question)
	answers := make(chan string, 1)
	go func() {
		var answer string
		_, _ = fmt.Fscanln(e.Stdin, &answer)
		answers <- answer
	}()
	select {
	case <-ctx.Done():
		fmt.Fprintln(e.Stderr)
		return &ExitError{Code: ExitInterrupted, Message: "interrupted: nothing was done"}
	case answer := <-answers:
		switch strings.ToLower(answer) {
		case "y", "yes":
			return nil
		}
		return Negative("nothing was done")
	}
}
