package api

import (
	"slices"
	"strings"
	"testing"
)

// group is a part of the module: who its packages are for, and their floors from the bottom to the top.
type group struct {
	name, note string
	floors     [][]string
}

// house lists the packages of the module from the bottom to the top. A package may import packages of lower floors only. A name that ends
// with a slash stands for every package below it.
var house = []group{
	{"Below the library", "internal/, for the library and what is built on it", [][]string{
		{"internal/natural", "internal/timeutil", "internal/wakeup"},
		{"internal/collectors", "internal/host", "internal/lease", "internal/natsconn", "internal/validate", "internal/version"},
		{"dashboards", "internal/dial", "internal/record", "internal/timing"},
		{"internal/core", "internal/kv"},
		{"internal/forecast", "internal/session", "internal/shell", "internal/witness"},
		{"internal/session/claims", "internal/settings"},
		{"internal/control", "internal/notify", "internal/session/driver"},
	}},
	{"The library", "", [][]string{{"."}}},
	{"For users", "built on elections", [][]string{
		{"internal/candidacy", "observe"},
		{"admin"},
		{"connect", "fence", "gocronelector", "group", "mutex", "semaphore", "session", "witness"},
	}},
	{"The command", "internal/cli/, what only it needs", [][]string{
		{"internal/cli/embedded", "internal/cli/terminal"},
		{"internal/cli", "internal/cli/events", "internal/cli/leaderfile"},
		{"internal/cli/look", "internal/cli/supervise"},
		{"internal/cli/checkup", "internal/cli/serving"},
	}},
	{"Its drills", "internal/drill/", [][]string{
		{"internal/drill/faultproxy", "internal/drill/history", "internal/drill/timeline"},
		{"internal/drill", "internal/drill/alerts", "internal/drill/processes"},
		{"internal/drill/chaos"},
	}},
	{"Programs", "", [][]string{
		{"examples/internal/demo"},
		{"cmd/election-cli", "examples/", "spec/proof"},
	}},
}

// tests has the packages that only tests use. They may import every package but the command, and only they may import each other.
const tests = "internal/test/"

// floors are those of all groups.
func floors() (all [][]string) {
	for _, g := range house {
		all = append(all, g.floors...)
	}
	return all
}

func TestImportsPointDown(t *testing.T) {
	for _, p := range packages(t) {
		if floorOf(p.path) < 0 && !isForTests(p.path) {
			t.Errorf("%s has no floor: add it to the table", p.path)
			continue
		}
		for _, imported := range p.imports(t) {
			if problem := direction(p.path, imported); problem != "" {
				t.Errorf("%s imports %s: %s", p.path, imported, problem)
			}
		}
	}
}

func TestWhatOnlyTestsUseLivesWithThem(t *testing.T) {
	list := packages(t)
	used := map[string]bool{}
	for _, p := range list {
		for _, path := range p.imports(t) {
			used[path] = used[path] || !isForTests(p.path)
		}
	}
	for _, p := range list {
		if strings.HasPrefix(p.path, "internal/") && !isForTests(p.path) && !used[p.path] {
			t.Errorf("%s is used by tests only: move it to %s", p.path, tests)
		}
	}
}

// direction says what is wrong with an import; "" if nothing is.
func direction(importer, imported string) string {
	from, to := floorOf(importer), floorOf(imported)
	switch {
	case isForTests(importer) && strings.HasPrefix(imported, "cmd/"):
		return "a package for tests must not need the command"
	case isForTests(importer):
		return ""
	case isForTests(imported):
		return "the imported package is for tests only"
	case to > from:
		return "the imported package is on a higher floor: declare a small interface in the importer, or move what both need down"
	case to == from:
		return "the imported package is on the same floor: move what both need down, or the importer up"
	}
	return ""
}

// floorOf returns the floor of a package; -1 if it has none.
func floorOf(path string) int {
	return slices.IndexFunc(floors(), func(floor []string) bool { return names(floor, path) })
}

func isForTests(path string) bool { return strings.HasPrefix(path, tests) }

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
		{"mutex", "internal/candidacy", true},
		{"mutex", "semaphore", false},
		{"mutex", "internal/test/natstest", false},
		{"internal/test/natstest", ".", true},
		{"internal/test/sim", "cmd/election-cli", false},
		{"cmd/election-cli", "internal/drill", true},
		{"internal/drill", "cmd/election-cli", false},
	} {
		if problem := direction(c.importer, c.imported); (problem == "") != c.fine {
			t.Errorf("%s imports %s: %q", c.importer, c.imported, problem)
		}
	}
}
