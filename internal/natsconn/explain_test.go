package natsconn_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/natsconn"
)

func TestEveryReasonWhyAServerCannotBeReachedNamesWhatToTry(t *testing.T) {
	g := NewWithT(t)
	names := natsconn.Settings{Server: "--server", TLSFirst: "--tlsfirst"}
	dial := func(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }
	for err, fix := range map[error]string{
		dial(syscall.ECONNREFUSED):                                 "start the server there, or correct host and port in --server",
		natsconn.ErrConnectionRefused:                              "start the server there, or correct host and port in --server",
		dial(os.ErrDeadlineExceeded):                               "see that the host runs, and that no firewall is in the way, or correct host and port in --server",
		dial(syscall.EHOSTUNREACH):                                 "see that the host runs",
		dial(syscall.ENETUNREACH):                                  "see that the host runs",
		dial(&net.DNSError{Err: "no such host", IsNotFound: true}): "correct the name of the host in --server",
		dial(&net.DNSError{Err: "i/o timeout", IsTimeout: true}):   "see that the name servers of this host answer, or give an IP address in --server",
		&net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}:      "if so, set --tlsfirst; else see that a NATS server listens there",
		fmt.Errorf("wrapped: %w", io.EOF):                          "if so, set --tlsfirst",
	} {
		g.Expect(names.Explain(err, false)).To(MatchError(And(HavePrefix(err.Error()+": "), ContainSubstring(fix))))
		g.Expect(errors.Is(names.Explain(err, false), err)).To(BeTrue())
	}
	other := errors.New("another")
	g.Expect(names.Explain(other, false)).To(BeIdenticalTo(other))
}
