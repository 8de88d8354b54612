//go:build linux || darwin

package supervise

import (
	"testing"

	. "github.com/onsi/gomega"
)

func TestSocketsThatWereMeantForRunAreMeantForTheProgram(t *testing.T) {
	g := NewWithT(t)
	env := []string{"A=b", "LISTEN_FDS=2", "LISTEN_PID=7", "LISTEN_PIDFDID=99", "LISTEN_FDNAMES=a:b"}
	g.Expect(handOverSockets(env, 7, 8)).To(Equal([]string{"A=b", "LISTEN_FDS=2", "LISTEN_PID=8", "LISTEN_FDNAMES=a:b"}))
	g.Expect(handOverSockets(env, 6, 8)).To(Equal(env), "they were meant for another process")
}
