package clitest

import (
	"encoding/json"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Command is a simple command of a shell block, or of a file that starts the program.
type Command struct {
	Page string
	Line int
	Args []string // with the name of the program first
}

// prompt begins a command in a block that also shows what the command prints.
const prompt = "$ "

// Commands returns the commands of a block. If lines begin with a prompt, only these have commands; else all do.
func (b Block) Commands() (commands []Command) {
	lines := strings.Split(b.Text, "\n")
	prompted := slices.ContainsFunc(lines, func(line string) bool { return strings.HasPrefix(line, prompt) })
	for i := 0; i < len(lines); i++ {
		line, first := lines[i], i
		if prompted && !strings.HasPrefix(line, prompt) {
			continue
		}
		line = strings.TrimPrefix(line, prompt)
		for strings.HasSuffix(line, `\`) && i+1 < len(lines) {
			i++
			line = strings.TrimSuffix(line, `\`) + lines[i]
		}
		for _, args := range split(line) {
			commands = append(commands, Command{b.Page, b.Line + first, args})
		}
	}
	return commands
}

// Commands returns the commands of a span.
func (s Span) Commands() (commands []Command) {
	for _, args := range split(s.Text) {
		commands = append(commands, Command{s.Page, s.Line, args})
	}
	return commands
}

var list = regexp.MustCompile(`\[ *"[^\]]*\]`)

// split returns the commands of a line, each split into its words. A list of strings, as manifests have it, is one command.
func split(line string) (commands [][]string) {
	if found := list.FindString(line); found != "" {
		var args []string
		if json.Unmarshal([]byte(found), &args) == nil {
			return [][]string{args}
		}
	}
	var args []string
	var word strings.Builder
	quoted, begun := rune(0), false
	endWord := func() {
		if begun {
			args = append(args, word.String())
		}
		word.Reset()
		begun = false
	}
	end := func() {
		endWord()
		if len(args) > 0 {
			commands = append(commands, args)
		}
		args = nil
	}
	runes := []rune(line)
	for i := 0; i < len(runes); i++ {
		switch r := runes[i]; {
		case quoted != 0 && r == quoted:
			quoted = 0
		case quoted == '"' && r == '\\' && i+1 < len(runes), quoted == 0 && r == '\\' && i+1 < len(runes):
			i++
			word.WriteRune(runes[i])
			begun = true
		case quoted != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			quoted, begun = r, true
		case r == '#' && !begun:
			end()
			return commands
		case r == ' ' || r == '\t':
			endWord()
		case strings.ContainsRune("|&;()", r):
			end()
		case r == '<' || r == '>': // what follows is a file
			if w := word.String(); w != "" && strings.Trim(w, "0123456789") == "" {
				word.Reset()
				begun = false
			}
			endWord()
			for i+1 < len(runes) && strings.ContainsRune("<>& ", runes[i+1]) {
				i++
			}
			for i+1 < len(runes) && !strings.ContainsRune(" |&;()", runes[i+1]) {
				i++
			}
		default:
			word.WriteRune(r)
			begun = true
		}
	}
	end()
	return commands
}

// CLI returns the arguments that a command gives to election-cli, and false if it does not call it: by its name or path, after another
// command that starts it, or by go run. What makes an image names the program without calling it.
func (c Command) CLI() (args []string, ok bool) {
	for i, arg := range c.Args {
		if arg = strings.TrimPrefix(arg, "ExecStart="); i > 0 && c.Args[i-1] == "-t" || c.Args[0] == "COPY" {
			continue
		}
		if path.Base(arg) == "election-cli" && (arg != "./cmd/election-cli" || i > 1 && c.Args[i-1] == "run" && c.Args[i-2] == "go") {
			return c.Args[i+1:], true
		}
	}
	return nil, false
}
