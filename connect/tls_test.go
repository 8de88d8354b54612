package connect_test

import (
	"context"
	"crypto/tls"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/connect"
	"github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/natstest"
)

func TestErrorSaysWhichSideWantsTheTLSHandshakeFirst(t *testing.T) {
	natstest.SkipIfShort(t)
	cert, authority := natstest.Certificate(t)
	secure := func(o server.Options) server.Options {
		o.TLSConfig = &tls.Config{Certificates: []tls.Certificate{cert}}
		return o
	}
	for name, c := range map[string]struct {
		server server.Options
		client bool
		says   []string // of the error; nil if it connects
	}{
		"both":                       {secure(server.Options{TLSHandshakeFirst: true, TLSTimeout: 5}), true, nil},
		"neither":                    {secure(server.Options{TLSTimeout: 5}), false, nil},
		"server, which ends it":      {secure(server.Options{TLSHandshakeFirst: true, TLSTimeout: 0.1}), false, []string{"EOF", "handshake first", "set Config.TLSFirst (NATS_TLS_FIRST)"}},
		"server, which waits longer": {secure(server.Options{TLSHandshakeFirst: true, TLSTimeout: 10}), false, []string{"i/o timeout", "handshake first", "set Config.TLSFirst (NATS_TLS_FIRST)"}},
		"client":                     {secure(server.Options{TLSTimeout: 5}), true, []string{"leave out Config.TLSFirst (NATS_TLS_FIRST)"}},
		"client, server without TLS": {server.Options{}, true, []string{"leave out Config.TLSFirst (NATS_TLS_FIRST)"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			c.server.JetStream = true
			s := natstest.StartNode(t, "secure", &c.server)
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			patience := 10 * time.Second
			if slices.Contains(c.says, "i/o timeout") {
				patience = time.Second // the client is to give up
			}
			made, err := connect.Connect(ctx, connect.Config{Name: "a", Key: fleettest.Key, URL: "nats://" + s.Addr().String(), TLSCA: authority, TLSFirst: c.client}, nats.Timeout(patience), func(o *nats.Options) error {
				note := o.ReconnectErrCB
				o.ReconnectErrCB = func(nc *nats.Conn, err error) {
					note(nc, err)
					if c.says != nil {
						cancel() // the error is known
					}
				}
				return nil
			})
			if c.says == nil {
				g.Expect(err).NotTo(HaveOccurred())
				made.Close()
				return
			}
			for _, text := range c.says {
				g.Expect(err).To(MatchError(ContainSubstring(text)))
			}
		})
	}
}
