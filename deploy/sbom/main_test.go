package main

import (
	"runtime/debug"
	"testing"

	. "github.com/onsi/gomega"
)

func TestDocumentNamesEveryModuleInTheBinary(t *testing.T) {
	g := NewWithT(t)
	info := &debug.BuildInfo{
		GoVersion: "go1.26.8", Main: debug.Module{Path: "example.com/main", Version: "v1.2.3+dirty"},
		Deps: []*debug.Module{
			{Path: "github.com/nats-io/nats.go", Version: "v1.55.0", Sum: "h1:abc="},
			{Path: "example.com/old", Version: "v1.0.0", Replace: &debug.Module{Path: "example.com/new", Version: "v1.0.1"}},
			{Path: "example.com/with_underscore", Version: "v2.0.0+incompatible"},
		},
		Settings: []debug.BuildSetting{{Key: "vcs.time", Value: "2026-11-22T20:43:21+01:00"}},
	}
	d, err := describe("election-cli", [32]byte{0xab}, info)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(d.CreationInfo.Created).To(Equal("2026-11-22T19:43:21Z"))
	g.Expect(d.Packages[0].Checksums).To(ConsistOf(HaveField("Value", HavePrefix("ab00"))))
	ids, purls := map[string]bool{}, map[string]bool{}
	for _, p := range d.Packages {
		g.Expect(ids).NotTo(HaveKey(p.SPDXID), "one id, one package")
		g.Expect(p.SPDXID).To(MatchRegexp(`^SPDXRef-[0-9A-Za-z.-]+$`))
		ids[p.SPDXID] = true
		purls[p.ExternalRefs[0].Locator] = true
	}
	for _, locator := range []string{
		"example.com/main@v1.2.3%2Bdirty", "stdlib@1.26.8", "github.com/nats-io/nats.go@v1.55.0", "example.com/new@v1.0.1",
		"example.com/with_underscore@v2.0.0%2Bincompatible",
	} {
		g.Expect(purls).To(HaveKey("pkg:golang/" + locator))
	}
	g.Expect(d.Relationships).To(HaveLen(len(d.Packages)))
	for _, r := range d.Relationships[1:] {
		g.Expect(ids).To(HaveKey(r.Related))
	}
}

func TestABinaryOfNoCommitHasNoDocument(t *testing.T) {
	_, err := describe("election-cli", [32]byte{}, &debug.BuildInfo{})
	NewWithT(t).Expect(err).To(MatchError(ContainSubstring("-buildvcs=true")))
}
