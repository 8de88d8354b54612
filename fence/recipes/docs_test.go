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
	for path, which := range map[string]*regexp.Regexp{
		"../../docs/FENCING.md": regexp.MustCompile(``),
		"../../README.md":       regexp.MustCompile(`fence\.`),
	} {
		data, err := os.ReadFile(path)
		g.Expect(err).NotTo(HaveOccurred())
		tried := 0
		for _, quoted := range block.FindAllStringSubmatch(string(data), -1) {
			if which.MatchString(quoted[1]) {
				tried++
				g.Expect(strings.Contains(code, plain(quoted[1]))).To(BeTrue(), "%s has what no source has:\n%s", path, quoted[1])
			}
		}
		g.Expect(tried).NotTo(BeZero(), "%s has no code", path)
	}
}
