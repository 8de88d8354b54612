package election_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/drill/faultproxy"
)

// Somebody who may write the key, and have notifications delivered, knows what will be stored before it is.

// changed returns the record under the key with some fields changed.
func (f *fleet) changed(fields map[string]any) string {
	var r map[string]any
	f.Expect(json.Unmarshal([]byte(f.record()), &r)).To(Succeed())
	for name, value := range fields {
		r[name] = value
	}
	text, err := json.Marshal(r)
	f.Expect(err).NotTo(HaveOccurred())
	return string(text)
}

// copied returns the record under the key, byte for byte but for the id of its attempt.
func (f *fleet) copied(attempt string) string {
	before, rest, _ := strings.Cut(f.record(), `"attempt":"`)
	_, after, _ := strings.Cut(rest, `"`)
	return before + `"attempt":"` + attempt + `"` + after
}

// overwrite writes the key over a revision.
func (f *fleet) overwrite(value string, over uint64) (revision uint64) {
	revision, err := f.Bucket.Update(context.Background(), key, []byte(value), over)
	f.Expect(err).NotTo(HaveOccurred())
	return revision
}

// neverBoth lets time pass, and expects that only one of two candidates leads at any time.
func (f *fleet) neverBoth(a, b *candidate, d time.Duration) {
	f.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); after(5 * time.Millisecond) {
		f.Expect(a.IsLeader() && b.IsLeader()).To(BeFalse(), "two leaders, %v before the end", time.Until(end))
	}
}

func TestWriteThatIsAnnouncedBeforeItIsMadeMakesNoSecondLeader(t *testing.T) {
	for name, hidden := range map[string]bool{"all renewals are notified": false, "renewals are lost without a sign": true} {
		t.Run(name, func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				a, b := f.leaderAndFollower()
				announced := f.copied("announced")
				at := f.revision() + 2 // after one renewal
				f.forger().publish(at, announced)
				after(instant)
				if hidden {
					b.link.LoseReplies(func(m faultproxy.Message) bool {
						return strings.HasPrefix(m.Subject, "election.") && !strings.Contains(string(m.Payload), "announced")
					})
				}
				f.awaitWrite()
				after(200 * time.Millisecond)
				a.link.Cut()
				f.Expect(f.overwrite(f.copied("announced"), f.revision())).To(Equal(at))
				f.neverBoth(a, b, 2*ttl)
				after(ttl)
				f.Expect(b.IsLeader()).To(BeTrue())
			}, republished)
		})
	}
}

func TestNotificationFromTheFutureMakesNoSecondLeader(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a, b := f.leaderAndFollower()
		f.forger().publish(1_000_000, f.copied("forged"))
		f.awaitWrite()
		after(200 * time.Millisecond)
		a.link.Cut()
		var secret [16]byte
		secret[0] = 7
		hash := sha256.Sum256(secret[:])
		own := map[string]any{"name": "evil", "instance": "evil", "attempt": "evil.1", "since": time.Now(), "won": "released", "commitment": base64.RawURLEncoding.EncodeToString(hash[:16])}
		revision := f.overwrite(f.changed(own), f.revision())
		after(100 * time.Millisecond)
		f.overwrite(f.changed(map[string]any{
			"attempt": "evil.2", "released": time.Now(), "secret": base64.RawURLEncoding.EncodeToString(secret[:]), "successors": []string{"b"}, "head_start_ms": 25,
		}), revision)
		f.neverBoth(a, b, 2*ttl)
		f.Expect(b.IsLeader()).To(BeTrue())
	}, republished)
}

func TestRecordThatNeverExpiresIsWrittenOver(t *testing.T) {
	for name, value := range map[string]func(f *fleet) string{
		"a bare name": func(*fleet) string { return "x" },
		"a record":    func(f *fleet) string { return f.changed(map[string]any{"name": "evil", "instance": "evil"}) },
		"other data":  func(*fleet) string { return `{"x":1}` },
		"nothing":     func(*fleet) string { return "" },
	} {
		t.Run(name, func(t *testing.T) {
			forEachSource(t, func(f *fleet, candidate newCandidate) {
				a := candidate("a").start()
				after(interval)
				candidate("b").start()
				after(interval)
				m := nats.NewMsg(f.Bucket.(interface{ Bucket() string }).Bucket())
				m.Subject = "$KV." + m.Subject + "." + key
				m.Header.Set(jetstream.MsgTTLHeader, "never")
				m.Data = []byte(value(f))
				js, err := jetstream.New(f.Server.Connect(f.T))
				f.Expect(err).NotTo(HaveOccurred())
				_, err = js.PublishMsg(context.Background(), m)
				f.Expect(err).NotTo(HaveOccurred())
				after(interval) // the leader learns of it by its next renewal
				f.Expect(a.IsLeader()).To(BeFalse())
				began := time.Now()
				f.awaitLeader()
				f.Expect(time.Since(began) + interval).To(BeNumerically("<=", ttl*5/2))
			})
		})
	}
}

// One record must not have every winner stand down for an hour.
func TestEndlessLeaseDelaysNobodyForLongerThanALease(t *testing.T) {
	forEachSource(t, func(f *fleet, candidate newCandidate) {
		candidate("a").start()
		after(interval)
		candidate("b").start()
		after(interval)
		f.overwrite(f.changed(map[string]any{"name": "evil", "instance": "evil", "attempt": "evil.1", "lease_ms": 3_600_000, "stand_down_ms": 3_600_000, "commitment": "AAAAAAAAAAAAAAAAAAAAAQ"}), f.revision())
		began := time.Now()
		after(interval)
		f.awaitLeader()
		f.Expect(time.Since(began)).To(BeNumerically("<=", ttl*5/2))
	})
}

// awaitLeader returns when a candidate of the test leads. It reads the key, and so seldom: a read takes longer than all else that happens meanwhile.
func (f *fleet) awaitLeader() {
	for began := time.Now(); time.Since(began) < time.Hour; after(100 * time.Millisecond) {
		if r := f.record(); strings.Contains(r, `"term":`) && !strings.Contains(r, `"released"`) && !strings.Contains(r, "evil") {
			return
		}
	}
}

// A server that is killed republishes nothing of what it stored last.
func TestReleaseWhoseNotificationIsLostIsFoundWhenARenewalIsOverdue(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a, b := f.leaderAndFollower()
		after(interval)
		b.link.LoseReplies(func(m faultproxy.Message) bool { return strings.HasPrefix(m.Subject, "election.") })
		renewed := time.Now()
		a.shutdown()
		for !b.IsLeader() && time.Since(renewed) < time.Hour {
			after(10 * time.Millisecond)
		}
		f.Expect(time.Since(renewed)).To(BeNumerically("<=", interval+(ttl-interval)/2+expirySpread+100*time.Millisecond))
	}, republished)
}

// The target of a transfer may end just when the key is released to it. Then the key is anybody's soon, also its former leader's.
func TestReleaseToATargetThatIsGoneIsAnybodysSoon(t *testing.T) {
	for _, others := range []int{0, 1} {
		t.Run(fmt.Sprint(others, " others"), func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				a, all := f.leaderWith([]string{"b", "c"}[:1+others]...)
				a.link.OnRequest(func(m faultproxy.Message) {
					if strings.Contains(string(m.Payload), `"released"`) {
						all["b"].link.Cut()
					}
				})
				began := time.Now()
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				go func() { _ = a.Transfer(ctx, "b") }()
				after(100 * time.Millisecond)
				f.Expect(a.IsLeader()).To(BeFalse())
				for !a.IsLeader() && (others == 0 || !all["c"].IsLeader()) && time.Since(began) < time.Hour {
					after(10 * time.Millisecond)
				}
				f.Expect(time.Since(began)).To(BeNumerically("<", 1200*time.Millisecond))
			}, republished)
		})
	}
}
