package validate

import (
	"testing"

	. "github.com/onsi/gomega"
)

func TestParseBytesReadsDigitsWithAUnit(t *testing.T) {
	g := NewWithT(t)
	for text, want := range map[string]int64{"0": 0, "1048576": 1 << 20, "512k": 512 << 10, " 3M": 3 << 20, "1GB": 1 << 30, "2MiB": 2 << 20, "7B": 7} {
		g.Expect(ParseBytes(text)).To(Equal(want), text)
	}
	for _, text := range []string{"", "M", "-1", "1.5M", "1T", "ten", "9223372036854775807K", "1 M"} {
		_, err := ParseBytes(text)
		g.Expect(err).To(And(MatchError(ErrInvalidOption), MatchError(ContainSubstring("such as"))), text)
	}
}
