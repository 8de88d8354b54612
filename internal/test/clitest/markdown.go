package clitest

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// Page is README.md or a page of docs.
type Page struct {
	Path   string // from the root of the module, with slashes
	Blocks []Block
	Spans  []Span // code within a line of prose
	Links  []Link
	anchor []string // of the headings
}

// Block is a block of code: fenced, with its language, or indented by four blanks, without.
type Block struct {
	Page     string
	Line     int // of the first line of code
	Language string
	Text     string
}

// Span is code within a line of prose.
type Span struct {
	Page string
	Line int
	Text string
}

// Link is a link within a page.
type Link struct {
	Page   string
	Line   int
	Target string
}

// Pages reads README.md and docs/*.md below the root of the module.
func Pages(root string) ([]Page, error) {
	paths, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		return nil, err
	}
	var pages []Page
	for _, path := range append([]string{filepath.Join(root, "README.md")}, paths...) {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return nil, err
		}
		pages = append(pages, ParsePage(filepath.ToSlash(rel), string(text)))
	}
	return pages, nil
}

var (
	heading = regexp.MustCompile(`^#{1,6} +(.*?)(?: +#+)?$`)
	span    = regexp.MustCompile("`+[^`]+`+")
	link    = regexp.MustCompile(`!?\[[^\]]*\]\(([^()\s]+)(?: +"[^"]*")?\)`)
	listed  = regexp.MustCompile(`^ {0,3}(?:[-*+]|\d+[.)]) `)
)

const (
	fence  = "```"
	indent = "    "
)

// ParsePage reads a page of Markdown as the documents of this project use it. Four blanks after an empty line begin a block of code, but not
// within a list, where they continue the item.
func ParsePage(path, text string) Page {
	p := Page{Path: path}
	lines := strings.Split(text, "\n")
	inList := false
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		empty := i == 0 || strings.TrimSpace(lines[i-1]) == ""
		switch {
		case strings.HasPrefix(strings.TrimLeft(line, " "), fence):
			i = p.fenced(lines, i)
		case empty && !inList && strings.HasPrefix(line, indent) && strings.TrimSpace(line) != "":
			i = p.indented(lines, i)
		default:
			if strings.TrimSpace(line) != "" && !strings.HasPrefix(line, " ") || listed.MatchString(line) {
				inList = listed.MatchString(line)
			}
			p.prose(line, i+1)
		}
	}
	return p
}

// fenced reads a block that begins with a fence, and returns the index of its last line.
func (p *Page) fenced(lines []string, first int) int {
	blanks := len(lines[first]) - len(strings.TrimLeft(lines[first], " "))
	last := first + 1
	var code []string
	for ; last < len(lines) && strings.TrimSpace(lines[last]) != fence; last++ {
		code = append(code, strings.TrimPrefix(lines[last], strings.Repeat(" ", blanks)))
	}
	p.Blocks = append(p.Blocks, Block{p.Path, first + 2, strings.TrimSpace(lines[first])[len(fence):], strings.Join(code, "\n") + "\n"})
	return last
}

// indented reads a block that is indented, and returns the index of its last line.
func (p *Page) indented(lines []string, first int) int {
	last := first
	for i := first; i < len(lines) && (strings.HasPrefix(lines[i], indent) || strings.TrimSpace(lines[i]) == ""); i++ {
		if strings.TrimSpace(lines[i]) != "" {
			last = i
		}
	}
	var code []string
	for _, line := range lines[first : last+1] {
		code = append(code, strings.TrimPrefix(line, indent))
	}
	p.Blocks = append(p.Blocks, Block{p.Path, first + 1, "", strings.Join(code, "\n") + "\n"})
	return last
}

// prose reads a line that is not code.
func (p *Page) prose(line string, number int) {
	if m := heading.FindStringSubmatch(line); m != nil {
		p.addAnchor(m[1])
	}
	for _, s := range span.FindAllString(line, -1) {
		p.Spans = append(p.Spans, Span{p.Path, number, strings.Trim(s, "`")})
	}
	for _, m := range link.FindAllStringSubmatch(span.ReplaceAllString(line, "code"), -1) {
		p.Links = append(p.Links, Link{p.Path, number, m[1]})
	}
}

// addAnchor adds the anchor that GitHub gives to a heading.
func (p *Page) addAnchor(text string) {
	text = link.ReplaceAllStringFunc(text, func(l string) string { return l[strings.Index(l, "[")+1 : strings.Index(l, "](")] })
	var b strings.Builder
	for _, r := range strings.ToLower(text) {
		switch {
		case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
			b.WriteRune(r)
		case r == ' ':
			b.WriteRune('-')
		}
	}
	p.anchor = append(p.anchor, b.String())
}

// HasAnchor reports whether the page has a heading with that anchor.
func (p *Page) HasAnchor(anchor string) bool { return slices.Contains(p.anchor, anchor) }
