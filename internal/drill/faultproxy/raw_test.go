package faultproxy_test

import (
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/drill/faultproxy"
	"github.com/natscampaign/election/internal/test/natstest"
)

// pair returns both ends of a connection through a new link.
func pair(t *testing.T) (l *faultproxy.Link, client, server net.Conn) {
	t.Helper()
	server, far := net.Pipe()
	l = faultproxy.New(func() (net.Conn, error) { return far, nil })
	client, err := l.InProcessConn()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() {
		_ = client.Close()
		_ = server.Close()
		l.Close()
	})
	return l, client, server
}

// arriving collects what arrives on a connection.
func arriving(c net.Conn) <-chan string {
	chunks := make(chan string, 1000)
	go func() {
		defer close(chunks)
		for {
			buf := make([]byte, 1<<16)
			n, err := c.Read(buf)
			if n > 0 {
				chunks <- string(buf[:n])
			}
			if err != nil {
				return
			}
		}
	}()
	return chunks
}

// arrived returns what has arrived until everything came to rest.
func arrived(chunks <-chan string) (all []string) {
	synctest.Wait()
	for len(chunks) > 0 {
		all = append(all, <-chunks)
	}
	return all
}

func TestBytesOfAnotherProtocolPassAsTheyCome(t *testing.T) {
	for name, bytes := range map[string]string{
		"binary":                      "\x16\x03\x01\x02",
		"no line":                     "hello",
		"another line":                "GET / HTTP/1.1\r\n",
		"a line much like NATS":       "HPUBLISH x 5\r\n",
		"a size that is none":         "PUB subject many\r\n",
		"a header beyond its message": "HPUB subject 9 5\r\n",
		"fields missing":              "MSG subject 5\r\n",
		"an empty line":               "\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewWithT(t)
				l, client, server := pair(t)
				l.LoseRequests(nil)
				got := arriving(server)

				// What follows may look like anything: it is the other protocol's.
				sent := bytes + "PUB a 0\r\n\r\n" + bytes
				for _, part := range []string{bytes, "PUB a 0\r\n\r\n", bytes} {
					_, err := client.Write([]byte(part))
					g.Expect(err).NotTo(HaveOccurred())
				}
				g.Expect(strings.Join(arrived(got), "")).To(Equal(sent))
			})
		})
	}
}

func TestFramesArriveWholeHoweverTheyAreCutUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		l, client, server := pair(t)
		var seen []faultproxy.Message
		l.OnRequest(func(m faultproxy.Message) { seen = append(seen, m) })
		l.LoseRequests(func(m faultproxy.Message) bool { return m.Subject == "lost" })
		got := arriving(server)

		const in = "CONNECT {}\r\nPUB lost 4\r\nPING\r\npub a.b re.ply 5\r\nPUB x\r\n" +
			"HPUB h 12 14\r\nNATS/1.0\r\n\r\nhi\r\nPUB empty 0\r\n\r\nPING\r\n"
		for _, b := range []byte(in) {
			_, err := client.Write([]byte{b})
			g.Expect(err).NotTo(HaveOccurred())
		}
		g.Expect(arrived(got)).To(Equal([]string{
			"CONNECT {}\r\n", "pub a.b re.ply 5\r\nPUB x\r\n",
			"HPUB h 12 14\r\nNATS/1.0\r\n\r\nhi\r\n", "PUB empty 0\r\n\r\n", "PING\r\n",
		}))
		g.Expect(seen).To(HaveLen(4))
		g.Expect(seen[0]).To(Equal(faultproxy.Message{Subject: "lost", Payload: []byte("PING")}))
		g.Expect(seen[1]).To(Equal(faultproxy.Message{Subject: "a.b", Reply: "re.ply", Payload: []byte("PUB x")}))
		g.Expect(seen[2]).To(Equal(faultproxy.Message{Subject: "h", Header: []byte("NATS/1.0\r\n\r\n"), Payload: []byte("hi")}))
		g.Expect(seen[3].Payload).To(BeEmpty())
	})
}

func TestFunctionsOfOneLinkNeverRunConcurrently(t *testing.T) {
	natstest.SkipIfShort(t)
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		l := faultproxy.New(func() (net.Conn, error) {
			server, far := net.Pipe()
			arriving(server)
			go func() { // as many messages to the client as there are from it
				for range 100 {
					_, _ = server.Write([]byte("MSG a 1 0\r\n\r\n"))
				}
			}()
			return far, nil
		})
		defer l.Close()

		var calls, running, most int // unguarded, so the race detector watches too
		one := func(faultproxy.Message) bool {
			calls++
			running++
			most = max(most, running)
			runtime.Gosched()
			running--
			return false
		}
		l.OnRequest(func(m faultproxy.Message) { one(m) })
		l.LoseRequests(one)
		l.LoseReplies(one)

		for range 5 {
			client, err := l.InProcessConn()
			g.Expect(err).NotTo(HaveOccurred())
			arriving(client)
			go func() {
				for range 100 {
					_, _ = client.Write([]byte("PUB a 0\r\n\r\n"))
				}
			}()
		}
		synctest.Wait()
		g.Expect(calls).To(Equal(5 * 100 * 3))
		g.Expect(most).To(Equal(1))
	})
}

func TestAnUnfinishedFrameArrivesWhenTheConnectionEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		_, client, server := pair(t)
		got := arriving(server)
		_, err := client.Write([]byte("PUB a 10\r\nhalf"))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(client.Close()).To(Succeed())
		g.Expect(strings.Join(arrived(got), "")).To(Equal("PUB a 10\r\nhalf"))
		g.Expect(got).To(BeClosed())
	})
}

func TestRawBytesAreStalledAndCutToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		l, client, server := pair(t)
		got := arriving(server)
		write := func(s string) {
			_, err := client.Write([]byte(s))
			g.Expect(err).NotTo(HaveOccurred())
		}

		l.Stall()
		write("\x16one, ")
		write("two")
		g.Expect(arrived(got)).To(BeEmpty())
		l.Heal()
		g.Expect(strings.Join(arrived(got), "")).To(Equal("\x16one, two"))

		l.Cut()
		write("three")
		g.Expect(arrived(got)).To(BeEmpty())
		l.Heal()
		g.Expect(arrived(got)).To(BeEmpty())
		g.Expect(got).To(BeClosed())
	})
}

func TestStalledLinkTakesInOnlySoMuch(t *testing.T) {
	natstest.SkipIfShort(t)
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		l, client, server := pair(t)
		l.Stall()

		const chunk, chunks = 1 << 20, 40
		written := 0
		go func() {
			for range chunks {
				if _, err := client.Write(make([]byte, chunk)); err != nil {
					return
				}
				written++
			}
		}()
		synctest.Wait()
		g.Expect(written).To(And(BeNumerically(">=", 15), BeNumerically("<=", 18)))

		l.Heal()
		n, err := io.ReadFull(server, make([]byte, chunk*chunks))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(n).To(Equal(chunk * chunks))
		synctest.Wait()
		g.Expect(written).To(Equal(chunks))
	})
}

func TestClosingWhileTheSenderWaitsForRoomLeavesNoGoroutine(t *testing.T) {
	natstest.SkipIfShort(t)
	synctest.Test(t, func(t *testing.T) {
		l, client, _ := pair(t)
		l.Stall()
		go func() { _, _ = client.Write(make([]byte, 64<<20)) }()
		synctest.Wait()
		l.Close() // the bubble fails the test if anything stays blocked
	})
}
