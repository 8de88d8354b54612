package docs_test

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/dashboards"
	"github.com/natscampaign/election/internal/test/clitest"
)

func TestLinksLeadSomewhere(t *testing.T) {
	g := NewWithT(t)
	pages, err := clitest.Pages(repository)
	g.Expect(err).NotTo(HaveOccurred())
	byPath := map[string]*clitest.Page{}
	for i := range pages {
		byPath[pages[i].Path] = &pages[i]
	}
	external := map[string]bool{}
	for _, p := range pages {
		for _, l := range p.Links {
			if strings.Contains(l.Target, "://") || strings.HasPrefix(l.Target, "mailto:") {
				external[l.Target] = true
				continue
			}
			if problem := follow(l, byPath); problem != "" {
				t.Errorf("%s:%d: the link %s: %s", l.Page, l.Line, l.Target, problem)
			}
		}
	}
	for target := range external {
		t.Log("not followed:", target)
	}
}

// follow says what is wrong with a link within the repository; "" if nothing is.
func follow(l clitest.Link, pages map[string]*clitest.Page) string {
	file, anchor, hasAnchor := strings.Cut(l.Target, "#")
	target := l.Page
	if file != "" {
		target = path.Join(path.Dir(l.Page), file)
	}
	if pages[target] == nil && !exists(target) {
		return "there is no such file"
	}
	if !hasAnchor {
		return ""
	}
	p := pages[target]
	if p == nil {
		text, err := os.ReadFile(filepath.Join(repository, filepath.FromSlash(target)))
		if err != nil {
			return "it has no headings"
		}
		other := clitest.ParsePage(target, string(text))
		p = &other
	}
	if !p.HasAnchor(anchor) {
		return "there is no such heading"
	}
	return ""
}

func exists(file string) bool {
	_, err := os.Stat(filepath.Join(repository, filepath.FromSlash(file)))
	return err == nil
}

func TestALinkThatLeadsNowhereIsFound(t *testing.T) {
	g := NewWithT(t)
	page := clitest.ParsePage("docs/X.md", "# Here\n")
	pages := map[string]*clitest.Page{"docs/X.md": &page}
	for target, want := range map[string]string{
		"#here": "", "X.md#here": "", "Y.md#here": "no such file", "../doc.go": "", "../README.md": "", "../internal": "", "../internal/x": "no such file",
		"#there": "no such heading", "../README.md#nowhere": "no such heading", "REFERENCE.md#clocks": "",
	} {
		g.Expect(follow(clitest.Link{Page: "docs/X.md", Line: 1, Target: target}, pages)).To(ContainSubstring(want), target)
		if want == "" {
			g.Expect(follow(clitest.Link{Page: "docs/X.md", Line: 1, Target: target}, pages)).To(BeEmpty(), target)
		}
	}
}

func TestEveryAlertHasAHeadingInTheRunbookAndALinkToIt(t *testing.T) {
	g := NewWithT(t)
	rules, err := dashboards.Rules()
	g.Expect(err).NotTo(HaveOccurred())
	text, err := os.ReadFile(filepath.Join(repository, "docs", "OPERATIONS.md"))
	g.Expect(err).NotTo(HaveOccurred())
	runbook := clitest.ParsePage("docs/OPERATIONS.md", string(text))
	alerts := regexp.MustCompile(`(?m)^ *- alert: (\w+)$`).FindAllStringSubmatch(string(rules), -1)
	g.Expect(alerts).NotTo(BeEmpty())
	for _, a := range alerts {
		anchor := strings.ToLower(a[1])
		g.Expect(runbook.HasAnchor(anchor)).To(BeTrue(), "docs/OPERATIONS.md: no heading %s", a[1])
		_, rule, _ := strings.Cut(string(rules), a[0]+"\n")
		rule, _, _ = strings.Cut(rule, "- alert:")
		g.Expect(rule).To(ContainSubstring("runbook_url: https://"+module+"/blob/main/docs/OPERATIONS.md#"+anchor+"\n"), a[1])
	}
}
