package cli

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/natscampaign/election/internal/terminal"
)

// Confirm asks whether to go on with what destroys, unless it is forced. Where there is nobody to ask, it refuses.
func (t *Env) Confirm(ctx context.Context, force bool, question string) error {
	if force {
		return nil
	}
	if !terminal.IsTerminal(t.Stdin) || isNull(t.Stdin) {
		return fmt.Errorf("%s There is no terminal to ask on: give --force to go on without", question)
	}
	fmt.Fprintf(t.Stderr, "%s [y/N] ", question)
	answers := make(chan string, 1)
	go func() {
		var answer string
		_, _ = fmt.Fscanln(t.Stdin, &answer)
		answers <- answer
	}()
	select {
	case <-ctx.Done():
		fmt.Fprintln(t.Stderr)
		return &ExitError{Code: ExitInterrupted, Message: "interrupted: nothing was done"}
	case answer := <-answers:
		switch strings.ToLower(answer) {
		case "y", "yes":
			return nil
		}
		return &ExitError{Code: ExitNegative, Message: "nothing was done"}
	}
}

// isNull says whether r is the null device, which is no terminal although it looks like one.
func isNull(r any) bool {
	f, ok := r.(*os.File)
	if !ok {
		return false
	}
	is, err := f.Stat()
	if err != nil {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err == nil && os.SameFile(is, null)
}
