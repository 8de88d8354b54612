package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/choria-io/fisk"
)

// indent is the indentation of the columns.
const indent = 2

// shortHelp is the template of the help, and longHelp that of the help with the flags that all commands share.
const (
	shortHelp = head + `{{$long := .App.Name -}}
{{with .Context.SelectedCommand}}{{$long = printf "%s %s" $long .FullCommand}}{{end -}}
For the connection flags, run '{{$long}} --help-long'.
`
	longHelp = head + `Global flags:
{{GlobalFlags .Context|FlagRows|FormatTwoColumns}}`

	head = `{{define "summary" -}}
{{with .FlagSummary}} {{.}}{{end -}}
{{range .Args}} {{ArgName .}}{{end -}}
{{if .Commands}} <command> [<args> ...]{{end}}
{{.Help|Wrap 0 -}}
{{end -}}

{{with .Context.SelectedCommand -}}
usage: {{$.App.Name}} {{.FullCommand}}{{template "summary" .}}
{{with .HelpLong}}{{.|Wrap 0}}
{{end -}}
{{with .Args}}Args:
{{.|ArgsToTwoColumns|FormatTwoColumns}}
{{end -}}
{{with .Commands}}Subcommands:
{{.|CommandsToTwoColumns|FormatTwoColumns}}
{{end -}}
{{with .Flags|FlagRows}}Flags:
{{.|FormatTwoColumns}}
{{end -}}
{{with .Aliases}}Aliases: {{.|Join}}

{{end -}}
{{else -}}
usage: {{.App.Name}}{{template "summary" .App}}
Commands:
{{.App.Commands|CommandsToTwoColumns|FormatTwoColumns}}
{{end -}}
`
)

// flagRows returns a row with the name and the description of each flag that is not hidden.
func flagRows(flags []*fisk.FlagModel) (rows [][2]string) {
	short := slices.ContainsFunc(flags, func(f *fisk.FlagModel) bool { return f.Short != 0 && !f.Hidden })
	for _, f := range flags {
		if f.Hidden {
			continue
		}
		name := flagName(f)
		if short && f.Short == 0 {
			name = "    " + name
		}
		rows = append(rows, [2]string{name, describeFlag(f)})
	}
	return rows
}

// argName returns an argument as the synopsis of a command has it.
func argName(a *fisk.ArgModel) string {
	name := cmp.Or(a.PlaceHolder, "<"+a.Name+">")
	if a.IsCumulative() {
		name += "..."
	}
	if !a.Required {
		name = "[" + name + "]"
	}
	return name
}

// flagName returns the names of a flag, and the placeholder of its value.
func flagName(f *fisk.FlagModel) string {
	name := "--" + f.Name
	if f.IsNegatable() {
		name = "--[no-]" + f.Name
	}
	if f.Short != 0 {
		name = fmt.Sprintf("-%c, %s", f.Short, name)
	}
	if !f.IsBoolFlag() {
		name += "=" + f.FormatPlaceHolder()
	}
	if f.IsCumulative() {
		name += " ..."
	}
	return name
}

// describeFlag returns what a flag does, its default unless the text says it, and its environment variable.
func describeFlag(f *fisk.FlagModel) string {
	text := f.Help
	if len(f.Default) > 0 && !strings.Contains(text, "(default") {
		text += " (default " + strings.Join(f.Default, ", ") + ")"
	}
	if f.Envar != "" {
		text += " ($" + f.Envar + ")"
	}
	return text
}
