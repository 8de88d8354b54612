package docs_test

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/clitest"
)

// repository is the path to the root of the module.
const repository = ".."

const module = "github.com/natscampaign/election"

// foreign lists the blocks that show another library, by page and first line of code, with the reason why they are only parsed.
var foreign = map[string]string{
	`docs/REFERENCE.md: registry := prometheus.NewRegistry()`: "OpenTelemetry, which is no dependency",
}

func TestGoBlocksCompile(t *testing.T) {
	if testing.Short() {
		t.Skip("it compiles: not with -short")
	}
	g := NewWithT(t)
	pages, err := clitest.Pages(repository)
	g.Expect(err).NotTo(HaveOccurred())
	sources, err := clitest.GoSources(repository)
	g.Expect(err).NotTo(HaveOccurred())
	compiler := clitest.NewCompiler(t, repository)
	listed := map[string]bool{}
	for _, p := range pages {
		for _, b := range p.Blocks {
			if b.Language != "go" {
				continue
			}
			first, _, _ := strings.Cut(b.Text, "\n")
			name := b.Page + ": " + first
			if foreign[name] != "" {
				listed[name] = true
				if !clitest.ParsesAsGo(b) {
					t.Errorf("%s:%d: does not parse", b.Page, b.Line)
				}
				continue
			}
			if strings.Contains(sources, clitest.PlainText(b.Text)) { // and so is compiled there
				continue
			}
			for _, problem := range compiler.Compile(b) {
				t.Errorf("%s:%v", b.Page, problem)
			}
		}
	}
	g.Expect(listed).To(HaveLen(len(foreign)), "a block is listed that is not there any more")
}
