package terminal

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
)

// Limits on text that comes from a bucket or from another process.
const (
	MaxText     = 255  // characters
	MaxValue    = 1024 // characters of a longer text, such as a value of the metadata
	MaxMetadata = 64   // entries
)

// invisible are characters that Unicode counts as letters, marks or symbols although they leave no trace. With them, two
// different names would look the same.
const invisible = "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\ufe00\ufe01\ufe02\ufe03\ufe04\ufe05\ufe06\ufe07\ufe08\ufe09\ufe0a\ufe0b\ufe0c\ufe0d\ufe0e\uffa0"

// Quote returns the printable form of a key, a name or a bucket for a sentence, in quotes: a key may be called "nobody". Tables, headings,
// labelled values and command lines take Printable instead.
func Quote(s string) string { return `"` + strings.ReplaceAll(Printable(s), `"`, `\"`) + `"` }

// Printable escapes each character of untrusted text that is not visible, as in \x1b, and cuts the text to MaxText
// characters. Short text without such characters stays unchanged.
func Printable(s string) string { return PrintableUpTo(s, MaxText) }

// PrintableUpTo is Printable with another limit. An ellipsis takes the place of the characters beyond the limit.
func PrintableUpTo(s string, limit int) string {
	var b strings.Builder
	n := 0
	for i, r := range s {
		if n++; n > limit {
			b.WriteString("…")
			break
		}
		switch {
		case r == unicode.ReplacementChar && !strings.HasPrefix(s[i:], string(unicode.ReplacementChar)):
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case unicode.IsPrint(r) && !strings.ContainsRune(invisible, r):
			b.WriteRune(r)
		default:
			quoted := strconv.QuoteRuneToASCII(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		}
	}
	return b.String()
}
