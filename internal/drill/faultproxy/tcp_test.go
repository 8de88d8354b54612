package faultproxy_test

import (
	"crypto/tls"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/drill/faultproxy"
	"github.com/natscampaign/election/internal/test/natstest"
)

func TestTLSPassesAndCanBeCut(t *testing.T) {
	natstest.SkipIfShort(t)
	g := NewWithT(t)
	cert, _ := natstest.Certificate(t)
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{cert}})
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = listener.Close() }()
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); _ = c.Close() }() // an echo
		}
	}()

	l := faultproxy.New(nil)
	defer l.Close()
	plain, err := l.Dial("tcp", listener.Addr().String())
	g.Expect(err).NotTo(HaveOccurred())
	c := tls.Client(plain, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // the certificate is made up
	defer func() { _ = c.Close() }()

	echo := func() string {
		g.Expect(c.SetDeadline(time.Now().Add(10 * time.Second))).To(Succeed())
		_, err := c.Write([]byte("hello"))
		g.Expect(err).NotTo(HaveOccurred())
		buf := make([]byte, 5)
		_, err = io.ReadFull(c, buf)
		g.Expect(err).NotTo(HaveOccurred())
		return string(buf)
	}
	g.Expect(echo()).To(Equal("hello"))
	l.LoseRequests(nil) // has no effect on what cannot be understood
	g.Expect(echo()).To(Equal("hello"))

	l.Cut()
	_, err = c.Write([]byte("hello"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(c.SetDeadline(time.Now().Add(50 * time.Millisecond))).To(Succeed())
	_, err = c.Read(make([]byte, 5))
	g.Expect(err).To(MatchError(ContainSubstring("timeout")))
}

func TestLinkCarriesRealTCPToAServer(t *testing.T) {
	natstest.SkipIfShort(t)
	g := NewWithT(t)
	s := natstest.StartTCP(t)
	l := faultproxy.New(nil)
	t.Cleanup(l.Close)
	nc := s.Connect(t, nats.SetCustomDialer(l))

	g.Expect(nc.FlushTimeout(20 * time.Second)).To(Succeed())
	l.Cut()
	g.Expect(nc.FlushTimeout(100 * time.Millisecond)).To(MatchError(nats.ErrTimeout))
	l.Heal()
	g.Eventually(func() error { return nc.FlushTimeout(5 * time.Second) }, 30*time.Second).Should(Succeed())
}

func TestALinkThatListensCarriesConnectionsUntilItIsClosed(t *testing.T) {
	natstest.SkipIfShort(t)
	g := NewWithT(t)
	s := natstest.StartTCP(t)
	l := faultproxy.New(nil)
	address, err := l.Listen(strings.TrimPrefix(s.URL(), "nats://"))
	g.Expect(err).NotTo(HaveOccurred())
	nc, err := nats.Connect("nats://"+address, nats.NoReconnect(), nats.Timeout(20*time.Second))
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(nc.Close)
	g.Expect(nc.FlushTimeout(20 * time.Second)).To(Succeed())
	l.Close()
	g.Eventually(nc.IsClosed).WithTimeout(20 * time.Second).Should(BeTrue())
	_, err = net.Dial("tcp", address)
	g.Expect(err).To(HaveOccurred())
	_, err = l.Listen(s.URL())
	g.Expect(err).To(HaveOccurred())
}
