package terminal

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/natscampaign/election/internal/timeutil"
)

// TimeOfDayLayout is the layout of times in lines of progress, events and logs.
const TimeOfDayLayout = "15:04:05.000"

// Timestamp formats a time in the local zone, to the millisecond, for people and programs. It returns "-" for the zero time.
func Timestamp(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Local().Format("2006-01-02 15:04:05.000")
}

// FormatDuration formats a duration with the precision that a reader needs: milliseconds below a second, hours above two
// days.
func FormatDuration(d time.Duration) string {
	switch {
	case d >= 48*time.Hour:
		hours := int(d.Round(time.Hour) / time.Hour)
		return fmt.Sprintf("%dd%dh", hours/24, hours%24)
	case d >= time.Hour:
		return d.Round(time.Minute).String()
	case d >= time.Minute:
		return d.Round(time.Second).String()
	case d >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	}
	return d.Round(time.Millisecond).String()
}

// FormatRoughly formats a duration with two digits, or with two units above a minute.
func FormatRoughly(d time.Duration) string {
	if d >= time.Minute {
		return FormatDuration(d)
	}
	return timeutil.TwoDigits(d).String()
}

// Ago formats the age of an event, as in "5s ago". A negative age is in the future, as in "in 5s".
func Ago(age time.Duration) string {
	if age < 0 {
		return "in " + FormatDuration(-age)
	}
	return FormatDuration(age) + " ago"
}

// TimestampAgo formats a time and its age, as in "2026-11-22 20:08:52.000 (5s ago)". It returns an empty string for the zero time.
func TimestampAgo(t time.Time, age time.Duration) string {
	if t.IsZero() {
		return ""
	}
	return Timestamp(t) + " (" + Ago(age) + ")"
}

// FormatSeconds formats a number of seconds, in milliseconds if it is below a tenth of a second.
func FormatSeconds(s float64) string {
	if s < 0.0995 {
		return fmt.Sprintf("%.0f ms", 1000*s)
	}
	return fmt.Sprintf("%.2f s", s)
}

// FromSeconds converts seconds to a duration.
func FromSeconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// ToSeconds converts a duration to seconds, rounded to the millisecond.
func ToSeconds(d time.Duration) float64 { return d.Round(time.Millisecond).Seconds() }

// Plural returns a count with its noun, as in "1 line" or "2 lines".
func Plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// NumberOrDash formats the number of a term or a revision, and returns "-" for 0, which means none.
func NumberOrDash(n uint64) string {
	if n == 0 {
		return "-"
	}
	return strconv.FormatUint(n, 10)
}

// MinMedianMax returns the minimum, the median and the maximum; zeros if there are no values.
func MinMedianMax(values []float64) (lowest, median, highest float64) {
	if len(values) == 0 {
		return 0, 0, 0
	}
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return sorted[0], (sorted[(n-1)/2] + sorted[n/2]) / 2, sorted[n-1]
}
