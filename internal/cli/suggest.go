package cli

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/choria-io/fisk"
)

// ExplainUsage returns an error of the parser in plain words: it suggests the command or flag with the nearest name, shows the command line if an
// argument is missing, and says how to get help.
// The app must be a new one, which has not parsed a line.
func ExplainUsage(app *fisk.Application, args []string, err error) error {
	line, _ := app.ParseContext(args)
	if line == nil {
		return err
	}
	commands, flags := app.Model().Commands, app.Model().Flags
	help := fmt.Sprintf("Run '%s --help' for the commands, '%[1]s COMMAND --help' for their flags", app.Name)
	if cmd := line.SelectedCommand; cmd != nil {
		commands, flags = cmd.Model().Commands, append(flags, cmd.Model().Flags...)
		help = fmt.Sprintf("Run '%s %s --help' for its arguments and flags", app.Name, cmd.FullCommand())
	}
	var names []string
	switch {
	case errors.Is(err, fisk.ErrExpectedKnownCommand):
		for _, c := range commands {
			if !c.Hidden {
				names = append(append(names, c.Name), c.Aliases...)
			}
		}
		err = Unknown("command", line.Peek().Value, names, "%q")
		if near := nearest(line.Peek().Value, slices.Sorted(maps.Keys(namedOtherwise))); near != "" && !strings.Contains(err.Error(), "did you mean") {
			err = fmt.Errorf("%w: did you mean %q?", err, namedOtherwise[near])
		}
	case errors.Is(err, fisk.ErrUnknownLongFlag):
		for _, f := range flags {
			names = append(names, f.Name)
		}
		err = Unknown("flag", line.Peek().Value, names, "--%s")
	case errors.Is(err, fisk.ErrUnknownShortFlag):
		err = fmt.Errorf("unknown flag -%s", line.Peek().Value)
	case errors.Is(err, fisk.ErrExpectedFlagArgument):
		err = fmt.Errorf("%w: give it a value, after a = if that begins with -", err)
	case errors.Is(err, fisk.ErrRequiredArgument) && line.SelectedCommand != nil:
		err = fmt.Errorf("%w, as in '%s'", err, synopsis(app.Model(), line.SelectedCommand.Model()))
	}
	return fmt.Errorf("%w\n%s", err, help)
}

// namedOtherwise are the commands by names that other tools give to what they do.
var namedOtherwise = map[string]string{
	"status": "info", "show": "info", "describe": "info", "get": "info", "leader": "info", "create": "bucket add", "add": "bucket add", "delete": "bucket rm", "remove": "bucket rm",
	"stepdown": "resign", "release": "resign", "handover": "transfer", "kill": "evict", "stop": "pause", "start": "campaign", "elect": "campaign", "lead": "campaign",
	"exec": "run", "lock": "run", "events": "watch", "health": "check", "doctor": "check", "members": "candidates", "version": "--version",
}

// Unknown returns the error for a name that is not one of names, with the nearest of them.
func Unknown(kind, name string, names []string, format string) error {
	text := fmt.Sprintf("unknown "+kind+" "+format, name)
	if near := nearest(name, names); near != "" {
		text += fmt.Sprintf(": did you mean "+format+"?", near)
	}
	return errors.New(text)
}

// nearest returns the name that begins with the given one, or else the name that takes the fewest changes to get to; "" if that would take a
// change of more than every third letter.
func nearest(given string, names []string) (best string) {
	fewest := max(1, len(given)/3) + 1
	for _, name := range names {
		changes := distance(given, name)
		if len(given) > 1 && strings.HasPrefix(name, given) {
			changes = 0
		}
		if changes < fewest {
			best, fewest = name, changes
		}
	}
	return best
}

// distance returns how many letters have to be added, removed, replaced or exchanged with the next one to get from a to b.
func distance(a, b string) int {
	d := make([][]int, len(a)+1)
	for i := range d {
		d[i] = make([]int, len(b)+1)
		for j := range d[i] {
			switch {
			case i == 0 || j == 0:
				d[i][j] = i + j
				continue
			case a[i-1] == b[j-1]:
				d[i][j] = d[i-1][j-1]
			default:
				d[i][j] = 1 + min(d[i-1][j-1], d[i-1][j], d[i][j-1])
			}
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d[i][j] = min(d[i][j], 1+d[i-2][j-2])
			}
		}
	}
	return d[len(a)][len(b)]
}
