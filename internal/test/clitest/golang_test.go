package clitest

import (
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
)

func TestABlockThatDoesNotCompileIsFoundWithItsLine(t *testing.T) {
	if testing.Short() {
		t.Skip("it compiles: not with -short")
	}
	g := NewWithT(t)
	c := NewCompiler(t, filepath.Join("..", "..", ".."))
	for text, want := range map[string]string{
		"package main\n\nfunc main() { undefined() }\n":                                   "12: undefined: undefined",
		"e, err := election.NewElection(host, \"k\", bucket)\nelection.Nothing(e, err)\n": "11: undefined: election.Nothing",
		"check(candidate.Run(ctx, work))\nx :=\n":                                         "",
		"func f() int { return \"\" }\n":                                                  `10: cannot use "" (untyped string constant) as int value in return statement`,
	} {
		g.Expect(c.Compile(Block{Page: "p.md", Line: 10, Text: text})).To(ContainElement(ContainSubstring(want)), text)
	}
	for _, text := range []string{
		"package main\n\nimport \"log\"\n\nfunc main() { log.Print() }\n",
		"e, err := election.NewElection(host, \"k\", bucket)\nif err != nil {\n\treturn err\n}\n",
		"e, err := election.NewElection(host, \"k\", bucket)\nif err != nil {\n\treturn\n}\n",
		"func check(err error) { log.Print(err) }\n",
	} {
		g.Expect(c.Compile(Block{Page: "p.md", Line: 10, Text: text})).To(BeEmpty(), text)
	}
}
