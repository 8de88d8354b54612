package validate

import (
	"testing"

	. "github.com/onsi/gomega"
)

type colour int

func TestEveryNameIsReadBackAsItsValue(t *testing.T) {
	g := NewWithT(t)
	names := Enum[colour]{"", "red", "green"}
	for i, name := range names[1:] {
		g.Expect(names.Text(colour(i + 1))).To(Equal(name))
		var c colour
		g.Expect(names.Parse([]byte(name), &c)).To(Succeed())
		g.Expect(c).To(Equal(colour(i + 1)))
	}
	for value, text := range map[colour]string{-1: "colour(-1)", 0: "colour(0)", 3: "colour(3)"} {
		g.Expect(names.Text(value)).To(Equal(text))
	}
	c := colour(2)
	for _, name := range []string{"", "blue", "Red", "colour(3)"} {
		g.Expect(names.Parse([]byte(name), &c)).To(MatchError(And(ContainSubstring(name), ContainSubstring(`["red" "green"]`))), name)
	}
	g.Expect(c).To(Equal(colour(2)), "it is left as it was")
}
