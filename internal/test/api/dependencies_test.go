package api

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// embedded lists the modules that a program compiles in which imports package election, and why.
var embedded = []string{
	"github.com/nats-io/nats.go",
	"github.com/klauspost/compress", // by nats.go
	"github.com/nats-io/nkeys",
	"github.com/nats-io/nuid",
	"golang.org/x/crypto",
	"github.com/prometheus/client_golang",
	"github.com/beorn7/perks", // by client_golang
	"github.com/cespare/xxhash/v2",
	"github.com/munnerz/goautoneg",
	"github.com/prometheus/client_model",
	"github.com/prometheus/common",
	"github.com/prometheus/procfs",
	"google.golang.org/protobuf",
	"github.com/robfig/cron/v3", // WithRelinquish; it depends on nothing
	"golang.org/x/sys",          // clocks and processes
}

// beyond lists the modules that other packages for users need besides.
var beyond = map[string][]string{
	"observe": nil, "admin": nil, "witness": nil, "group": nil, "mutex": nil, "semaphore": nil, "gocronelector": nil,
	"connect": {"github.com/synadia-io/orbit.go/natscontext", "golang.org/x/net"},                        // contexts of natscli, and a proxy that one names
	"fence":   {"github.com/synadia-io/orbit.go/jetstreamext", "github.com/synadia-io/orbit.go/natsext"}, // batches of writes
}

func TestProgramsThatEmbedThePackagesCompileTheseModulesOnly(t *testing.T) {
	g := NewWithT(t)
	g.Expect(modulesOf(t, ".")).To(ConsistOf(embedded))
	for path, more := range beyond {
		g.Expect(modulesOf(t, path)).To(ConsistOf(slices.Concat(embedded, more)), path)
	}
}

// modulesOf returns the modules that a package is compiled with, besides this one.
func modulesOf(t *testing.T, path string) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", strings.TrimSuffix(module+"/"+path, "/.")).Output()
	if err != nil {
		t.Fatal(err)
	}
	list := strings.Fields(string(out))
	slices.Sort(list)
	return slices.DeleteFunc(slices.Compact(list), func(path string) bool { return path == module })
}
