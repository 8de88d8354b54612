package fence

import (
	"errors"
	"fmt"
	"strings"
)

// TokenHeader is the header, of HTTP or of NATS, in which to send a term's token along with an effect.
const TokenHeader = "Election-Token"

// ErrInvalidToken is returned for text that no [election.Term] has for a token.
var ErrInvalidToken = errors.New("not a fencing token")

// halfToken is the length of either number of a token, which are written in hexadecimal.
const halfToken = 16

// checkToken says what is wrong with a token. What it lets pass sorts as terms do.
func checkToken(token string) error {
	bucket, number, ok := strings.Cut(token, "-")
	if !ok || !isHexadecimal(bucket) || !isHexadecimal(number) {
		return fmt.Errorf("%w: %s; send what Term.Token returns, two numbers of %d lower-case hexadecimal digits with a hyphen between", ErrInvalidToken, quoted(token), halfToken)
	}
	if strings.Trim(number, "0") == "" {
		return fmt.Errorf("%w: %q belongs to no term; send the token of a term that leads", ErrInvalidToken, token)
	}
	return nil
}

func isHexadecimal(s string) bool {
	return len(s) == halfToken && strings.Trim(s, "0123456789abcdef") == ""
}

// quoted returns s for an error, which it must not flood.
func quoted(s string) string {
	const most = 64
	if len(s) > most {
		return fmt.Sprintf("%q and %d bytes more", s[:most], len(s)-most)
	}
	return fmt.Sprintf("%q", s)
}
