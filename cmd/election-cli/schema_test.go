package main

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	. "github.com/onsi/gomega"
)

var update = flag.Bool("update", false, "write the schemas in docs/schemas anew")

// schemaFolder has the published schemas.
const schemaFolder = "../../docs/schemas"

func TestThePublishedSchemasDescribeTheJSONOutput(t *testing.T) {
	g := NewWithT(t)
	for name := range outputs {
		s, err := inferSchema(name)
		g.Expect(err).NotTo(HaveOccurred())
		text := published(name, s)
		path := filepath.Join(schemaFolder, name+".json")
		if *update {
			g.Expect(os.WriteFile(path, []byte(text), 0o644)).To(Succeed())
		}
		golden, err := os.ReadFile(path)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(string(golden)).To(Equal(text), "%s: if the change is right, run 'go test ./cmd/election-cli -run PublishedSchemas -update'", path)
	}
	files, err := filepath.Glob(filepath.Join(schemaFolder, "*"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(files).To(HaveLen(len(outputs)), "each schema is that of an output")
}

// Names that tell a duration or a time from other fields.
var (
	durationName = regexp.MustCompile(`(^|_)(ttl|duration|took|gap|overlap|interval|delay|pause|timeout|stand_down|remaining|outages?|failover|` +
		`bound|led|believed|expires_in|seen|age|every|without_leader|clock_lag|clock_ahead)(_|$)`)
	otherUnit = regexp.MustCompile(`_(ns|us|ms|sec|seconds|millis|m|min|h)$`)
	timeName  = regexp.MustCompile(`(^|_)(at|time|since|created|started|renewed|expires|written|expiry)$`)
)

func TestDurationsAreSecondsAndTimesAreDatesInEachSchema(t *testing.T) {
	g := NewWithT(t)
	for name := range outputs {
		s, err := inferSchema(name)
		g.Expect(err).NotTo(HaveOccurred())
		visit(s, "", func(s *jsonschema.Schema, field string) {
			what := name + ": " + field
			g.Expect(field).NotTo(MatchRegexp(otherUnit.String()), what)
			g.Expect(s.Comment).NotTo(Equal(nanoseconds), what)
			if s.Type == "number" && field != "lose_replies" || durationName.MatchString(field) && s.Type != "boolean" {
				g.Expect(field).To(HaveSuffix("_s"), what)
			}
			g.Expect(timeName.MatchString(field)).To(Equal(s.Format == "date-time"), what)
		})
	}
}

func TestBothKindsOfDrillGiveAFieldTheSameType(t *testing.T) {
	g := NewWithT(t)
	one, err := inferSchema("drill")
	g.Expect(err).NotTo(HaveOccurred())
	other, err := inferSchema("drill-processes")
	g.Expect(err).NotTo(HaveOccurred())
	shared := compareTypes(g, one, other)
	g.Expect(shared).To(ContainElements("ttl_s", "candidates", "duration_s", "server_version", "faults", "overlap_s", "samples", "longest_gap_s", "terms", "late",
		"kind", "count", "failover_s", "bound_s", "at_s"))
}

// compareTypes expects that two schemas give fields of the same name the same type, and returns the names.
func compareTypes(g Gomega, one, other *jsonschema.Schema) (shared []string) {
	for name, s := range one.Properties {
		if o := other.Properties[name]; o != nil {
			g.Expect([]string{o.Type, o.Description}).To(Equal([]string{s.Type, s.Description}), name)
			shared = append(shared, name)
			if s.Items != nil {
				shared = append(shared, compareTypes(g, s.Items, o.Items)...)
			}
		}
	}
	return shared
}
