// Package mutation breaks the library in ways that a simulator must notice. All mutants are built into one program, the tests of the simulator, in which
// the environment chooses one.
package mutation

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// Mutant breaks the library by patches of its sources.
type Mutant struct {
	Name    string
	Promise string // by which the simulator must catch it
	Patches []Patch
	Random  bool // only the schedules that a seed decides try what it breaks
}

// Patch is a file, a text that occurs once in it, and what replaces the text. There MUTANT stands for whether the mutant was chosen.
type Patch [3]string

// chooser is a package of that program that knows which mutant was chosen.
const chooser = "package mutant\n\nimport \"os\"\n\nvar chosen = os.Getenv(\"MUTANT\")\n\nfunc Is(name string) bool { return name == chosen }\n"

var wanted = flag.Bool("mutants", false, "break the library in each way that the simulator must notice")

// schedules is how many schedules the simulator may need.
const schedules = "20000"

// Program is the tests of a package with all mutants.
type Program string

// Build builds the tests of the package that is tested, with all mutants. The patched files take the place of those of the library for this build only.
// Without -mutants it only sees whether the patches fit, and skips the test.
func Build(t *testing.T, mutants []Mutant) Program {
	t.Helper()
	patched := patch(t, mutants)
	switch {
	case t.Failed():
		t.FailNow()
	case !*wanted:
		t.Skip("takes minutes of the processor: give -mutants")
	}
	folder, replace := t.TempDir(), map[string]string{}
	for file, source := range patched {
		replace[file] = filepath.Join(folder, fmt.Sprint(len(replace), ".go"))
		writeFile(t, replace[file], []byte(source))
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	program, list := filepath.Join(folder, "sim.test"), filepath.Join(folder, "overlay.json")
	writeFile(t, list, overlay)
	cmd := exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-overlay", list, "-o", program, ".")
	cmd.Env = append(os.Environ(), "GOFLAGS=")
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("the mutants do not build: %v\n%s", err, output)
	}
	return Program(program)
}

// patch returns the sources with all mutants, by their files.
func patch(t *testing.T, mutants []Mutant) map[string]string {
	t.Helper()
	root := rootOfModule(t)
	patched := map[string]string{}
	for _, m := range mutants {
		for _, p := range m.Patches {
			file, text, by := filepath.Join(root, p[0]), p[1], p[2]
			if patched[file] == "" {
				content, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				patched[file] = strings.Replace(string(content), "\nimport ", "\nimport \"github.com/natscampaign/election/internal/mutant\"\nimport ", 1)
			}
			if n := strings.Count(patched[file], text); n != 1 {
				t.Errorf("the text %q of the patch for %q occurs %d times in %s, not once: adapt the patch to the library", text, m.Name, n, p[0])
			}
			patched[file] = strings.Replace(patched[file], text, strings.ReplaceAll(by, "MUTANT", fmt.Sprintf("mutant.Is(%q)", m.Name)), 1)
		}
	}
	patched[filepath.Join(root, "internal", "mutant", "mutant.go")] = chooser
	return patched
}

// rootOfModule returns the folder of go.mod.
func rootOfModule(t *testing.T) string {
	t.Helper()
	folder, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(folder, "go.mod")); err == nil {
			return folder
		}
		if filepath.Dir(folder) == folder {
			t.Fatal("no folder above the test has a go.mod")
		}
		folder = filepath.Dir(folder)
	}
}

func writeFile(t *testing.T, file string, content []byte) {
	t.Helper()
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// ExpectSound plays schedules without a mutant, and expects that no promise is broken.
func (p Program) ExpectSound(t *testing.T, test string, args ...string) {
	t.Helper()
	if output, err := p.play("none", test, args...); err != nil {
		t.Fatalf("the library breaks a promise without a mutant: %v\n%s", err, output)
	}
}

// ExpectCaught plays schedules with a mutant, and expects a verdict.
func (p Program) ExpectCaught(t *testing.T, mutant, verdict, test string, args ...string) {
	t.Helper()
	output, err := p.play(mutant, test, args...)
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatalf("the tests did not run: %v", err)
	}
	found := regexp.MustCompile(`\n\s*(` + verdict + `)`).FindStringSubmatch(string(output))
	if err == nil || found == nil {
		t.Fatalf("%s did not catch the mutant within %s schedules:\n%s", test, schedules, output)
	}
	t.Logf("caught: %s", found[1])
}

// play plays schedules with a mutant, and returns what a test says of them.
func (p Program) play(mutant, test string, args ...string) (output []byte, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, string(p), append([]string{"-test.run", test, "-schedules", schedules}, args...)...)
	cmd.Env = append(os.Environ(), "MUTANT="+mutant)
	return cmd.CombinedOutput()
}
