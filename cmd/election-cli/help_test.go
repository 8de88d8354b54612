package main

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/cli/checkup"
	"github.com/natscampaign/election/internal/cli/events"
	"github.com/natscampaign/election/internal/cli/leaderfile"
	"github.com/natscampaign/election/internal/cli/look"
	"github.com/natscampaign/election/internal/drill"
	"github.com/natscampaign/election/internal/drill/chaos"
)

// jsonFields returns the JSON names of all fields of a type, including the fields of nested types.
func jsonFields(t reflect.Type) (names []string) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		return jsonFields(t.Elem())
	case reflect.Struct:
		if t == reflect.TypeFor[time.Time]() {
			return nil
		}
	default:
		return nil
	}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name != "" && name != "-" {
			names = append(names, name)
		}
		if f.IsExported() || f.Anonymous {
			names = append(names, jsonFields(f.Type)...)
		}
	}
	return names
}

func TestTheHelpDocumentsEveryJSONField(t *testing.T) {
	for _, c := range []struct {
		help string
		of   any
	}{
		{drillHelp, drill.Report{}}, {chaos.Help, chaos.Report{}}, {campaignHelp, events.Event{}}, {candidatesHelp, look.Candidate{}},
		{checkup.Help, checkup.Result{}}, {infoHelp, look.BucketInfo{}}, {bucketInfoHelp, look.BucketInfo{}}, {fileHelp, leaderfile.Content{}}, {fileHelp, leaderfile.CheckResult{}}, {resignHelp, handoverReport{}},
	} {
		t.Run(fmt.Sprintf("%T", c.of), func(t *testing.T) {
			g := NewWithT(t)
			for _, name := range jsonFields(reflect.TypeOf(c.of)) {
				g.Expect(c.help + look.HolderHelp).To(ContainSubstring(`"` + name + `"`))
			}
		})
	}
	g := NewWithT(t)
	for _, name := range []string{events.Started, events.Following, events.Elected, events.Leading, events.Lost, events.Released, events.Stopped, events.Dropped} {
		g.Expect(campaignHelp).To(ContainSubstring("    " + name))
	}
}
