package docs_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/test/clitest"
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

// TestProgramOfTheReadmeBuildsInANewModule follows the README. A go line of 1.26 is older than 1.26.0, which dependencies of this module need.
func TestProgramOfTheReadmeBuildsInANewModule(t *testing.T) {
	if testing.Short() {
		t.Skip("it compiles: not with -short")
	}
	g := NewWithT(t)
	readme, err := os.ReadFile(filepath.Join(repository, "README.md"))
	g.Expect(err).NotTo(HaveOccurred())
	_, program, _ := strings.Cut(string(readme), "```go\n")
	program, _, _ = strings.Cut(program, "```")
	g.Expect(string(readme)).To(ContainSubstring("run `go mod tidy`"))
	sums, err := os.ReadFile(filepath.Join(repository, "go.sum"))
	g.Expect(err).NotTo(HaveOccurred())
	here, err := filepath.Abs(repository)
	g.Expect(err).NotTo(HaveOccurred())
	for _, version := range []string{"1.26", "1.26.0"} {
		dir := t.TempDir()
		for name, text := range map[string]string{
			"main.go": program, "go.sum": string(sums), "go.mod": "module example.com/app\n\ngo " + version + "\n\nreplace " + module + " => " + here + "\n",
		} {
			g.Expect(os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600)).To(Succeed())
		}
		for _, args := range [][]string{{"mod", "tidy"}, {"build", "-o", os.DevNull, "."}} {
			cmd := exec.Command("go", args...)
			cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOSUMDB=off", "GOFLAGS=-mod=mod")
			out, err := cmd.CombinedOutput()
			g.Expect(err).NotTo(HaveOccurred(), "go %v, go %s: %s", args, version, out)
		}
	}
}
