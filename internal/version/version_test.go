package version

import (
	"runtime/debug"
	"testing"

	. "github.com/onsi/gomega"
)

// semantic is the pattern that https://semver.org suggests.
const semantic = `^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?(\+[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?$`

func TestVersionIsThatOfThisModuleHoweverItWasBuilt(t *testing.T) {
	const commit = "83802fac1f6410338e81a4c0db868435f3f7eb02"
	settings := func(pairs ...string) (list []debug.BuildSetting) {
		for i := 0; i < len(pairs); i += 2 {
			list = append(list, debug.BuildSetting{Key: pairs[i], Value: pairs[i+1]})
		}
		return list
	}
	own := func(version string) *debug.Module { return &debug.Module{Path: module, Version: version} }
	user := debug.Module{Path: "example.com/scheduler", Version: "v7.0.0"}
	for name, c := range map[string]struct {
		stamped string
		info    *debug.BuildInfo
		want    string
	}{
		"go install of a release":    {"", &debug.BuildInfo{Main: *own("v1.2.3")}, "1.2.3"},
		"checkout of a release":      {"", &debug.BuildInfo{Main: *own("v1.2.3"), Settings: settings("vcs.revision", commit)}, "1.2.3"},
		"checkout after a release":   {"", &debug.BuildInfo{Main: *own("v1.2.4-0.20261122194321-83802fac1f64+dirty")}, "1.2.4-0.20261122194321-83802fac1f64+dirty"},
		"checkout without a version": {"", &debug.BuildInfo{Main: *own("(devel)"), Settings: settings("vcs.revision", commit)}, "0.0.0-dev+83802fac1f64"},
		"changed checkout without a version": {"", &debug.BuildInfo{Main: *own("(devel)"),
			Settings: settings("vcs.revision", commit, "vcs.modified", "true")}, "0.0.0-dev+83802fac1f64.dirty"},
		"checkout without its history":                {"", &debug.BuildInfo{Main: *own("(devel)")}, "0.0.0-dev"},
		"changed files without a commit":              {"", &debug.BuildInfo{Main: *own("(devel)"), Settings: settings("vcs.modified", "true")}, "0.0.0-dev"},
		"stamped":                                     {"v1.2.3", &debug.BuildInfo{Main: *own("(devel)")}, "1.2.3"},
		"stamped without a v":                         {"1.2.3-SNAPSHOT-83802fa", &debug.BuildInfo{Main: *own("v0.0.0-20261122194321-83802fac1f64")}, "1.2.3-SNAPSHOT-83802fa"},
		"dependency":                                  {"", &debug.BuildInfo{Main: user, Deps: []*debug.Module{{Path: "a", Version: "v9.0.0"}, own("v1.2.3")}}, "1.2.3"},
		"dependency that a fork replaces":             {"", &debug.BuildInfo{Main: user, Deps: []*debug.Module{{Path: module, Version: "v1.2.3", Replace: &debug.Module{Path: "example.com/fork", Version: "v1.2.4"}}}}, "1.2.4"},
		"dependency that a folder replaces":           {"", &debug.BuildInfo{Main: user, Deps: []*debug.Module{{Path: module, Version: "v1.2.3", Replace: &debug.Module{Path: "../election"}}}, Settings: settings("vcs.revision", commit)}, "0.0.0-dev"},
		"dependency without a version":                {"", &debug.BuildInfo{Main: user, Deps: []*debug.Module{own("(devel)")}}, "0.0.0-dev"},
		"binary without this module":                  {"", &debug.BuildInfo{Main: user, Settings: settings("vcs.revision", commit)}, "0.0.0-dev"},
		"build that says nothing, as without modules": {"", nil, "0.0.0-dev"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(of(c.stamped, c.info)).To(Equal(c.want))
			g.Expect(c.want).To(MatchRegexp(semantic), "NATS micro services must have a semantic version")
		})
	}
	NewWithT(t).Expect(String()).To(MatchRegexp(semantic))
}
