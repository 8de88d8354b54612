package api

import (
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// floors lists the packages of the module from the bottom to the top. A package may import packages of lower floors only,
// and those of its own floor that beside lists for it. A name that ends with a slash stands for every package below it.
var floors = [][]string{
	{"internal/natural", "internal/timeutil", "internal/wakeup"},
	{
		"internal/collectors", "internal/faultproxy", "internal/history", "internal/host", "internal/lease", "internal/naming", "internal/natsconn",
		"internal/terminal", "internal/timeline", "internal/validate", "internal/version",
	},
	{"dashboards", "internal/record", "internal/timing"},
	{"internal/core", "internal/kv"},
	{"internal/shell", "internal/witness"},
	{"internal/settings"},
	{"internal/control", "internal/notify"},
	{"."},
	{"internal/session", "observe"},
	{"admin"},
	{"connect", "fence", "gocronelector", "group", "mutex", "semaphore", "witness"},
	{"internal/cli", "internal/embedded", "internal/events", "internal/leaderfile"},
	{"examples/internal/demo", "internal/alertdrill", "internal/drill", "internal/look", "internal/processes", "internal/supervise"},
	{"internal/chaos", "internal/checkup", "internal/serving"},
	{"cmd/election-cli", "examples/", "spec/proof"},
}

// beside lists the imports that are allowed within one floor.
var beside = map[string][]string{}

// helpers are packages for tests. They may import every package but the command, and only helpers may import them.
var helpers = []string{
	"internal/clitest", "internal/fleettest", "internal/linear", "internal/matrix", "internal/natstest", "internal/proctest",
	"internal/sim", "internal/sim/", "internal/witnesstest",
}

func TestImportsPointDown(t *testing.T) {
	for _, p := range packages(t) {
		if floorOf(p.path) < 0 && !isHelper(p.path) {
			t.Errorf("%s has no floor: add it to the table", p.path)
			continue
		}
		for _, f := range p.files {
			for _, spec := range f.Imports {
				path, err := strconv.Unquote(spec.Path.Value)
				if err != nil {
					t.Fatal(err)
				}
				imported, found := strings.CutPrefix(path, module)
				if !found || imported != "" && imported[0] != '/' {
					continue
				}
				if imported = strings.TrimPrefix(imported, "/"); imported == "" {
					imported = "."
				}
				if problem := direction(p.path, imported); problem != "" {
					t.Errorf("%v: %s imports %s: %s", p.fset.Position(spec.Pos()), p.path, imported, problem)
				}
			}
		}
	}
}

func TestTheDrawingOfTheFloorsHasThesePackages(t *testing.T) {
	drawing, err := os.ReadFile("../../docs/floors.svg")
	if err != nil {
		t.Fatal(err)
	}
	for i, floor := range floors {
		drawn := regexp.MustCompile(`<text data-floor="` + strconv.Itoa(i) + `".*`).FindString(string(drawing))
		var listed []string
		for _, name := range regexp.MustCompile(`>([^<>]+)</tspan>`).FindAllStringSubmatch(drawn, -1) {
			listed = append(listed, name[1])
		}
		var expected []string
		for _, name := range floor {
			if name == "." {
				name = "election"
			}
			expected = append(expected, strings.TrimPrefix(name, "internal/"))
		}
		slices.Sort(listed)
		slices.Sort(expected)
		if !slices.Equal(listed, expected) {
			t.Errorf("docs/floors.svg has %q on floor %d, expected %q", listed, i, expected)
		}
	}
}

// direction says what is wrong with an import; "" if nothing is.
func direction(importer, imported string) string {
	from, to := floorOf(importer), floorOf(imported)
	switch {
	case isHelper(importer) && strings.HasPrefix(imported, "cmd/"):
		return "a helper for tests must not need the command"
	case isHelper(importer):
		return ""
	case isHelper(imported):
		return "the imported package is for tests only"
	case to > from:
		return "the imported package is on a higher floor: declare a small interface in the importer, or move what both need down"
	case to == from && !slices.Contains(beside[importer], imported):
		return "the imported package is on the same floor: move what both need down, or add the import to beside"
	}
	return ""
}

// floorOf returns the floor of a package; -1 if it has none.
func floorOf(path string) int {
	return slices.IndexFunc(floors, func(floor []string) bool { return names(floor, path) })
}

func isHelper(path string) bool { return names(helpers, path) }

// names reports whether a list names a package, or a directory above it.
func names(list []string, path string) bool {
	return slices.ContainsFunc(list, func(name string) bool {
		return name == path || strings.HasSuffix(name, "/") && strings.HasPrefix(path, name)
	})
}

func TestDirectionRefusesImportsThatPointUp(t *testing.T) {
	for _, c := range []struct {
		importer, imported string
		fine               bool
	}{
		{"internal/kv", "internal/record", true},
		{"internal/kv", ".", false},
		{".", "internal/control", true},
		{".", "observe", false},
		{"observe", ".", true},
		{"connect", "admin", true},
		{"admin", "connect", false},
		{"mutex", "internal/session", true},
		{"mutex", "semaphore", false},
		{"mutex", "internal/natstest", false},
		{"internal/natstest", ".", true},
		{"internal/sim", "cmd/election-cli", false},
		{"cmd/election-cli", "cmd/election-cli/internal/drill", true},
		{"cmd/election-cli/internal/drill", "cmd/election-cli", false},
	} {
		if problem := direction(c.importer, c.imported); (problem == "") != c.fine {
			t.Errorf("%s imports %s: %q", c.importer, c.imported, problem)
		}
	}
}
