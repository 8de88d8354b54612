package validate

import (
	"math"
	"strconv"
	"strings"
)

// ParseBytes reads a number of bytes: digits, which K, M or G may follow for as many times 1024, 1024² or 1024³ bytes, also written as KB
// or KiB and so on. The error is an invalid option.
func ParseBytes(text string) (int64, error) {
	number := strings.ToUpper(strings.TrimSpace(text))
	number = strings.TrimSuffix(strings.TrimSuffix(number, "B"), "I")
	factor := int64(1)
	for i, unit := range []string{"K", "M", "G"} {
		if rest, found := strings.CutSuffix(number, unit); found {
			number, factor = rest, 1<<(10*(i+1))
			break
		}
	}
	n, err := strconv.ParseUint(number, 10, 63)
	if err != nil || int64(n) > math.MaxInt64/factor {
		return 0, Errorf("%q is not a number of bytes: write digits, with K, M or G for a unit, such as 1048576 or 1M", text)
	}
	return int64(n) * factor, nil
}
