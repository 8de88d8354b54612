package natural

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

func TestNumbersInNamesAreOrderedByTheirValues(t *testing.T) {
	g := NewWithT(t)
	long := strings.Repeat("1", 17)
	ordered := []string{
		"", "0", "00", "1", "2", "10", "99999999", "999999999", "1000000000", long, long + "0", "9" + long, long + "00", "a", "host", "host-0", "host-02", "host-2", "host-2.a", "host-2.b", "host-10", "host-10.a",
		"host-100", "host-a", "host.1", "hosts-1", "v1.2.10", "v1.10.2", "ü",
	}
	for range 100 {
		shuffled := slices.Clone(ordered)
		rand.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		slices.SortFunc(shuffled, Compare)
		g.Expect(shuffled).To(Equal(ordered))
	}
}
