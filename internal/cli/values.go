package cli

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/choria-io/fisk"

	"github.com/natscampaign/election/internal/validate"
)

// The functions below have a flag set a value, as those of fisk do. Their errors name the flag, the environment variable that stands for the
// flag if there is one, and the value: those of fisk name none of them.

const notADuration = "is not a duration: give one such as 5s or 1m30s"

// DurationVar has a flag set a duration, as [time.ParseDuration] reads it.
func DurationVar(flag *fisk.FlagClause, target *time.Duration) {
	setParsed(flag, "DURATION", target, time.ParseDuration, notADuration)
}

// IntVar has a flag set a number; example is one that the flag takes.
func IntVar(flag *fisk.FlagClause, target *int, example int) {
	setParsed(flag, "N", target, strconv.Atoi, fmt.Sprintf("is not a number: give one such as %d", example))
}

// Uint64Var has a flag set a number that is not negative.
func Uint64Var(flag *fisk.FlagClause, target *uint64) {
	parse := func(text string) (uint64, error) { return strconv.ParseUint(text, 10, 64) }
	setParsed(flag, "N", target, parse, "is not a number from 0 on: give one such as 3")
}

// BytesVar has a flag set a number of bytes.
func BytesVar(flag *fisk.FlagClause, target *int64) {
	setParsed(flag, "BYTES", target, validate.ParseBytes, "is not a number of bytes: give one such as 1048576 or 1M")
}

// setParsed has a flag set what parse makes of its text. The problem is what is wrong with a text that parse refuses.
func setParsed[T any](flag *fisk.FlagClause, placeholder string, target *T, parse func(string) (T, error), problem string) {
	setValue(flag, placeholder, func(text string) string {
		v, err := parse(text)
		if err != nil {
			return problem
		}
		*target = v
		return ""
	})
}

// EnumVar has a flag set one of the options.
func EnumVar(flag *fisk.FlagClause, target *string, options ...string) {
	setValue(flag.HintOptions(options...), strings.Join(options, "|"), choose(options, func(text string) { *target = text }))
}

// EnumsVar has a flag that may be repeated add to a list of options.
func EnumsVar(flag *fisk.FlagClause, target *[]string, options ...string) {
	flag.HintOptions(options...)
	flag.SetValue(&values{value{flag: flag, read: choose(options, func(text string) { *target = append(*target, text) })}})
}

// choose returns a function that passes on one of the options, and refuses any other text.
func choose(options []string, pass func(string)) func(string) string {
	return func(text string) string {
		if !slices.Contains(options, text) {
			return "is unknown: give " + strings.Join(options[:len(options)-1], ", ") + " or " + options[len(options)-1]
		}
		pass(text)
		return ""
	}
}

// KeysVar has a flag that may be repeated add keys of elections, separated by commas, to a list. The list has each key once, and is sorted.
func KeysVar(flag *fisk.FlagClause, target *[]string) {
	flag.PlaceHolder("KEY,…").SetValue(&values{value{flag: flag, read: func(text string) string {
		for key := range strings.SplitSeq(text, ",") {
			key = strings.TrimSpace(key)
			if err := validate.Key(key); err != nil {
				return "is no list of keys: give keys such as scheduler,reports, separated by commas"
			}
			*target = append(*target, key)
		}
		slices.Sort(*target)
		*target = slices.Compact(*target)
		return ""
	}}})
}

// setValue has a flag pass its text to read, which returns what is wrong with the text; "" if nothing is. The placeholder is for a flag
// that has none.
func setValue(flag *fisk.FlagClause, placeholder string, read func(text string) (problem string)) {
	flag.SetValue(&value{flag: flag, read: read})
	if flag.Model().PlaceHolder == "" {
		flag.PlaceHolder(placeholder)
	}
}

// value is the value of a flag.
type value struct {
	flag *fisk.FlagClause
	text string
	read func(text string) (problem string)
}

// Set reads the text of the value.
func (v *value) Set(text string) error {
	if problem := v.read(text); problem != "" {
		return fmt.Errorf("%s: %q %s", nameOf(v.flag.Model()), text, problem)
	}
	v.text = text
	return nil
}

// String returns the text of the value.
func (v *value) String() string { return v.text }

// values is the value of a flag that may be repeated.
type values struct{ value }

// IsCumulative reports that the flag may be repeated.
func (*values) IsCumulative() bool { return true }

// RefuseEmpty has the parser refuse a flag or an argument without a text, which an unset variable of a shell leaves behind: as in --server "$URL",
// the command would quietly use the default. An environment variable without a text counts as not set, as everywhere.
func RefuseEmpty(app *fisk.Application) {
	app.PreAction(func(line *fisk.ParseContext) error {
		var problems Problems
		for _, e := range line.Elements {
			var name string
			fix := "give it a value, or leave it out"
			switch clause := e.Clause.(type) {
			case *fisk.FlagClause:
				if name = "--" + clause.Model().Name; strings.HasPrefix(name, "--completion-") {
					return nil // a shell completes an empty word
				}
			case *fisk.ArgClause:
				if name = strings.ToUpper(clause.Model().Name); clause.Model().Required {
					fix = "give it a value"
				}
			}
			problems.If(e.Value != nil && strings.TrimSpace(*e.Value) == "", "%s is empty, as of a shell variable that is not set: %s", name, fix)
		}
		return problems.Err()
	})
}

// nameOf returns the name of a flag, and of the environment variable that stands for it.
func nameOf(flag *fisk.FlagModel) string {
	name := "--" + flag.Name
	if flag.Envar != "" {
		name += " or " + flag.Envar
	}
	return name
}
