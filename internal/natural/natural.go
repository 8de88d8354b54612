// Package natural orders names as people do: host-2 before host-10.
package natural

import (
	"cmp"
	"strings"
)

const digits = "0123456789"

// Compare compares two names, and the numbers in them by their values.
func Compare(a, b string) int { return cmp.Or(cmp.Compare(Key(a), Key(b)), cmp.Compare(a, b)) }

// Key returns a text for a name, such that the texts are in the order of the names: how many digits a number has precedes it.
func Key(name string) string {
	var key strings.Builder
	for name != "" {
		number := name[:len(name)-len(strings.TrimLeft(name, digits))]
		if number == "" {
			end := strings.IndexAny(name, digits)
			if end < 0 {
				end = len(name)
			}
			key.WriteString(name[:end])
			name = name[end:]
			continue
		}
		name = name[len(number):]
		number = strings.TrimLeft(number, "0")
		key.WriteString(strings.Repeat("9", len(number)/9)) // so that 8 < 90 < 91 < 990, for 8, 9, 10 and 18 digits
		key.WriteByte(digits[len(number)%9])
		key.WriteString(number)
	}
	return key.String()
}
