package matrix

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"go.uber.org/goleak"

	"github.com/natscampaign/election/internal/host"
	"github.com/natscampaign/election/internal/test/natstest"
)

var servers = flag.String("servers", "", "versions of nats-server, such as \"2.10 2.15.2\"")

const (
	ttl     = 2 * time.Second
	timeout = 60 * time.Second // for anything that must happen: far longer than necessary on an idle machine
)

// commandDir has the built command. It is also the command's configuration folder, so that no test depends on the contexts of the user.
var commandDir string

func TestMain(m *testing.M) {
	var err error
	if commandDir, err = os.MkdirTemp("", "election-matrix-"); err != nil {
		panic(err)
	}
	_ = os.Setenv("XDG_CONFIG_HOME", commandDir)
	natstest.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(commandDir)
		os.Exit(code)
	}))
}

// command builds election-cli once, and returns its path.
var command = sync.OnceValues(func() (string, error) {
	path := filepath.Join(commandDir, "election-cli")
	out, err := exec.Command("go", "build", "-o", path, "github.com/natscampaign/election/cmd/election-cli").CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, out)
	}
	return path, err
})

// version is a version of nats-server.
type version struct {
	program string // its path
	exact   string // such as 2.10.27
	seen    *sightings
}

// atLeast reports whether the version is the given one or newer.
func (v version) atLeast(major, minor, patch int) bool {
	var x, y, z int
	_, _ = fmt.Sscanf(v.exact, "%d.%d.%d", &x, &y, &z)
	return slices.Compare([]int{x, y, z}, []int{major, minor, patch}) >= 0
}

// saw notes for the table what a test saw on this version.
func (v version) saw(what, format string, a ...any) {
	v.seen.add(what, v.exact, fmt.Sprintf(format, a...))
}

// sightings are the cells of a table: what was seen, by feature and version.
type sightings struct {
	mu    sync.Mutex
	cells map[string]map[string]string
}

func (s *sightings) add(what, version, cell string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cells[what] == nil {
		s.cells[what] = map[string]string{}
	}
	s.cells[what][version] = cell
}

// String returns the table. A cell without an entry is a test that failed.
func (s *sightings) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	columns := map[string]bool{}
	for _, row := range s.cells {
		for v := range row {
			columns[v] = true
		}
	}
	versions := slices.Sorted(maps.Keys(columns))
	table := "\n| nats-server | " + strings.Join(versions, " | ") + " |\n|" + strings.Repeat("---|", len(versions)+1) + "\n"
	for _, what := range slices.Sorted(maps.Keys(s.cells)) {
		table += "| " + what + " |"
		for _, v := range versions {
			table += " " + cmp.Or(s.cells[what][v], "failed") + " |"
		}
		table += "\n"
	}
	return table
}

func TestEverythingWorksOnServersOfEachVersion(t *testing.T) {
	versions := strings.Fields(*servers)
	if len(versions) == 0 {
		t.Skip("-servers names no version: see make matrix")
	}
	seen := &sightings{cells: map[string]map[string]string{}}
	t.Cleanup(func() { t.Log(seen) })
	for _, name := range versions {
		t.Run("nats-server "+name, func(t *testing.T) {
			t.Parallel()
			v := version{seen: seen}
			var err error
			v.program, v.exact, err = natstest.InstallServer(name)
			NewWithT(t).Expect(err).NotTo(HaveOccurred())
			for name, test := range map[string]func(*testing.T, version){
				"a bucket announces what it can":                 testBucket,
				"leadership passes on":                           testFailovers,
				"a clean stop is remembered":                     testStop,
				"a leader survives the restart of its server":    testRestart,
				"operators move an election":                     testOperators,
				"locks, slots and groups":                        testLocks,
				"a deposed leader's writes are refused":          testFence,
				"the documented permissions are enough":          testPermissions,
				"a bucket for candidates of Choria":              testChoria,
				"the command shows and moves elections":          testCommand,
				"a bucket is brought in order while it is led":   testBucketEdit,
				"a time of creation is pinned":                   testPinned,
				"no two lead in a drill":                         testDrill,
				"no two lead in a drill on processes and faults": testProcesses,
				"a drill restarts a cluster that is stuck":       testStuckCluster,
			} {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					test(t, v)
				})
			}
		})
	}
}

// skipWithoutProcesses skips a test on systems that cannot stop and continue processes.
func skipWithoutProcesses(t *testing.T) {
	if !host.HasClock {
		t.Skipf("%s cannot stop and continue processes", runtime.GOOS)
	}
}
