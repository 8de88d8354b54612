package main

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/test/clitest"
)

// documentedReasons returns the reasons of docs/REFERENCE.md by the state to which they lead. Every other place must use these words.
func documentedReasons(g Gomega) map[string][]string {
	text, err := os.ReadFile("../../docs/REFERENCE.md")
	g.Expect(err).NotTo(HaveOccurred())
	reasons := map[string][]string{}
	for _, state := range regexp.MustCompile("(?m)^To (candidate|leader-elect|leader):\n\n((?:- .+\n)+)").FindAllStringSubmatch(string(text), -1) {
		for _, item := range regexp.MustCompile("(?m)^- (?:`([a-z-]+)`: )?").FindAllStringSubmatch(state[2], -1) {
			g.Expect(item[1]).NotTo(BeEmpty(), "an item that names no reason: %s", state[2])
			reasons[state[1]] = append(reasons[state[1]], item[1])
		}
	}
	for _, list := range reasons {
		slices.Sort(list)
	}
	return reasons
}

// wordsBetween returns the words of a text between two others, sorted, without the words that only join them.
func wordsBetween(g Gomega, text, from, to string) []string {
	list := regexp.MustCompile(`[a-z-]+`).FindAllString(between(g, text, from, to), -1)
	list = slices.DeleteFunc(list, func(w string) bool { return w == "or" })
	slices.Sort(list)
	return list
}

func TestEveryPlaceUsesTheReasonsOfTheReference(t *testing.T) {
	g := NewWithT(t)
	reasons := documentedReasons(g)
	source, err := os.ReadFile("../../state.go")
	g.Expect(err).NotTo(HaveOccurred())
	var declared []string
	for _, m := range regexp.MustCompile(`Reason = "([a-z-]+)"`).FindAllStringSubmatch(string(source), -1) {
		declared = append(declared, m[1])
	}
	const died = "died" // which a witness states for a leader that cannot: no candidate reports it of itself
	g.Expect(append(slices.Concat(slices.Collect(maps.Values(reasons))...), died)).To(ConsistOf(declared))
	ended := slices.DeleteFunc(slices.Clone(reasons["candidate"]), func(r string) bool { return r == "started" })
	g.Expect(ended).To(HaveLen(13))
	g.Expect(wordsBetween(g, campaignHelp, "Reasons are ", " (elected)")).To(Equal(reasons["leader-elect"]))
	g.Expect(wordsBetween(g, campaignHelp, "(elected), ", " (leading)")).To(Equal(reasons["leader"]))
	g.Expect(wordsBetween(g, campaignHelp, "(leading), ", " (lost)")).To(Equal(ended))
	g.Expect(wordsBetween(g, runHelp, "election_transitions_total:", "The reason is")).To(Equal(ended))
	g.Expect(wordsBetween(g, watchHelp, "if there is one. Reason: ", "leading ")).To(Equal(reasons["leader-elect"]))
	seen := append(wordsBetween(g, watchHelp, "by the release: ", "expired "), wordsBetween(g, watchHelp, "otherwise. Reason: ", "dropped ")...)

	g.Expect(seen).To(ConsistOf(append(slices.DeleteFunc(slices.Clone(ended), func(r string) bool { return r == "cloned" || r == "closed" || r == "deadline" }), died)),
		"an observer sees no lease that ran out, no connection that was closed, and no copy")

	operations, err := os.ReadFile("../../docs/OPERATIONS.md")
	g.Expect(err).NotTo(HaveOccurred())
	advice := regexp.MustCompile("(?m)^- ((?:`[a-z-]+`(?:, )?)+):").FindAllStringSubmatch(between(g, string(operations), "### ElectionFlapping", "### ElectionRenewalsFailing"), -1)
	var advised []string
	for _, line := range advice {
		for _, r := range strings.Split(line[1], ", ") {
			advised = append(advised, strings.Trim(r, "`"))
		}
	}
	slices.Sort(advised)
	g.Expect(advised).To(Equal(ended))
}

// between returns the text between two others.
func between(g Gomega, text, from, to string) string {
	_, text, found := strings.Cut(text, from)
	g.Expect(found).To(BeTrue(), from)
	text, _, found = strings.Cut(text, to)
	g.Expect(found).To(BeTrue(), to)
	return text
}

// expectReasons expects the metrics at a URL to have no reasons but those of the reference.
func expectReasons(g Gomega, url string) {
	documented := documentedReasons(g)
	g.Eventually(fetch(url)).Should(ContainSubstring("election_transitions_total{"))
	reasons := map[string][]string{}
	_, text, _ := strings.Cut(fetch(url)(), "\n")
	for _, m := range clitest.ParseMetrics(g, text)["election_transitions_total"].GetMetric() {
		labels := map[string]string{}
		for _, l := range m.GetLabel() {
			labels[l.GetName()] = l.GetValue()
		}
		reasons[labels["to"]] = append(reasons[labels["to"]], labels["reason"])
	}
	for state, list := range reasons {
		g.Expect(documented[state]).To(ContainElements(list), state)
	}
}
