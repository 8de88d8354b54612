package driver

import (
	"bufio"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/test/natstest"
)

// A server looks for a header after CRLF, and takes the first. Clients end a line at LF, too.
func TestHeaderThatTheServerReadsInAnotherWayDoesNotSayWhatWasReplaced(t *testing.T) {
	const expects = "Nats-Expected-Last-Subject-Sequence: "
	for header, conditional := range map[string]bool{
		expects + "7\r\n":                                true,
		expects + "7\r\nNats-TTL: 5s\r\n":                true,
		"Nats-TTL: 5s\r\n":                               false,
		"X: y\n" + expects + "7\r\n":                     false,
		"X: y\n" + expects + "7\r\n" + expects + "9\r\n": false,
		expects + "7\r\n" + expects + "9\r\n":            false,
	} {
		t.Run(fmt.Sprintf("%q", header), func(t *testing.T) {
			g, server := NewWithT(t), natstest.Start(t)
			nc := server.Connect(t)
			received, err := nc.SubscribeSync("$KV.S.c.k")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(nc.Flush()).To(Succeed())
			c, err := server.InProcessConn()
			g.Expect(err).NotTo(HaveOccurred())
			defer func() { _ = c.Close() }()
			_, err = bufio.NewReader(c).ReadString('\n') // what the server says of itself
			g.Expect(err).NotTo(HaveOccurred())
			header = "NATS/1.0\r\n" + header + "\r\n"
			_, err = fmt.Fprintf(c, "CONNECT {\"headers\":true}\r\nHPUB $KV.S.c.k %d %d\r\n%s{}\r\n", len(header), len(header)+len("{}"), header)
			g.Expect(err).NotTo(HaveOccurred())
			m, err := received.NextMsg(time.Minute)
			g.Expect(err).NotTo(HaveOccurred())
			ch := changeOf("S", m, &nats.MsgMetadata{})
			g.Expect(ch.Key).To(Equal("c.k"))
			g.Expect(ch.Unconditional).To(Equal(!conditional))
			if conditional {
				g.Expect(ch.Replaced).To(BeEquivalentTo(7))
			} else {
				g.Expect(ch.Replaced).To(BeZero())
			}
		})
	}
}
