package control

import (
	"os"
	"os/user"
	"strconv"
)

// Operator returns how this process calls the operator for whom it acts: USER@HOST. What an operator leaves behind, such as a pause or
// an eviction, names it. The name is a claim, and proves nothing.
func Operator() string {
	name := strconv.Itoa(os.Getuid())
	if u, err := user.Current(); err == nil && u.Username != "" {
		name = u.Username
	}
	if host, err := os.Hostname(); err == nil {
		name += "@" + host
	}
	return name[:min(len(name), maxOperatorBytes)]
}

// maxOperatorBytes bounds the name of an operator.
const maxOperatorBytes = 200
