package lint

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/dashboards"
	"github.com/natscampaign/election/internal/test/natstest"
)

// server is a Prometheus.
type server struct {
	*WithT
	url string
	at  time.Time // of queries; zero for now
}

// startPrometheus starts one that scrapes the hosts and has the rules, with what they wait for shortened to one second.
func startPrometheus(t *testing.T, hosts []*host) *server {
	g, dir := NewWithT(t), t.TempDir()
	rules, err := dashboards.Rules()
	g.Expect(err).NotTo(HaveOccurred())
	job := func(name string, targets ...string) any {
		return map[string]any{"job_name": name, "static_configs": []any{map[string]any{"targets": targets}}}
	}
	rules = regexp.MustCompile(`(?m)^( +for:) .*$`).ReplaceAll(rules, []byte("$1 1s"))
	targets := []string{}
	for _, h := range hosts {
		targets = append(targets, h.metrics.Listener.Addr().String())
	}
	g.Expect(os.WriteFile(filepath.Join(dir, "rules.yaml"), rules, 0o600)).To(Succeed())
	return runPrometheus(t, dir, map[string]any{
		"global":     map[string]any{"scrape_interval": scrape.String(), "scrape_timeout": scrape.String(), "evaluation_interval": scrape.String()},
		"rule_files": []string{"rules.yaml"},
		"scrape_configs": []any{
			job("hosts", targets...), job("fleet", fleet(t, hosts).Listener.Addr().String()),
		},
	})
}

// runPrometheus runs one with a configuration, whose files are in a folder.
func runPrometheus(t *testing.T, dir string, config map[string]any) *server {
	program, err := exec.LookPath("prometheus")
	if err != nil {
		t.Skip("prometheus is not installed: apt-get install prometheus")
	}
	g := NewWithT(t)
	text, err := json.Marshal(config) // which is YAML too
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(os.WriteFile(filepath.Join(dir, "prometheus.yaml"), text, 0o600)).To(Succeed())

	address := fmt.Sprintf("127.0.0.1:%d", natstest.FreePort(t))
	var log bytes.Buffer
	cmd := exec.Command(program, "--config.file", filepath.Join(dir, "prometheus.yaml"), "--storage.tsdb.path", filepath.Join(dir, "data"),
		"--enable-feature", "native-histograms", "--web.listen-address", address)
	cmd.Stdout, cmd.Stderr = &log, &log
	g.Expect(cmd.Start()).To(Succeed())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("%s", log.String())
		}
	})
	s := &server{WithT: g, url: "http://" + address}
	g.Eventually(func() error {
		response, err := http.Get(s.url + "/-/ready")
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("not ready: %s", response.Status)
		}
		return nil
	}).WithTimeout(patience).WithPolling(scrape).Should(Succeed())
	return s
}

// series is what a query returns: one value, or values over time.
type series struct {
	Metric map[string]string
	Value  sample
	Values []sample
}

type sample struct {
	at    float64
	value float64
}

// UnmarshalJSON reads a pair of a time and the text of a value.
func (s *sample) UnmarshalJSON(text []byte) (err error) {
	var value string
	if err := json.Unmarshal(text, &[]any{&s.at, &value}); err != nil {
		return err
	}
	s.value, err = strconv.ParseFloat(value, 64)
	return err
}

// query returns what the expression evaluates to now.
func (s *server) query(expr string) []series {
	values := url.Values{"query": {expr}}
	if !s.at.IsZero() {
		values.Set("time", s.at.Format(time.RFC3339))
	}
	response, err := http.Get(s.url + "/api/v1/query?" + values.Encode())
	s.Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	var answer struct {
		Error string
		Data  struct{ Result []series }
	}
	s.Expect(json.NewDecoder(response.Body).Decode(&answer)).To(Succeed())
	s.Expect(answer.Error).To(BeEmpty(), expr)
	return answer.Data.Result
}

// firing returns whether the alert fires.
func (s *server) firing(alert string) func() bool {
	return func() bool {
		return len(s.query(fmt.Sprintf(`ALERTS{alertname=%q, alertstate="firing"}`, alert))) > 0
	}
}
