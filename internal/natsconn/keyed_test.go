package natsconn_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/natsconn"
	"github.com/natscampaign/election/internal/test/natstest"
)

// keyed is a Keyed whose user may subscribe to the given subjects, and what it has received.
type keyed struct {
	natsconn.Keyed
	g        *WithT
	sender   *nats.Conn
	mu       sync.Mutex
	received []string
}

func (k *keyed) receive(m *nats.Msg) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.received = append(k.received, strings.TrimPrefix(m.Subject, "keys."))
}

func onServer(t *testing.T, permitted string, test func(k *keyed)) {
	t.Helper()
	natstest.Bubble(t, func(t *testing.T) {
		g := NewWithT(t)
		s := natstest.Start(t, func(o *server.Options) {
			g.Expect(o.ProcessConfigString(`authorization: {users: [
				{user: sender, password: x}, {user: keyed, password: x, permissions: {subscribe: [` + permitted + `]}}
			]}`)).To(Succeed())
		})
		k := &keyed{g: g, sender: s.Connect(t, nats.UserInfo("sender", "x"))}
		k.Keyed = natsconn.Keyed{
			Conn: s.Connect(t, nats.UserInfo("keyed", "x")), Subject: func(key string) string { return "keys." + key }, MaxBytes: 1 << 10,
			Handle: k.receive,
		}
		test(k)
	})
}

// send publishes to keys, and expects those that are received.
func (k *keyed) send(keys []string, want ...string) {
	k.g.THelper()
	k.g.Expect(k.Conn.Flush()).To(Succeed())
	k.received = nil
	for _, key := range keys {
		k.g.Expect(k.sender.Publish("keys."+key, nil)).To(Succeed())
	}
	k.g.Expect(k.sender.Flush()).To(Succeed())
	synctest.Wait()
	slices.Sort(k.received)
	k.g.Expect(k.received).To(Equal(want))
}

func TestFloodOfManyKeysFillsNoMoreMemoryThanOneOfFew(t *testing.T) {
	onServer(t, `"keys.>"`, func(k *keyed) {
		held := make(chan struct{})
		release := func() { close(held) }
		defer func() { release() }()
		k.Handle = func(*nats.Msg) { <-held }
		const keys, messages, size = 64, 20, 100
		for i := range keys {
			k.g.Expect(k.Add(fmt.Sprint(i))).To(Succeed())
		}
		flood := func(keys int) {
			k.g.Expect(k.Conn.Flush()).To(Succeed())
			for i := range keys * messages {
				k.g.Expect(k.sender.Publish(fmt.Sprintf("keys.%d", i%keys), make([]byte, size))).To(Succeed())
			}
			k.g.Expect(k.sender.Flush()).To(Succeed())
			synctest.Wait()
		}
		flood(keys)
		k.g.Expect(k.Pending()*size).To(BeNumerically("<=", 8*k.MaxBytes), "and each handler has one more")
		k.g.Expect(k.Pending()).To(BeNumerically(">=", keys/2), "no key is left without room")
		release()
		synctest.Wait()

		for i := 2; i < keys; i++ {
			k.Remove(fmt.Sprint(i))
		}
		held = make(chan struct{})
		flood(2)
		k.g.Expect(k.Pending()).To(Equal(2*(k.MaxBytes/size)), "few keys have all of it each")
	})
}

func TestFewKeysNeedPermissionForThemselvesAlone(t *testing.T) {
	onServer(t, `"keys.a", "keys.b.c"`, func(k *keyed) {
		for _, key := range []string{"a", "b.c", "a"} {
			k.g.Expect(k.Add(key)).To(Succeed())
		}
		k.send([]string{"a", "b.c", "b.d"}, "a", "b.c")
		k.Remove("a")
		k.send([]string{"a"}, "a") // which has another user
		k.Remove("a")
		k.Remove("b.c")
		k.g.Expect(k.Conn.NumSubscriptions()).To(BeZero())
		k.g.Expect(k.Conn.LastError()).NotTo(HaveOccurred())
	})
}

func TestManyKeysShareASubscriptionToWhatTheyHaveInCommon(t *testing.T) {
	onServer(t, `"keys.jobs.>"`, func(k *keyed) {
		var keys []string
		for i := range natsconn.MaxExact + 1 {
			keys = append(keys, fmt.Sprintf("jobs.x.%03d", i))
			k.g.Expect(k.Add(keys[i])).To(Succeed())
			if i < 9 || i >= natsconn.MaxExact-1 {
				k.send(keys, keys...)
			}
		}
		k.g.Expect(k.Conn.NumSubscriptions()).To(Equal(natsconn.MaxExact + 1))
		k.g.Expect(k.Conn.LastError()).NotTo(HaveOccurred())
	})
}

func TestEachMessageIsHandledOnceWhateverKeysComeAndGo(t *testing.T) {
	for name, wide := range map[string]bool{"as many as there are": false, "always all": true} {
		t.Run(name, func(t *testing.T) {
			onServer(t, `">"`, func(k *keyed) {
				k.Wide = wide
				var keys []string
				for i := range 2 * natsconn.MaxExact {
					keys = append(keys, fmt.Sprintf("jobs.%03d.x", i), fmt.Sprintf("k%03d", i))
					k.g.Expect(k.Add(keys[2*i])).To(Succeed())
					k.g.Expect(k.Add(keys[2*i+1])).To(Succeed())
					if i < 9 || i%16 == 0 {
						k.send(keys, slices.Sorted(slices.Values(keys))...)
					}
				}
				k.g.Expect(k.Conn.NumSubscriptions()).To(BeNumerically("<=", natsconn.MaxExact+2))
				for _, key := range keys {
					k.Remove(key)
				}
				k.g.Expect(k.Conn.NumSubscriptions()).To(BeZero())
				k.g.Expect(k.Add("again")).To(Succeed())
				k.send([]string{"again"}, "again")
			})
		})
	}
}

// The server sends messages while it does not know of the wider subscription yet.
func TestNoMessageIsLostWhileTheSubscriptionWidens(t *testing.T) {
	onServer(t, `">"`, func(k *keyed) {
		for i := range natsconn.MaxExact {
			k.g.Expect(k.Add(fmt.Sprintf("jobs.%c", 'a'+i))).To(Succeed())
		}
		k.g.Expect(k.Conn.Flush()).To(Succeed())
		k.g.Expect(k.sender.Publish("keys.jobs.a", nil)).To(Succeed())
		k.g.Expect(k.sender.Flush()).To(Succeed()) // the message is on its way
		k.g.Expect(k.Add("jobs.z")).To(Succeed())
		k.g.Expect(k.Add("others")).To(Succeed())
		k.g.Expect(k.Conn.Flush()).To(Succeed())
		synctest.Wait()
		k.g.Expect(k.received).To(Equal([]string{"jobs.a"}))
	})
}

func TestWhatWaitsIsBoundedInBytes(t *testing.T) {
	onServer(t, `">"`, func(k *keyed) {
		release := make(chan struct{})
		k.Handle = func(m *nats.Msg) { <-release; k.receive(m) }
		k.g.Expect(k.Add("a")).To(Succeed())
		k.g.Expect(k.Conn.Flush()).To(Succeed())
		for range 100 {
			k.g.Expect(k.sender.Publish("keys.a", make([]byte, 100))).To(Succeed())
		}
		k.g.Expect(k.sender.Flush()).To(Succeed())
		synctest.Wait()
		close(release)
		synctest.Wait()
		k.g.Expect(len(k.received)).To(BeNumerically("~", 10, 2), "of 1 KiB")
	})
}

// Whoever relies on having received everything must know when the client has dropped something.
func TestMessagesThatAreDroppedAreReportedBeforeTheNextIsHandled(t *testing.T) {
	onServer(t, `"keys.>"`, func(k *keyed) {
		var dropped []int // how many messages had been handled then
		handled, blocked := 0, make(chan struct{})
		k.Dropped = func() { dropped = append(dropped, handled) }
		k.Handle = func(*nats.Msg) {
			<-blocked
			handled++
		}
		k.g.Expect(k.Add("a")).To(Succeed())
		k.g.Expect(k.Conn.Flush()).To(Succeed())
		send := func(n int) {
			for range n {
				k.g.Expect(k.sender.Publish("keys.a", make([]byte, k.MaxBytes/4))).To(Succeed())
			}
			k.g.Expect(k.sender.Flush()).To(Succeed())
			synctest.Wait()
		}
		send(1) // which is being handled while the others are dropped
		send(20)
		close(blocked)
		synctest.Wait()
		k.g.Expect(handled).To(BeNumerically("<", 20))
		k.g.Expect(dropped).To(Equal([]int{1}), "once, before the first that is handled afterwards")
	})
}
