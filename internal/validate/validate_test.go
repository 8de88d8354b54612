package validate

import (
	"testing"

	. "github.com/onsi/gomega"
)

func TestInvalidKeysAndPatternsAreRefused(t *testing.T) {
	g := NewWithT(t)
	for _, pattern := range []string{"jobs", "*", ">", "a.*.b", "a.>"} {
		g.Expect(Pattern(pattern)).To(Succeed(), pattern)
	}
	for _, pattern := range []string{"", "a b", "a.", ".a", "a>", "a*", "a.*b.c", ">.a", "a..b"} {
		g.Expect(Pattern(pattern)).To(MatchError(ContainSubstring("neither a key nor a pattern")), pattern)
	}
	g.Expect(Key("*")).NotTo(Succeed())
}
