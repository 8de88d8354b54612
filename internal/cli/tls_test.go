package cli

import (
	"crypto/tls"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/test/natstest"
)

func TestErrorSaysWhichSideWantsTheTLSHandshakeFirst(t *testing.T) {
	cert, authority := natstest.Certificate(t)
	start := func(first bool) string {
		s := natstest.StartNode(t, "secure", &server.Options{TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}}, TLSHandshakeFirst: first, TLSTimeout: timeLimit.Seconds()})
		return "nats://" + s.Addr().String()
	}
	demanding, usual := start(true), start(false)
	for _, c := range []struct {
		server string
		first  bool
		says   string // in the error; "" if it connects
	}{
		{demanding, true, ""},
		{demanding, false, "if so, set --tlsfirst"},
		{usual, false, ""},
		{usual, true, "leave out --tlsfirst"},
	} {
		g := NewWithT(t)
		flags := ConnectionFlags{Server: c.server, TLSCA: authority, tlsFirst: c.first, NoContext: true, Timeout: timeLimit}
		if c.server == demanding && !c.first {
			flags.Timeout = time.Second // the client is to give up
		}
		client, err := flags.Connect()
		if c.says == "" {
			g.Expect(err).NotTo(HaveOccurred())
			client.Conn.Close()
			continue
		}
		g.Expect(err).To(MatchError(ContainSubstring(c.says)))
	}
}
