package api

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

func TestTheDrawingOfTheFloorsHasThesePackages(t *testing.T) {
	g := NewWithT(t)
	file := filepath.Join("..", "..", "..", "docs", "floors.svg")
	drawn := drawHouse()
	if *update {
		g.Expect(os.WriteFile(file, []byte(drawn), 0o644)).To(Succeed())
	}
	g.Expect(os.ReadFile(file)).To(BeEquivalentTo(drawn), "draw it anew: go test ./internal/test/api -run Floors -update")
}

const (
	rowHeight, groupGap = 26, 8
	blue, grey, black   = "#0072b2", "#5b6875", "#1f2933"
	monospace           = "ui-monospace, 'SF Mono', Menlo, Consolas, 'DejaVu Sans Mono', monospace"
)

// drawHouse draws the house, its groups and floors, as an SVG.
func drawHouse() string {
	height := 84 + len(floors())*rowHeight + len(house)*groupGap + 44
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1100 %d" width="1100" height="%[1]d" role="img" font-family="system-ui, 'Segoe UI', Helvetica, Arial, 'DejaVu Sans', sans-serif">`, height)
	line(`<title>The packages on %d floors, each of which imports lower floors only</title>`, len(floors()))
	line(`<rect x="0.5" y="0.5" width="1099" height="%d" rx="14" fill="#ffffff" stroke="#d7dee5"/>`, height-1)
	line(`<text x="24" y="38" font-size="22" fill="%s" font-weight="600">Floors</text>`, black)
	line(`<text x="24" y="62" font-size="14" fill="%s">A package imports packages of lower floors only. Blue: for users. Bold: the library, and what decides in it.</text>`, grey)
	y, floor := 84, len(floors())
	for i := len(house) - 1; i >= 0; i-- {
		of := house[i]
		line(`<rect x="12" y="%d" width="1076" height="%d" rx="6" fill="#f4f7f9"/>`, y, len(of.floors)*rowHeight)
		line(`<text x="24" y="%d" font-size="14" fill="%s" font-weight="600">%s</text>`, y+18, black, of.name)
		if of.note != "" {
			line(`<text x="24" y="%d" font-size="12.5" fill="%s">%s</text>`, y+18+rowHeight-4, grey, of.note)
		}
		for row := len(of.floors) - 1; row >= 0; row-- {
			floor--
			line(`<text x="344" y="%d" font-size="12.5" fill="%s" text-anchor="end">%d</text>`, y+18, grey, floor)
			line(`<text x="364" y="%d" font-size="13.5" font-family="%s">%s</text>`, y+18, monospace, drawNames(of.floors[row]))
			y += rowHeight
		}
		y += groupGap
	}
	line(`<text x="24" y="%d" font-size="12.5" fill="%s">On no floor: %s has what only tests use, and tests/ the tests of promises.</text>`, y+18, grey, tests)
	line(`</svg>`)
	return b.String()
}

// drawNames lists the packages of a floor.
func drawNames(floor []string) string {
	var b strings.Builder
	for i, path := range floor {
		name, color, weight := path, grey, 400
		switch {
		case path == ".":
			name, color, weight = "election", blue, 700
		case path == "internal/core", path == "internal/shell":
			color, weight = black, 700
		case !strings.HasPrefix(path, "internal/"):
			color = blue
		}
		for _, folder := range []string{"internal/cli/", "internal/drill/", "internal/"} {
			if rest, found := strings.CutPrefix(name, folder); found {
				name = rest
				break
			}
		}
		gap := ""
		if i > 0 {
			gap = ` dx="20"`
		}
		fmt.Fprintf(&b, `<tspan%s fill="%s" font-weight="%d">%s</tspan>`, gap, color, weight, name)
	}
	return b.String()
}
