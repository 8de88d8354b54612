package faultproxy_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/drill/faultproxy"
	"github.com/natscampaign/election/internal/test/natstest"
)

// rig is a client behind a link, and an undisturbed view of the bucket it writes to.
type rig struct {
	*WithT
	link        *faultproxy.Link
	nc          *nats.Conn
	client      jetstream.KeyValue
	undisturbed *nats.Conn
	truth       jetstream.KeyValue
}

// onVirtualTime runs f in a bubble with a real server.
func onVirtualTime(t *testing.T, f func(r *rig)) {
	t.Helper()
	natstest.Bubble(t, func(t *testing.T) {
		s := natstest.Start(t)
		r := &rig{WithT: NewWithT(t), link: s.Link(t), undisturbed: s.Connect(t)}
		r.truth = s.Bucket(t, r.undisturbed, 0)
		r.nc = natstest.Connect(t, r.link)
		r.client = s.Bucket(t, r.nc, 0)
		f(r)
	})
}

// put writes through the link, with two seconds to do it.
func (r *rig) put(key, value string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	_, err := r.client.Put(ctx, key, []byte(value))
	return err
}

// stored returns what the server has under the key, or the error instead.
func (r *rig) stored(key string) string {
	e, err := r.truth.Get(context.Background(), key)
	if err != nil {
		return err.Error()
	}
	return string(e.Value())
}

var (
	absent  = Equal(jetstream.ErrKeyNotFound.Error())
	timeOut = MatchError(context.DeadlineExceeded)
	succeed = Succeed
)

func toKey(key string) func(faultproxy.Message) bool {
	subject := "$KV." + natstest.BucketName + "." + key
	return func(m faultproxy.Message) bool { return m.Subject == subject || m.Request == subject }
}

func TestPerfectLinkPassesEverythingWithoutDelay(t *testing.T) {
	onVirtualTime(t, func(r *rig) {
		start := time.Now()
		for i := range 100 {
			r.Expect(r.put("a", fmt.Sprint(i))).To(succeed())
		}
		r.Expect(r.stored("a")).To(Equal("99"))
		r.Expect(time.Since(start)).To(BeZero())
	})
}

func TestCutLinkLosesRequestsWithoutTellingAnybody(t *testing.T) {
	onVirtualTime(t, func(r *rig) {
		disconnected := r.nc.StatusChanged(nats.RECONNECTING)

		r.link.Cut()
		r.Expect(r.put("a", "lost")).To(timeOut)
		r.Expect(r.nc.IsConnected()).To(BeTrue())
		r.Expect(disconnected).NotTo(Receive())

		r.link.Heal()
		r.Eventually(disconnected, time.Minute).Should(Receive())
		r.Eventually(r.nc.IsConnected, time.Minute).Should(BeTrue())
		r.Expect(r.stored("a")).To(absent)
		r.Expect(r.put("a", "new connection")).To(succeed())
	})
}

func TestCutLinkRefusesNewConnectionsUntilHealed(t *testing.T) {
	onVirtualTime(t, func(r *rig) {
		r.link.Cut()
		start := time.Now()
		_, err := r.link.InProcessConn()
		r.Expect(err).To(HaveOccurred())
		_, err = r.link.Dial("tcp", "anywhere")
		r.Expect(err).To(HaveOccurred())
		r.Expect(time.Since(start)).To(BeZero())

		r.link.Heal()
		c, err := r.link.InProcessConn()
		r.Expect(err).NotTo(HaveOccurred())
		r.Expect(c.Close()).To(succeed())
	})
}

func TestCutLinkLosesWhatItHeld(t *testing.T) {
	onVirtualTime(t, func(r *rig) {
		r.link.Stall()
		r.Expect(r.put("a", "held, then lost")).To(timeOut)
		r.link.Cut()
		r.link.Heal()
		time.Sleep(time.Second)
		r.Expect(r.stored("a")).To(absent)
	})
}

func TestCutLinkLosesWhatWasOnItsWay(t *testing.T) {
	onVirtualTime(t, func(r *rig) {
		r.link.DelayReplies(time.Second)
		time.AfterFunc(500*time.Millisecond, r.link.Cut)
		r.Expect(r.put("a", "applied")).To(timeOut)
		r.Expect(r.stored("a")).To(Equal("applied"))
	})
}

func TestStalledLinkDeliversInOrderOnHeal(t *testing.T) {
	onVirtualTime(t, func(r *rig) {
		sub, err := r.undisturbed.SubscribeSync("in.order")
		r.Expect(err).NotTo(HaveOccurred())
		received := func() int {
			n, _, err := sub.Pending()
			r.Expect(err).NotTo(HaveOccurred())
			return n
		}

		r.link.Stall()
		for i := range 50 {
			r.Expect(r.nc.Publish("in.order", fmt.Append(nil, i))).To(succeed())
		}
		time.Sleep(time.Minute) // less than it takes the client to miss two pings
		r.Expect(received()).To(BeZero())

		r.link.Heal()
		synctest.Wait()
		r.Expect(received()).To(Equal(50))
		for i := range 50 {
			m, err := sub.NextMsg(time.Second)
			r.Expect(err).NotTo(HaveOccurred())
			r.Expect(string(m.Data)).To(Equal(fmt.Sprint(i)))
		}
		r.Expect(r.nc.Stats().Reconnects).To(BeZero())
	})
}

func TestStalledLinkAppliesARequestWhoseClientGaveUpAndLeft(t *testing.T) {
	onVirtualTime(t, func(r *rig) {
		r.link.Stall()
		r.Expect(r.put("a", "late")).To(timeOut)
		r.nc.Close()
		time.Sleep(time.Minute)
		r.Expect(r.stored("a")).To(absent)

		r.link.Heal()
		synctest.Wait()
		r.Expect(r.stored("a")).To(Equal("late"))
	})
}

func TestLostRequestIsNeverApplied(t *testing.T) {
	onVirtualTime(t, func(r *rig) {
		r.link.LoseRequests(toKey("a"))
		r.Expect(r.put("a", "lost")).To(timeOut)
		r.Expect(r.put("b", "fine")).To(succeed())

		r.link.Heal()
		time.Sleep(time.Minute)
		r.Expect(r.stored("a")).To(absent)
		r.Expect(r.put("a", "fine")).To(succeed())
	})
}

func TestDisconnectIsNoticedAndTheClientDialsAgain(t *testing.T) {
	onVirtualTime(t, func(r *rig) {
		disconnected := r.nc.StatusChanged(nats.RECONNECTING)
		reconnected := r.nc.StatusChanged(nats.CONNECTED)
		r.link.Disconnect()
		r.Expect(<-disconnected).To(Equal(nats.RECONNECTING))
		r.Expect(<-reconnected).To(Equal(nats.CONNECTED))
		r.Expect(r.put("a", "1")).To(succeed())
	})
}

func TestEveryRequestIsCountedEvenIfItIsLost(t *testing.T) {
	onVirtualTime(t, func(r *rig) {
		var seen []faultproxy.Message
		r.link.OnRequest(func(m faultproxy.Message) { seen = append(seen, m) })
		r.link.LoseRequests(toKey("a"))

		r.Expect(r.put("a", "lost")).To(timeOut)
		_, err := r.client.Create(context.Background(), "b", []byte("fine"))
		r.Expect(err).NotTo(HaveOccurred())

		r.Expect(seen).To(HaveLen(2))
		r.Expect(seen[0].Subject).To(Equal("$KV.ELECTIONS.a"))
		r.Expect(string(seen[0].Payload)).To(Equal("lost"))
		r.Expect(seen[0].Header).To(BeEmpty())
		r.Expect(seen[0].Reply).To(HavePrefix("_INBOX."))
		r.Expect(string(seen[1].Header)).To(ContainSubstring("Nats-Expected-Last-Subject-Sequence: 0"))

		r.link.OnRequest(nil)
		r.Expect(r.put("b", "not counted")).To(succeed())
		r.Expect(seen).To(HaveLen(2))
	})
}

func TestHookCanFailTheLinkForTheVeryRequestItSees(t *testing.T) {
	natstest.SkipIfShort(t)
	onVirtualTime(t, func(r *rig) {
		r.link.OnRequest(func(m faultproxy.Message) {
			if string(m.Payload) == "cut here" {
				r.link.Cut()
			}
		})
		r.Expect(r.put("a", "fine")).To(succeed())
		r.Expect(r.put("a", "cut here")).To(timeOut)
		r.Expect(r.stored("a")).To(Equal("fine"))
	})
	onVirtualTime(t, func(r *rig) {
		r.link.OnRequest(func(faultproxy.Message) { r.link.LoseRequests(toKey("a")) })
		r.Expect(r.put("a", "lost")).To(timeOut)
		r.Expect(r.stored("a")).To(absent)
	})
}

// In each of these the bubble itself fails the test if a goroutine stays blocked.
func TestClosingLeavesNoGoroutine(t *testing.T) {
	natstest.SkipIfShort(t)
	tests := map[string]func(r *rig){
		"a perfect link":                        func(*rig) {},
		"a cut link":                            func(r *rig) { r.link.Cut() },
		"a stalled link with requests held":     func(r *rig) { r.link.Stall(); _ = r.put("a", "1") },
		"a stalled link whose client left":      func(r *rig) { r.link.Stall(); _ = r.put("a", "1"); r.nc.Close() },
		"a link with replies held":              func(r *rig) { r.link.StallReplies(); _ = r.put("a", "1"); r.nc.Close() },
		"a link with replies on their way":      func(r *rig) { r.link.DelayReplies(time.Hour); _ = r.put("a", "1") },
		"a cut link whose client left":          func(r *rig) { r.link.Cut(); _ = r.put("a", "1"); r.nc.Close() },
		"a healed link whose client left":       func(r *rig) { r.link.Stall(); r.nc.Close(); r.link.Heal() },
		"a disconnected link":                   func(r *rig) { r.link.Disconnect() },
		"a closed link":                         func(r *rig) { r.link.Close() },
		"a stalled link, tried again and again": func(r *rig) { r.link.Stall(); time.Sleep(10 * time.Minute) },
	}
	for name, fail := range tests {
		t.Run(name, func(t *testing.T) {
			onVirtualTime(t, func(r *rig) {
				fail(r)
				r.link.Close()
				_, err := r.link.InProcessConn()
				r.Expect(err).To(HaveOccurred())
			})
		})
	}
}

func TestConnectionsEndByThemselvesWhenTheClientLeaves(t *testing.T) {
	onVirtualTime(t, func(r *rig) {
		left := r.nc.StatusChanged(nats.CLOSED)
		r.nc.Close()
		r.Expect(<-left).To(Equal(nats.CLOSED))
		synctest.Wait()
		r.Expect(r.link.Connections()).To(BeZero())
	})
}

func TestDialErrorsAreReported(t *testing.T) {
	g := NewWithT(t)
	refused := errors.New("refused")
	l := faultproxy.New(func() (net.Conn, error) { return nil, refused })
	defer l.Close()
	_, err := l.InProcessConn()
	g.Expect(err).To(MatchError(refused))

	_, err = faultproxy.New(nil).InProcessConn()
	g.Expect(err).To(HaveOccurred())
}
