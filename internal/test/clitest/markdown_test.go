package clitest

import (
	"testing"

	. "github.com/onsi/gomega"
)

func TestAPageIsParsed(t *testing.T) {
	g := NewWithT(t)
	p := ParsePage("docs/X.md", "# A `b` c\n\nSee [there](Y.md#z) and `[no](link)`.\n\n    go test ./...\n\n    more\n\n- item\n\n    no code\n\n## A (b), c/d\n\n"+
		"```go\nvar x = 1\n```\n\n1. one\n   ```sh\n   ls\n   ```\n\nText.\n    no code either\n")
	g.Expect(p.Links).To(Equal([]Link{{"docs/X.md", 3, "Y.md#z"}}))
	g.Expect(p.Spans).To(Equal([]Span{{"docs/X.md", 1, "b"}, {"docs/X.md", 3, "[no](link)"}}))
	g.Expect(p.Blocks).To(Equal([]Block{
		{"docs/X.md", 5, "", "go test ./...\n\nmore\n"}, {"docs/X.md", 16, "go", "var x = 1\n"}, {"docs/X.md", 21, "sh", "ls\n"},
	}))
	g.Expect(p.HasAnchor("a-b-c")).To(BeTrue())
	g.Expect(p.HasAnchor("a-b-cd")).To(BeTrue())
	g.Expect(p.HasAnchor("a")).To(BeFalse())
}

func TestCommandsAreSplitAsAShellDoes(t *testing.T) {
	for line, want := range map[string][][]string{
		`a b  "c d" e\ f 'g"h' # no`: {{"a", "b", "c d", "e f", `g"h`}},
		`a > out.txt 2>&1 && b | c`:  {{"a"}, {"b"}, {"c"}},
		`x <(a b) "" --y='z'`:        {{"x"}, {"a", "b"}, {"", "--y=z"}},
		`a#b; # c`:                   {{"a#b"}},
		`command: ["a", "b c"]`:      {{"a", "b c"}},
		``:                           nil,
	} {
		NewWithT(t).Expect(split(line)).To(Equal(want), line)
	}
}

func TestCallsOfTheCommandAreFound(t *testing.T) {
	for line, want := range map[string][]string{
		"election-cli ls --json":                               {"ls", "--json"},
		"/usr/local/bin/election-cli ls":                       {"ls"},
		"ExecStart=/bin/election-cli run x -- y":               {"run", "x", "--", "y"},
		"docker run -e A=b image election-cli ls":              {"ls"},
		"* * * * *  election-cli ls":                           {"ls"},
		"go run ./cmd/election-cli drill":                      {"drill"},
		"go install ./cmd/election-cli":                        nil,
		"go test ./cmd/election-cli -run X":                    nil,
		`command: ["election-cli", "run", "x", "--", "a b"]`:   {"run", "x", "--", "a b"},
		"election-cli: nobody leads":                           nil,
		"A=b timeout 5 election-cli wait x --max-wait 1s || y": {"wait", "x", "--max-wait", "1s"},
	} {
		commands := Block{Text: line}.Commands()
		got, _ := commands[0].CLI()
		NewWithT(t).Expect(got).To(Equal(want), line)
	}
}

func TestOnlyPromptedLinesOfABlockWithOutputAreCommands(t *testing.T) {
	g := NewWithT(t)
	g.Expect(Block{"p", 7, "", "$ election-cli ls \\\n  --json\nscheduler  election-cli resign x\n$ true\n"}.Commands()).To(Equal([]Command{
		{"p", 7, []string{"election-cli", "ls", "--json"}}, {"p", 10, []string{"true"}},
	}))
}
