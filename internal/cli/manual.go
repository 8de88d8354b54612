package cli

import (
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/choria-io/fisk"
)

// Manual is what the manual page has beside the help of the commands and flags.
type Manual struct {
	Summary     string // a few words, for the section NAME
	Description string
	ExitCodes   string
	Environment map[string]string // what the variables do that stand for no flag
	SeeAlso     string
}

// write writes the manual page, for man(1).
func (m Manual) write(w io.Writer, app *fisk.ApplicationModel) error {
	p := &manualPage{}
	commands := slices.DeleteFunc(app.FlattenedCommands(), func(c *fisk.CmdModel) bool { return c.Hidden || c.Name == "help" })
	p.macro("TH", app.Name, "1", "", app.Name+" "+app.Version, app.Author)
	p.WriteString(".nh\n.ad l\n") // a name that is hyphenated cannot be pasted
	p.macro("SH", "NAME")
	p.line(app.Name + ` - ` + m.Summary)
	p.macro("SH", "SYNOPSIS")
	p.macro("nf")
	for _, c := range commands {
		p.line(synopsis(app, c))
	}
	p.macro("fi")
	p.macro("SH", "DESCRIPTION")
	p.text(m.Description)
	p.macro("SH", "COMMANDS")
	for _, c := range commands {
		p.macro("SS", synopsis(app, c))
		p.text(c.Help + ".\n\n" + c.HelpLong)
		p.flags(c.Flags)
	}
	p.macro("SH", "GLOBAL FLAGS")
	p.flags(app.Flags)
	p.macro("SH", "EXIT STATUS")
	p.text(m.ExitCodes)
	p.macro("SH", "ENVIRONMENT")
	p.variables(m.Environment, app, commands)
	p.macro("SH", "EXAMPLES")
	for _, c := range commands {
		if command := example(app, c); command != "" {
			p.text(c.Help + ":\n\n    " + command)
		}
	}
	p.macro("SH", "SEE ALSO")
	p.text(m.SeeAlso)
	_, err := io.WriteString(w, p.String())
	return err
}

// synopsis returns a command with its flags and arguments.
func synopsis(app *fisk.ApplicationModel, c *fisk.CmdModel) string {
	parts := []string{app.Name, c.FullCommand}
	if len(c.Flags) > 0 {
		parts = append(parts, c.FlagSummary())
	}
	for _, a := range c.Args {
		parts = append(parts, argName(a))
	}
	return strings.Join(parts, " ")
}

// example returns the first command line that the help of a command gives: after "Example:", or on an indented line.
func example(app *fisk.ApplicationModel, c *fisk.CmdModel) string {
	found := regexp.MustCompile(`(?m)^(?:Example: |    )(` + regexp.QuoteMeta(app.Name) + ` .*)$`).FindStringSubmatch(c.HelpLong)
	if found == nil {
		return ""
	}
	return found[1]
}

// manualPage is a manual page in the macros of man(7).
type manualPage struct{ strings.Builder }

// macro writes a macro with its arguments.
func (p *manualPage) macro(name string, args ...string) {
	p.WriteString("." + name)
	for _, a := range args {
		p.WriteString(` "` + strings.ReplaceAll(escape(a), `"`, `\(dq`) + `"`)
	}
	p.WriteString("\n")
}

// line writes a line of text.
func (p *manualPage) line(text string) {
	if strings.HasPrefix(text, ".") { // would be a macro
		p.WriteString(`\&`)
	}
	p.WriteString(escape(text) + "\n")
}

// escape escapes what roff would change: the typewriter's quotes and hyphens are to stay, so that commands can be pasted.
func escape(text string) string {
	return strings.NewReplacer(`\`, `\(rs`, `-`, `\-`, `'`, `\(aq`, "`", `\(ga`, `^`, `\(ha`, `~`, `\(ti`).Replace(text)
}

// text writes paragraphs, which empty lines separate. Indented lines stay as they are.
func (p *manualPage) text(text string) {
	for block := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		p.macro("PP")
		indented := false
		for line := range strings.SplitSeq(block, "\n") {
			if is := strings.HasPrefix(line, "    "); is != indented {
				p.indent(is)
				indented = is
			}
			p.line(strings.TrimPrefix(line, "    "))
		}
		if indented {
			p.indent(false)
		}
	}
}

// indent begins or ends a part that is indented and not filled.
func (p *manualPage) indent(on bool) {
	if on {
		p.macro("RS", "4")
		p.macro("EX")
		return
	}
	p.macro("EE")
	p.macro("RE")
}

// term writes a term and what it means.
func (p *manualPage) term(name, meaning string) {
	p.macro("TP")
	p.WriteString(`\fB` + escape(name) + `\fR` + "\n")
	p.line(meaning)
}

// flags writes the flags that are not hidden.
func (p *manualPage) flags(flags []*fisk.FlagModel) {
	for _, f := range flags {
		if !f.Hidden {
			p.term(flagName(f), describeFlag(f))
		}
	}
}

// variables writes the variables that stand for flags, and others.
func (p *manualPage) variables(others map[string]string, app *fisk.ApplicationModel, commands []*fisk.CmdModel) {
	meanings := maps.Clone(others)
	flags := slices.Clone(app.Flags)
	for _, c := range commands {
		flags = append(flags, c.Flags...)
	}
	for _, f := range flags {
		if f.Envar != "" {
			meanings[f.Envar] = fmt.Sprintf("Stands for --%s.", f.Name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(meanings)) {
		p.term(name, meanings[name])
	}
}
