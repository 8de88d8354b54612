package cli

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/choria-io/fisk"
)

// ErrHelpWritten is the error of fisk.Application.Parse when it has written help, the manual page or a completion script, as the user asked.
var ErrHelpWritten = errors.New("help was written")

// RegisterHelp has app write help, the manual page and the completion script for fish to out. The help of a command lists the flags of the
// command; with --help-long it also lists the flags that all commands share. Both show the default and the environment variable of each flag.
func RegisterHelp(app *fisk.Application, out io.Writer, m Manual) {
	app.UsageWriter(out)
	app.UsageFuncs(map[string]any{"FlagRows": flagRows, "ArgName": argName})
	app.UsageTemplate(shortHelp)
	app.Flag("completion-script-fish", "Generate completion script for fish.").Hidden().UnNegatableBool()
	app.PreAction(func(line *fisk.ParseContext) error {
		switch flags := flagsOn(line); {
		case slices.Contains(flags, "completion-bash"): // a shell asks how the line could go on
			return nil
		case slices.Contains(flags, "help-long"):
			return helpWritten(app.UsageForContextWithTemplate(line, indent, longHelp))
		case slices.Contains(flags, "help-man"):
			return helpWritten(m.write(out, app.Model()))
		case slices.Contains(flags, "completion-script-fish"):
			_, err := fmt.Fprintf(out, fishScript, app.Name, strings.ReplaceAll(app.Name, "-", "_"))
			return helpWritten(err)
		}
		return nil
	})
}

// HelpAsFlag returns the arguments with --help in place of the command help, so that both give the same help and the same errors.
func HelpAsFlag(args []string) []string {
	if len(args) == 0 || args[0] != "help" {
		return args
	}
	return append(slices.Clone(args[1:]), "--help")
}

// helpWritten returns ErrHelpWritten unless there was an error.
func helpWritten(err error) error {
	if err != nil {
		return err
	}
	return ErrHelpWritten
}

// flagsOn returns the names of the flags on a command line.
func flagsOn(line *fisk.ParseContext) (names []string) {
	for _, e := range line.Elements {
		if flag, ok := e.Clause.(*fisk.FlagClause); ok {
			names = append(names, flag.Model().Name)
		}
	}
	return names
}

// fishScript completes by what the command prints for bash, and by paths where the command knows no words.
const fishScript = `# Completion of %[1]s for fish

function __%[2]s_complete
    set -l words (commandline -opc) (commandline -ct)
    set -l found (command $words[1] --completion-bash $words[2..-1] 2>/dev/null)
    if test -n "$found"
        printf '%%s\n' $found
    else
        __fish_complete_path (commandline -ct)
    end
end

complete -c %[1]s -f -a '(__%[2]s_complete)'
`
