// Package version decides which version this module has: the command prints it, and candidates report it to operators.
package version

import (
	"runtime/debug"
	"strings"
	"sync"
)

const (
	module = "github.com/natscampaign/election"

	// development is the version of a build that knows no version.
	development = "0.0.0-dev"
)

// stamped is the version that the linker was given. Builds without the history of the repository need it, such as those of a Dockerfile:
//
//	go build -ldflags '-X github.com/natscampaign/election/internal/version.stamped=v1.2.3'
var stamped string

// String returns the version of this module, a semantic version without the leading v.
var String = sync.OnceValue(func() string {
	info, _ := debug.ReadBuildInfo()
	return of(stamped, info)
})

// of returns the version of the module in a binary with that build information, which may be nil:
//
//   - the one that the linker was given;
//   - else the one that the go command knows: that of a dependency, of go install …@v1.2.3, or of a checkout, such as 1.2.3 on that tag and
//     1.2.4-0.20261122194321-83802fac1f64 after it, with +dirty if files were changed;
//   - else 0.0.0-dev, with the commit of a checkout if that much is known.
func of(stamped string, info *debug.BuildInfo) string {
	if stamped != "" {
		return strings.TrimPrefix(stamped, "v")
	}
	if info == nil {
		return development
	}
	for _, m := range append(info.Deps, &info.Main) {
		if m.Path != module {
			continue
		}
		if m.Replace != nil { // a fork has versions of its own, and a folder has none
			m = m.Replace
		}
		if number, found := strings.CutPrefix(m.Version, "v"); found {
			return number
		}
	}
	if info.Main.Path == module {
		return development + commitOf(info)
	}
	return development
}

// commitOf returns the commit of the checkout from which the main module was built, as the metadata of a semantic version.
func commitOf(info *debug.BuildInfo) string {
	var commit, dirty string
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision" && s.Value != "":
			commit = "+" + s.Value[:min(len(s.Value), 12)]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = ".dirty"
		}
	}
	if commit == "" {
		return ""
	}
	return commit + dirty
}
