package admin

import (
	"encoding/json"
	"testing"

	. "github.com/onsi/gomega"
)

func TestFixForMissingMarkersWorksOnTheServerThereIs(t *testing.T) {
	g := NewWithT(t)
	for version, fix := range map[string]string{
		"2.10.27":       "upgrade the servers, of which this one has version 2.10.27, to 2.11 or newer",
		"1.4.1":         "upgrade",
		"2.9.0-beta.1":  "upgrade",
		"2.11.0":        "run 'election-cli bucket edit",
		"2.15.2":        "run 'election-cli bucket edit",
		"3.0.0-RC.1":    "run 'election-cli bucket edit",
		"":              "2.11 or newer",
		"not a version": "2.11 or newer",
	} {
		g.Expect((&checkup{}).markerFix(version)).To(ContainSubstring(fix), version)
		g.Expect((&checkup{}).markerFix(version)).To(ContainSubstring("CreateBucket"), version)
	}
}

func TestFindingsAreReadByProgramsToo(t *testing.T) {
	g := NewWithT(t)
	for i, name := range []string{"info", "warning", "critical"} {
		finding := Finding{Code: "no-ttl", Severity: Severity(i), Message: "m", Fix: "r"}
		b, err := json.Marshal(finding)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(b).To(MatchJSON(`{"code":"no-ttl","severity":"` + name + `","message":"m","fix":"r"}`))
		var back Finding
		g.Expect(json.Unmarshal(b, &back)).To(Succeed())
		g.Expect(back).To(Equal(finding))
	}
	g.Expect(new(Severity).UnmarshalText([]byte("fatal"))).To(MatchError(ContainSubstring(`"fatal"`)))
	g.Expect(Severity(7).String()).To(Equal("Severity(7)"))
}
