package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/admin"
	"github.com/natscampaign/election/internal/cli/checkup"
	"github.com/natscampaign/election/internal/cli/events"
	"github.com/natscampaign/election/internal/cli/leaderfile"
	"github.com/natscampaign/election/internal/cli/look"
	"github.com/natscampaign/election/internal/drill"
	"github.com/natscampaign/election/internal/drill/chaos"
	"github.com/natscampaign/election/internal/timeutil"
	"github.com/natscampaign/election/observe"
)

// outputs has the types of the JSON output, by the names of their schemas, and what they are. Two types are two kinds of lines.
var outputs = map[string]struct {
	title string
	types []reflect.Type
}{
	"bucket-add":      {"Result of election-cli bucket add", types[bucketAddReport]()},
	"bucket-edit":     {"Result of election-cli bucket edit", types[bucketEditReport]()},
	"campaign":        {"One event of election-cli campaign and election-cli file", types[events.Event]()},
	"candidates":      {"Result of election-cli candidates", types[[]look.Candidate]()},
	"check":           {"Result of election-cli check", types[checkup.Result]()},
	"drill":           {"Result of election-cli drill", types[drill.Report]()},
	"drill-processes": {"Result of election-cli drill --processes", types[chaos.Report]()},
	"file-check":      {"Result of election-cli file --check", types[leaderfile.CheckResult]()},
	"handover":        {"Result of election-cli resign and election-cli transfer", types[handoverReport]()},
	"info":            {"Result of election-cli info KEY, wait and evict", types[look.ElectionInfo]()},
	"info-bucket":     {"Result of election-cli info and election-cli bucket info", types[look.BucketInfo]()},
	"leader-file":     {"The leader file of election-cli file", types[leaderfile.Content]()},
	"ls":              {"Result of election-cli ls", types[[]look.Holder]()},
	"ls-ended":        {"Result of election-cli ls --ended", types[[]observe.Event]()},
	"bucket-prune":    {"Result of election-cli bucket prune", types[bucketPruneReport]()},
	"server":          {"Result of election-cli server", types[serverReport]()},
	"watch":           {"One event of election-cli watch", append(types[observe.Event](), types[look.DroppedEvents]()...)},
}

func types[T any]() []reflect.Type { return []reflect.Type{reflect.TypeFor[T]()} }

// outputOf returns the name of the schema for the output of a command line with --json.
func outputOf(args []string) string {
	has := func(flag string) bool { return slices.Contains(args, flag) }
	switch name := args[0]; {
	case name == "drill" && has("--processes"):
		return "drill-processes"
	case name == "file" && has("--check"):
		return "file-check"
	case name == "file":
		return "campaign"
	case (name == "list" || name == "ls") && has("--ended"):
		return "ls-ended"
	case name == "list":
		return "ls"
	case name == "bucket" && has("add"):
		return "bucket-add"
	case name == "bucket" && has("edit"):
		return "bucket-edit"
	case name == "bucket" && has("prune"):
		return "bucket-prune"
	case name == "bucket", name == "info" && (len(args) == 1 || strings.HasPrefix(args[1], "-")):
		return "info-bucket"
	case name == "wait", name == "evict":
		return "info"
	case name == "resign", name == "transfer":
		return "handover"
	default:
		return name
	}
}

const nanoseconds = "a time.Duration would be a number of nanoseconds"

// wireSchemas are the schemas of types that encode themselves.
var wireSchemas = map[reflect.Type]*jsonschema.Schema{
	reflect.TypeFor[time.Time]():         {Type: "string", Format: "date-time"},
	reflect.TypeFor[time.Duration]():     {Comment: nanoseconds, Not: &jsonschema.Schema{}},
	reflect.TypeFor[timeutil.Seconds]():  {Type: "number"},
	reflect.TypeFor[election.State]():    wordsOf(election.UnknownState, election.CandidateState, election.LeaderElectState, election.LeaderState),
	reflect.TypeFor[observe.EventKind](): wordsOf(observe.Elected, observe.Leading, observe.Renewed, observe.Released, observe.Expired, observe.Evicted),
	reflect.TypeFor[admin.Severity]():    wordsOf(admin.SeverityInfo, admin.SeverityWarning, admin.SeverityCritical),
	reflect.TypeFor[checkup.Status]():    wordsOf(checkup.Status(0), checkup.Status(1), checkup.Status(2), checkup.Status(3)),
}

func wordsOf[T fmt.Stringer](values ...T) *jsonschema.Schema {
	s := &jsonschema.Schema{Type: "string"}
	for _, v := range values {
		s.Enum = append(s.Enum, v.String())
	}
	return s
}

// fieldDescriptions describe fields that mean the same in each output.
var fieldDescriptions = map[string]string{
	"at_s": "since the drill began, in seconds", "believed_s": "how long each leader considered itself leader after its link was cut, in seconds",
	"last_error_age_s": "how long ago that request failed, in seconds", "at": "when it happened", "by": "who evicted the leader, by that operator's own account, or overwrote the key", "key": "the election, a key of the bucket",
	"bound_s": "the longest time that is allowed, in seconds", "bucket_created": "when the bucket was created",
	"clock_ahead_s":  "by how much the clock of this host is ahead of the server's, in seconds",
	"clock_lag_s":    "by how much the candidate's clock is behind the server's, in seconds; negative if it is ahead",
	"connection":     "of the candidate's process, as the server calls it: CLIENT@SERVER; copies of a process differ in it",
	"code":           "an identifier that does not change",
	"expires":        "when the key expires unless it is renewed, by the server's clock",
	"expires_in_s":   "until the key expires, by the server's clock, in seconds; negative if that is over",
	"failover_s":     "for each time without a leader, how long it took until a candidate led, in seconds",
	"fix":            "what to do about it",
	"instance":       "unique per start of a candidate",
	"last_error":     "the latest error of a request, until a request of its kind succeeds",
	"led_s":          "how long the candidate led, in seconds",
	"leads_in_s":     "how long the stand-down after the win takes, in seconds; left out if there is none",
	"leads_since":    "since when leadership counts, by the leader's clock; left out for a leader-elect",
	"interval_s":     "from one renewal to the next, in seconds; left out where the holder does not say",
	"longest_gap_s":  "the longest time between two samples, in seconds",
	"metadata":       "what the candidate says about itself",
	"overlap_s":      "how long two candidates led at once, in seconds",
	"renewed":        "when the leader renewed last, by the server's clock",
	"revision":       "of the key",
	"since":          "when the term was won, by the leader's clock",
	"started":        "when the candidate started, by its clock",
	"standby":        "whether the candidate would take over; left out where none is needed",
	"standbys":       "how many candidates answered that would take over; left out where that is not known, or none is needed",
	"term":           "the number of the term; later terms have larger numbers",
	"term_numbers":   "the numbers of the terms, in order",
	"terms":          "the number of terms",
	"token":          "the fencing token, which sorts as text",
	"ttl_s":          "the TTL of the bucket, which is the length of a lease, in seconds",
	"stand_down_s":   "how long a new leader waits before its leadership counts, in seconds",
	"duration_s":     "how long the drill took, in seconds",
	"took_s":         "how long it took, in seconds",
	"server_version": "of nats-server",
}

// visit calls f for a schema and all schemas in it, with the name of the field that the schema describes.
func visit(s *jsonschema.Schema, field string, f func(s *jsonschema.Schema, field string)) {
	f(s, field)
	for name, property := range s.Properties {
		visit(property, name, f)
	}
	for _, alternative := range s.AnyOf {
		visit(alternative, field, f)
	}
	for _, part := range []*jsonschema.Schema{s.Items, s.AdditionalProperties} {
		if part != nil {
			visit(part, field, f)
		}
	}
}

// inferSchema returns the schema of an output, which allows no further fields.
func inferSchema(name string) (*jsonschema.Schema, error) {
	var all []*jsonschema.Schema
	for _, t := range outputs[name].types {
		s, err := jsonschema.ForType(t, &jsonschema.ForOptions{TypeSchemas: wireSchemas})
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	s := all[0]
	if len(all) > 1 {
		s = &jsonschema.Schema{AnyOf: all}
	}
	visit(s, "", refine)
	return s, nil
}

// refine describes the fields of a schema. No list in the output is null, and neither is a field that may be left out.
func refine(s *jsonschema.Schema, _ string) {
	if slices.Equal(s.Types, []string{"null", "array"}) {
		s.Type, s.Types = "array", nil
	}
	for name, property := range s.Properties {
		property.Description = fieldDescriptions[name]
		if property.Description == "" && strings.HasSuffix(name, "_s") {
			property.Description = "in seconds"
		}
		if !slices.Contains(s.Required, name) && len(property.Types) == 2 {
			property.Type, property.Types = property.Types[1], nil
		}
	}
}

// published returns the text of the schema as it is published, which allows fields that later versions may add.
func published(name string, s *jsonschema.Schema) string {
	s = s.CloneSchemas()
	visit(s, "", func(s *jsonschema.Schema, _ string) {
		if s.AdditionalProperties != nil && s.AdditionalProperties.Not != nil {
			s.AdditionalProperties = nil
		}
	})
	body, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	var text bytes.Buffer
	head := fmt.Sprintf(`{"$schema": %q, "title": %q, `, "https://json-schema.org/draft/2020-12/schema", outputs[name].title)
	if err := json.Indent(&text, append([]byte(head), body[1:]...), "", "  "); err != nil {
		panic(err)
	}
	return text.String() + "\n"
}

// resolved has the schemas of all outputs, for validation.
var resolved = sync.OnceValues(func() (map[string]*jsonschema.Resolved, error) {
	all := map[string]*jsonschema.Resolved{}
	for name := range outputs {
		s, err := inferSchema(name)
		if err != nil {
			return nil, err
		}
		if all[name], err = s.Resolve(nil); err != nil {
			return nil, err
		}
	}
	return all, nil
})

// comparedOutputs has the names of the schemas with which a test compared output.
var comparedOutputs sync.Map

// outputsWithoutTest returns the schemas with which no test compared output, after a run of all tests on a system that can run them all.
func outputsWithoutTest() (names []string) {
	for _, name := range []string{"run", "skip", "list", "fuzz"} {
		if flagText("test."+name) != "" {
			return nil
		}
	}
	if testing.Short() || runtime.GOOS != "linux" {
		return nil
	}
	for name := range outputs {
		if _, compared := comparedOutputs.Load(name); !compared {
			names = append(names, name)
		}
	}
	return names
}

func flagText(name string) string {
	if f := flag.Lookup(name); f != nil {
		return f.Value.String()
	}
	return ""
}

// expectOutput expects that the output of a command line is as its schema says. It ignores output that is not JSON by the command line.
func expectOutput(g Gomega, args []string, stdout string) {
	if slices.Contains(args, "--json") {
		expectSchema(g, outputOf(args), stdout)
	}
}

// expectSchema expects that each JSON value in a text is as a schema says, without further fields, and that each of its times is RFC 3339.
func expectSchema(g Gomega, name, text string) {
	schemas, err := resolved()
	g.Expect(err).NotTo(HaveOccurred())
	schema := schemas[name]
	g.Expect(schema).NotTo(BeNil(), "%q has no schema", name)
	for d := json.NewDecoder(strings.NewReader(text)); ; {
		var value any
		err := d.Decode(&value)
		if err == io.EOF {
			return
		}
		g.Expect(err).NotTo(HaveOccurred(), text)
		g.Expect(schema.Validate(value)).To(Succeed(), "%s: %s", name, text)
		comparedOutputs.Store(name, true)
		expectTimes(g, "", value)
	}
}

// expectTimes expects that each string in a field with the name of a time is RFC 3339.
func expectTimes(g Gomega, field string, value any) {
	switch v := value.(type) {
	case string:
		if timeName.MatchString(field) {
			_, err := time.Parse(time.RFC3339Nano, v)
			g.Expect(err).NotTo(HaveOccurred(), field)
		}
	case []any:
		for _, e := range v {
			expectTimes(g, field, e)
		}
	case map[string]any:
		for name, e := range v {
			if field != "metadata" {
				expectTimes(g, name, e)
			}
		}
	}
}
