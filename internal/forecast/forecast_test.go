package forecast

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/timing"
)

func TestForecastByWhatCandidatesCanDo(t *testing.T) {
	ms := func(median, worst float64) Estimate {
		return Estimate{time.Duration(median * float64(time.Millisecond)), time.Duration(worst * float64(time.Millisecond))}
	}
	standard, err := (&timing.Durations{}).Timing(10 * time.Second)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	quick := standard
	quick.StandDown = time.Second
	const markers = time.Second
	for name, c := range map[string]struct {
		can                      Candidates
		timing                   timing.Timing
		release, crash, eviction Estimate
	}{
		"notified":           {Candidates{Notified: true, Markers: markers}, standard, ms(12.5, 25), ms(14062.5, 18525), ms(10312.5, 10625)},
		"named":              {Candidates{Notified: true, Markers: markers, Named: true, Connected: true}, standard, ms(1, 50), ms(6137, 9998), ms(10001, 10625)},
		"no markers":         {Candidates{Notified: true}, standard, ms(12.5, 25), ms(14462.5, 18525), ms(10312.5, 10625)},
		"a short stand-down": {Candidates{Notified: true, Markers: markers}, quick, ms(12.5, 25), ms(7562.5, 12025), ms(10312.5, 10625)},
		"bare names":         {Candidates{Notified: true, Plain: true}, standard, ms(12.5, 25), ms(14462.5, 18525), ms(10312.5, 10625)},
		"polls":              {Candidates{Markers: markers}, standard, ms(3750, 7525), ms(17500, 25400), ms(11250, 15000)},
		"polls, connected":   {Candidates{Markers: markers, Named: true, Connected: true}, standard, ms(3750, 7550), ms(17500, 25400), ms(13750, 17500)},
		"polls, no markers":  {Candidates{}, standard, ms(11250, 15000), ms(17500, 25400), ms(11250, 15000)},
		"polls, bare names":  {Candidates{Markers: markers, Plain: true}, standard, ms(11250, 15000), ms(17500, 25400), ms(11250, 15000)},
		"may not read":       {Candidates{Notified: true, Markers: markers, Unreadable: true}, standard, ms(22250, 26400), ms(18500, 26400), ms(22250, 26400)},
		"may not read, releases that last": {
			Candidates{Notified: true, Markers: markers, Unreadable: true, Remembers: true}, standard,
			Estimate{28766666666, 36266666666}, ms(18500, 26400), ms(22250, 26400),
		},
		"may not read, no marker": {Candidates{Unreadable: true}, standard, ms(21250, 25400), ms(17500, 25400), ms(21250, 25400)},
		"a backoff":               {Candidates{Markers: markers, Backoff: true}, standard, ms(5000, 10025), ms(18750, 27900), ms(12500, 17500)},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			f := c.can.Failovers(c.timing)
			g.Expect(f.Release).To(Equal(c.release))
			g.Expect(f.Crash).To(Equal(c.crash))
			g.Expect(f.Eviction).To(Equal(c.eviction))
			if c.can.Notified && c.can.Connected {
				g.Expect(f.Unseen).To(Equal(ms(13751, 18525)))
			} else {
				g.Expect(f.Unseen).To(BeZero())
			}
		})
	}
}

// The first figure of a cell of the table is computed, and any other was measured.
func TestTheTableOfTuningIsWhatIsComputed(t *testing.T) {
	g := NewWithT(t)
	text, err := os.ReadFile("../../docs/TUNING.md")
	g.Expect(err).NotTo(HaveOccurred())
	_, text, _ = bytes.Cut(text, []byte("| TTL | interval | crash, median | crash, worst | unseen | outage survived |\n"))
	rows := regexp.MustCompile(`(?m)\A\|[-|]+\n((?:\|.*\n)+)`).FindSubmatch(text)
	g.Expect(rows).NotTo(BeNil())
	candidates := Candidates{Notified: true, Markers: time.Second, Named: true, Remembers: true, Connected: true}
	for row := range strings.Lines(string(rows[1])) {
		var cells []time.Duration
		for _, cell := range regexp.MustCompile(`\| ([\d.]+)`).FindAllStringSubmatch(row, -1) {
			d, err := time.ParseDuration(cell[1] + "s")
			g.Expect(err).NotTo(HaveOccurred())
			cells = append(cells, d)
		}
		g.Expect(cells).To(HaveLen(6))
		durations, err := (&timing.Durations{Interval: &cells[1]}).Timing(cells[0])
		g.Expect(err).NotTo(HaveOccurred())
		f := candidates.Failovers(durations)
		const digit = 100 * time.Millisecond
		g.Expect(cells[2]).To(Equal(f.Crash.Median.Round(digit)), "crash, median: %s", row)
		g.Expect(cells[3]).To(Equal((f.Crash.Worst + digit - 1).Truncate(digit)), "crash, worst: what is promised must hold: %s", row)
		g.Expect(cells[4]).To(Equal(f.Unseen.Median.Round(digit)), "unseen: %s", row)
		g.Expect(cells[5]).To(Equal(Survival(durations)), "outage survived: %s", row)
	}
}
