package clitest

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/onsi/gomega"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/natscampaign/election/internal/cli/terminal"
)

// HostileText would take control of the reader's terminal, or deceive the reader.
const HostileText = "web\x1b[2J\x1b]0;owned\a\r\nroot leads\t\u009b31m\u202egnp\u2066\u200b\x00|'\"<b>"

// HugeText is almost as long as a server accepts.
var HugeText = strings.Repeat("A\x1b[5m", 200_000)

// ExpectPrintable expects that text contains only printable characters, tabs and newlines.
func ExpectPrintable(g gomega.Gomega, text, what string) {
	g.Expect(utf8.ValidString(text)).To(gomega.BeTrue(), what)
	for _, r := range text {
		g.Expect(terminal.Printable(string(r)) == string(r) || r == '\n' || r == '\t').To(gomega.BeTrue(), "%s shows %q", what, r)
	}
	g.Expect(text).NotTo(gomega.ContainSubstring("\nroot"), what)
}

// SVGTexts returns all text in an SVG drawing. It fails the test if the drawing is not well-formed.
func SVGTexts(g gomega.Gomega, svg []byte) []string {
	var found []string
	d := xml.NewDecoder(bytes.NewReader(svg))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return found
		}
		g.Expect(err).NotTo(gomega.HaveOccurred())
		if text, ok := token.(xml.CharData); ok && strings.TrimSpace(string(text)) != "" {
			found = append(found, string(text))
		}
	}
}

// ParseMetrics parses metrics in the text format of Prometheus.
func ParseMetrics(g gomega.Gomega, text string) map[string]*dto.MetricFamily {
	p := expfmt.NewTextParser(model.UTF8Validation)
	families, err := p.TextToMetricFamilies(strings.NewReader(text))
	g.Expect(err).NotTo(gomega.HaveOccurred(), text)
	return families
}

// MetricValue returns the value of the gauge for an election; -1 if there is none. An empty key matches a gauge without the
// label election.
func MetricValue(families map[string]*dto.MetricFamily, name, key string) float64 {
	for _, m := range families[name].GetMetric() {
		label := ""
		for _, l := range m.GetLabel() {
			if l.GetName() == "election" {
				label = l.GetValue()
			}
		}
		if label == key {
			return m.GetGauge().GetValue()
		}
	}
	return -1
}
