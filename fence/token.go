package fence

import (
	"errors"
	"fmt"
	"strings"
)

// TokenHeader is the header, of HTTP or of NATS, in which to send a term's token along with an effect.
const TokenHeader = "Election-Token"

// ErrInvalidToken is returned for text that is the token of no [election.Term].
var ErrInvalidToken = errors.New("not a fencing token")

// tokenDigits is the number of hexadecimal digits of either number of a token.
const tokenDigits = 16

// validateToken returns what is wrong with a token. Tokens that it accepts sort as terms do.
func validateToken(token string) error {
	bucket, number, ok := strings.Cut(token, "-")
	if !ok || !isHexadecimal(bucket) || !isHexadecimal(number) {
		return fmt.Errorf("%w: %s: send what Term.Token returns, two numbers of %d lower-case hexadecimal digits with a hyphen between", ErrInvalidToken, quoted(token), tokenDigits)
	}
	if strings.Trim(number, "0") == "" {
		return fmt.Errorf("%w: %q belongs to no term: send the token of a term that leads", ErrInvalidToken, token)
	}
	return nil
}

func isHexadecimal(s string) bool {
	return len(s) == tokenDigits && strings.Trim(s, "0123456789abcdef") == ""
}

// quoted returns s for an error message, cut if it is long.
func quoted(s string) string {
	const most = 64
	if len(s) > most {
		return fmt.Sprintf("%q and %d bytes more", s[:most], len(s)-most)
	}
	return fmt.Sprintf("%q", s)
}
