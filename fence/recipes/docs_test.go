package recipes

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// sources returns all the code that the documentation may quote, with single blanks for white space.
func sources(g *WithT) string {
	files, err := filepath.Glob("*.go")
	g.Expect(err).NotTo(HaveOccurred())
	var all []string
	for _, name := range append(files, "../example_test.go") {
		data, err := os.ReadFile(name)
		g.Expect(err).NotTo(HaveOccurred())
		all = append(all, string(data))
	}
	return plain(strings.Join(all, "\n"))
}

func plain(text string) string { return strings.Join(strings.Fields(text), " ") }

var block = regexp.MustCompile("(?s)```(?:go|sql)\n(.*?)```")

func TestCodeOfTheDocumentationIsThatWhichIsTested(t *testing.T) {
	g := NewWithT(t)
	code := sources(g)
	const page = "../../docs/FENCING.md"
	data, err := os.ReadFile(page)
	g.Expect(err).NotTo(HaveOccurred())
	blocks := block.FindAllStringSubmatch(string(data), -1)
	g.Expect(blocks).NotTo(BeEmpty())
	for _, quoted := range blocks {
		g.Expect(strings.Contains(code, plain(quoted[1]))).To(BeTrue(), "%s has what no source has:\n%s", page, quoted[1])
	}
}
