package lint

import (
	"cmp"
	"fmt"
	"maps"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// gauges are the metrics of candidates that the overview reads, by name.
type gauges map[string]*prometheus.GaugeVec

func newGauges(r prometheus.Registerer) gauges {
	all := gauges{}
	for _, name := range []string{"leader", "state", "paused", "standby", "term", "term_start_timestamp_seconds", "lease_seconds", "lease_remaining_seconds"} {
		all[name] = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "election_" + name}, []string{"bucket", "election", "identity"})
		r.MustRegister(all[name])
	}
	return all
}

// candidate sets what a candidate shows. The state is that of election_state: 1 candidate, 2 leader, 3 leader-elect.
func (all gauges) candidate(bucket, election, identity string, state float64, paused, standby bool, since time.Time) {
	for name, value := range map[string]float64{"state": state, "leader": oneIf(state == 2), "paused": oneIf(paused), "standby": oneIf(standby), "lease_seconds": 10} {
		all[name].WithLabelValues(bucket, election, identity).Set(value)
	}
	for name, value := range map[string]float64{"term": 7, "term_start_timestamp_seconds": float64(since.Unix()), "lease_remaining_seconds": 8} {
		all[name].WithLabelValues(bucket, election, identity).Set(value * oneIf(state > 1))
	}
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// election sets what three candidates of an election show that is in the given state, in the words of the table.
func (all gauges) election(bucket, key, state string, since time.Time) {
	paused, state, alone := strings.HasSuffix(state, ", paused"), strings.TrimSuffix(state, ", paused"), strings.HasSuffix(state, ", no standby")
	first := map[string]float64{"no leader": 1, "leader-elect": 3, "leader": 2, "leader, no standby": 2}[state]
	all.candidate(bucket, key, "host-1", first, paused, false, since)
	for _, other := range []string{"host-2", "host-10"} {
		all.candidate(bucket, key, other, 1, paused, !paused && !alone && first == 2, time.Time{})
	}
}

// remove has an election show nothing any more.
func (all gauges) remove(election string) {
	for _, g := range all {
		g.DeletePartialMatch(prometheus.Labels{"election": election})
	}
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

// overview returns a Prometheus that has seen buckets of 1, 12 and 300 elections. In all but the first election of each that has a leader, that
// leader won an hour ago; in the first one, ten seconds ago.
func overview(t *testing.T) *server {
	registry := prometheus.NewRegistry()
	metrics := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	t.Cleanup(metrics.Close)
	all, now := newGauges(registry), time.Now()
	for _, n := range []int{1, 12, 300} {
		for i := range n {
			since := now.Add(-time.Hour)
			if i == 0 {
				since = now.Add(-10 * time.Second)
			}
			state := stateOf(i, n)
			if state == "no candidates" {
				state = "leader"
			}
			all.election(fmt.Sprint("OF-", n), fmt.Sprint("job-", i), state, since)
		}
	}
	s := startPrometheus(t, []*host{{metrics: metrics, registry: registry}})
	seen := func(n int) {
		s.Eventually(func() []series {
			return s.query(fmt.Sprintf(`count by (job) (election_leader) == %d`, n))
		}).WithTimeout(patience).WithPolling(scrape).Should(HaveLen(2), "of both jobs")
	}
	seen(3 * (1 + 12 + 300))
	all.remove("job-1") // its candidates have crashed
	seen(3 * (1 + 11 + 299))
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
			leads, holder := HaveKeyWithValue("Leads for", MatchRegexp(`^36\d\d\.`)), HaveKeyWithValue("Leader", "host-1")
			switch r["State"] {
			case "leader":
				if r["Election"] == "job-0" {
					leads = HaveKeyWithValue("Leads for", MatchRegexp(`^[1-9]\d\.`))
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
