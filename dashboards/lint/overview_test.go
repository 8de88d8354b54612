package lint

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// gauges are samples of the metrics of candidates that the overview reads, by the name of the metric, as lines of OpenMetrics.
type gauges map[string][]string

// candidate adds what a candidate shows at some times. The state is that of election_state: 1 candidate, 2 leader, 3 leader-elect. A leader leads since the
// given time, and has won before that.
func (all gauges) candidate(labels string, state float64, paused, standby bool, since time.Time, at ...time.Time) {
	holds := oneIf(state > 1)
	for name, value := range map[string]float64{
		"state": state, "leader": oneIf(state == 2), "paused": oneIf(paused), "standby": oneIf(standby), "lease_seconds": 10,
		"term": 7 * holds, "term_start_timestamp_seconds": float64(since.Unix()-8) * holds, "leads_since_timestamp_seconds": float64(since.Unix()) * oneIf(state == 2),
		"lease_remaining_seconds": 8 * holds,
	} {
		for _, t := range at {
			all[name] = append(all[name], fmt.Sprintf("election_%s{%s} %f %d\n", name, labels, value, t.Unix()))
		}
	}
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// election adds what three candidates of an election show that is in the given state, in the words of the table.
func (all gauges) election(job, bucket, key, state string, since time.Time, at ...time.Time) {
	paused, state, alone := strings.HasSuffix(state, ", paused"), strings.TrimSuffix(state, ", paused"), strings.HasSuffix(state, ", no standby")
	first := map[string]float64{"no leader": 1, "leader-elect": 3, "leader": 2, "leader, no standby": 2}[state]
	labels := func(host string) string {
		return fmt.Sprintf("job=%q,instance=%q,bucket=%q,election=%q,identity=%[2]q", job, host, bucket, key)
	}
	all.candidate(labels("host-1"), first, paused, false, since, at...)
	for _, other := range []string{"host-2", "host-10"} {
		all.candidate(labels(other), 1, paused, !paused && !alone && first == 2, time.Time{}, at...)
	}
}

// text returns the samples as promtool reads them.
func (all gauges) text() []byte {
	var b bytes.Buffer
	for name, lines := range all {
		fmt.Fprintf(&b, "# TYPE election_%s gauge\n%s", name, strings.Join(lines, ""))
	}
	b.WriteString("# EOF\n")
	return b.Bytes()
}

// exceptions are the elections of a fleet that are not well, by number.
var exceptions = map[int]string{1: "no candidates", 3: "no leader", 4: "leader-elect", 6: "no leader, paused", 7: "leader, no standby", 9: "leader, paused"}

// stateOf returns the state of one of n elections. Where there is but one, it has no leader.
func stateOf(i, n int) string {
	if n == 1 {
		return "no leader"
	}
	return cmp.Or(exceptions[i], "leader")
}

// overview returns a Prometheus that has seen buckets of 1, 12 and 300 elections, as it was some hours ago. The leaders have led for an hour, and that of
// the first election for ten seconds. The candidates of the second one have crashed ten minutes before.
func overview(t *testing.T) *server {
	all, now := gauges{}, time.Now().Add(-3*time.Hour).Truncate(time.Second)
	for _, b := range []struct {
		job string
		n   int
	}{{"hosts", 1}, {"hosts", 12}, {"hosts", 300}, {"others", 12}} {
		for i := range b.n {
			state, since, at := stateOf(i, b.n), now.Add(-time.Hour), []time.Time{now.Add(-10 * time.Minute), now}
			if i == 0 {
				since = now.Add(-10 * time.Second)
			}
			if state == "no candidates" {
				state, at = "leader", at[:1]
			}
			all.election(b.job, fmt.Sprint("OF-", b.n), fmt.Sprint("job-", i), state, since, at...)
		}
	}
	dir := t.TempDir()
	NewWithT(t).Expect(os.WriteFile(filepath.Join(dir, "metrics"), all.text(), 0o600)).To(Succeed())
	promtool(t, nil, "tsdb", "create-blocks-from", "openmetrics", filepath.Join(dir, "metrics"), filepath.Join(dir, "data"))
	s := runPrometheus(t, dir, map[string]any{})
	s.at = now
	return s
}

// ask returns what a panel asks for in a job and a bucket, by the name of each target.
func (s *server) ask(p panel, job, bucket string) map[string][]series {
	fill := strings.NewReplacer("$job", job, "$instance", "elsewhere", "$bucket", bucket, "$election", ".+")
	found := map[string][]series{}
	for _, target := range p.Targets {
		found[target.RefID] = s.query(fill.Replace(target.Expr))
	}
	return found
}

// row is a row of a table, by the titles of the columns.
type row map[string]string

// draw returns the rows of a table as Grafana draws them: it merges what the targets return by the labels that all of them have, renames
// columns, leaves others out, sorts, and replaces values that have a name.
func (p panel) draw(g *WithT, found map[string][]series) (rows []row) {
	g.Expect(p.Transformations).To(HaveLen(2))
	g.Expect(p.Transformations[0].ID).To(Equal("merge"))
	g.Expect(p.Transformations[1].ID).To(Equal("organize"))
	byKey := map[[3]string]row{}
	for _, target := range p.Targets {
		g.Expect(target.Format).To(Equal("table"), target.RefID)
		g.Expect(target.Instant).To(BeTrue(), target.RefID)
		values := map[[3]string]bool{}
		for _, one := range found[target.RefID] {
			key := [3]string{one.Metric["job"], one.Metric["bucket"], one.Metric["election"]}
			g.Expect(key).NotTo(ContainElement(""), "%s has the labels by which rows are merged", target.RefID)
			g.Expect(values).NotTo(HaveKey(key), "%s has one value for each election", target.RefID)
			values[key] = true
			if byKey[key] == nil {
				byKey[key] = row{}
			}
			maps.Copy(byKey[key], one.Metric)
			byKey[key]["Value #"+target.RefID] = strconv.FormatFloat(one.Value.value, 'f', 2, 64)
		}
	}
	organize := p.Transformations[1].Options
	for _, before := range byKey {
		after := row{}
		for name, text := range before {
			if !organize.ExcludeByName[name] {
				g.Expect(organize.IndexByName).To(HaveKey(name))
				after[cmp.Or(organize.RenameByName[name], name)] = text
			}
		}
		rows = append(rows, after)
	}
	slices.SortFunc(rows, func(a, b row) int {
		for _, by := range p.Options.SortBy {
			g.Expect(by.Desc).To(BeFalse())
			x, errX := strconv.ParseFloat(strings.TrimPrefix(a[by.DisplayName], "job-"), 64) // Grafana orders numbers in a text by their values
			y, errY := strconv.ParseFloat(strings.TrimPrefix(b[by.DisplayName], "job-"), 64)
			g.Expect([]any{errX, errY}).To(HaveEach(BeNil()), by.DisplayName)
			if x != y {
				return cmp.Compare(x, y)
			}
		}
		return 0
	})
	for _, o := range p.FieldConfig.Overrides {
		g.Expect(slices.Collect(maps.Values(organize.RenameByName))).To(ContainElement(o.Matcher.Options), "a column of that title is drawn")
		for _, property := range o.Properties {
			if property.ID != "mappings" {
				continue
			}
			for _, r := range rows {
				n, err := strconv.ParseFloat(r[o.Matcher.Options], 64)
				g.Expect(err).NotTo(HaveOccurred())
				r[o.Matcher.Options] = property.mapping(g)[strconv.Itoa(int(n))].Text
			}
		}
	}
	return rows
}

func TestTheTableShowsEveryElectionAndThoseWithoutALeaderFirst(t *testing.T) {
	s := overview(t)
	board := boardOf(s.WithT)
	table := board.panel(s.WithT, "Elections", "table")
	for _, n := range []int{1, 12, 300} {
		var want []string
		for _, state := range []string{"no candidates", "no leader", "no leader, paused", "leader-elect", "leader, no standby", "leader, paused", "leader"} {
			for i := range n {
				if stateOf(i, n) == state {
					want = append(want, fmt.Sprintf("job-%d: %s", i, state))
				}
			}
		}
		var got []string
		rows := table.draw(s.WithT, s.ask(table, "hosts", fmt.Sprint("OF-", n)))
		for _, r := range rows {
			got = append(got, r["Election"]+": "+r["State"])
			s.Expect(r).To(And(HaveKeyWithValue("Bucket", fmt.Sprint("OF-", n)), HaveKeyWithValue("Job", "hosts")))
			leads, holder := HaveKeyWithValue("Leads for", "3600.00"), HaveKeyWithValue("Leader", "host-1")
			switch r["State"] {
			case "leader":
				if r["Election"] == "job-0" {
					leads = HaveKeyWithValue("Leads for", "10.00")
				}
				s.Expect(r).To(And(holder, leads, HaveKeyWithValue("Standbys", "2.00"), HaveKeyWithValue("Candidates", "3.00"), HaveKeyWithValue("Lease left", "0.80"), HaveKeyWithValue("Term", "7.00")))
			case "leader, no standby", "leader, paused":
				s.Expect(r).To(And(holder, leads, HaveKeyWithValue("Standbys", "0.00")))
			case "leader-elect":
				s.Expect(r).To(And(holder, Not(HaveKey("Leads for")), HaveKeyWithValue("Candidates", "3.00")))
			case "no candidates":
				s.Expect(r).NotTo(Or(HaveKey("Leader"), HaveKey("Candidates"), HaveKey("Standbys")))
			default:
				s.Expect(r).NotTo(Or(HaveKey("Leader"), HaveKey("Leads for"), HaveKey("Term")))
			}
		}
		s.Expect(got).To(Equal(want))
		if n != 300 {
			t.Logf("%d elections:\n%s", n, strings.Join(got, "\n"))
		}
	}
	both := table.draw(s.WithT, s.ask(table, ".+", "OF-12"))
	s.Expect(both).To(HaveLen(24), "an election of two jobs, as of staging and production, is two")
}

func TestTheNumbersAboveTheTableAreThoseOfItsRows(t *testing.T) {
	s := overview(t)
	board := boardOf(s.WithT)
	for bucket, want := range map[string][]int{"OF-1": {1, 0, 0, 1}, "OF-12": {4, 1, 2, 12}, "OF-300": {4, 1, 2, 300}, "none": {-1, -1, -1, -1}} {
		for i, title := range []string{"Elections without a leader", "Leaders without a standby", "Paused elections", "Elections"} {
			found := s.ask(board.panel(s.WithT, title, "stat"), "hosts", bucket)["A"]
			if want[i] < 0 {
				s.Expect(found).To(BeEmpty(), "%s of %s", title, bucket)
				continue
			}
			s.Expect(found).To(HaveLen(1), "%s of %s", title, bucket)
			s.Expect(found[0].Value.value).To(BeEquivalentTo(want[i]), "%s of %s", title, bucket)
		}
	}
}
