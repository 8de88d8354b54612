package trust_test

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
	. "github.com/natscampaign/election/internal/test/fleettest"
)

// Somebody who may write the key, and have notifications delivered, knows what will be stored before it is.

// changed returns the record under the key with some fields changed.
func changed(f *Fleet, fields map[string]any) string {
	var r map[string]any
	f.Expect(json.Unmarshal([]byte(f.Record()), &r)).To(Succeed())
	for name, value := range fields {
		r[name] = value
	}
	text, err := json.Marshal(r)
	f.Expect(err).NotTo(HaveOccurred())
	return string(text)
}

// copied returns the record under the key, byte for byte but for the id of its attempt.
func copied(f *Fleet, attempt string) string {
	before, rest, _ := strings.Cut(f.Record(), `"attempt":"`)
	_, after, _ := strings.Cut(rest, `"`)
	return before + `"attempt":"` + attempt + `"` + after
}

// overwrite writes the key over a revision.
func overwrite(f *Fleet, value string, over uint64) (revision uint64) {
	revision, err := f.Bucket.Update(context.Background(), Key, []byte(value), over)
	f.Expect(err).NotTo(HaveOccurred())
	return revision
}

// neverBoth lets time pass, and expects that only one of two candidates leads at any time.
func neverBoth(f *Fleet, a, b *Candidate, d time.Duration) {
	f.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); After(5 * time.Millisecond) {
		f.Expect(a.IsLeader() && b.IsLeader()).To(BeFalse(), "two leaders, %v before the end", time.Until(end))
	}
}

func TestWriteThatIsAnnouncedBeforeItIsMadeMakesNoSecondLeader(t *testing.T) {
	for name, hidden := range map[string]bool{"all renewals are notified": false, "renewals are lost without a sign": true} {
		t.Run(name, func(t *testing.T) {
			Run(t, func(f *Fleet) {
				a, b := f.LeaderAndFollower(f.Connected)
				announced := copied(f, "announced")
				at := f.Revision() + 2 // after one renewal
				f.Forger().Publish(at, announced)
				After(Instant)
				if hidden {
					b.Link.LoseReplies(func(m faultproxy.Message) bool {
						return strings.HasPrefix(m.Subject, "election.") && !strings.Contains(string(m.Payload), "announced")
					})
				}
				f.AwaitWrite()
				After(200 * time.Millisecond)
				a.Link.Cut()
				f.Expect(overwrite(f, copied(f, "announced"), f.Revision())).To(Equal(at))
				neverBoth(f, a, b, 2*TTL)
				After(TTL)
				f.Expect(b.IsLeader()).To(BeTrue())
			}, Republished)
		})
	}
}

func TestNotificationFromTheFutureMakesNoSecondLeader(t *testing.T) {
	Run(t, func(f *Fleet) {
		a, b := f.LeaderAndFollower(f.Connected)
		f.Forger().Publish(1_000_000, copied(f, "forged"))
		f.AwaitWrite()
		After(200 * time.Millisecond)
		a.Link.Cut()
		var secret [16]byte
		secret[0] = 7
		hash := sha256.Sum256(secret[:])
		own := map[string]any{"name": "evil", "instance": "evil", "attempt": "evil.1", "since": time.Now(), "won": "released", "commitment": base64.RawURLEncoding.EncodeToString(hash[:16])}
		revision := overwrite(f, changed(f, own), f.Revision())
		After(100 * time.Millisecond)
		overwrite(f, changed(f, map[string]any{
			"attempt": "evil.2", "released": time.Now(), "secret": base64.RawURLEncoding.EncodeToString(secret[:]), "successors": []string{"b"}, "head_start_ms": 25,
		}), revision)
		neverBoth(f, a, b, 2*TTL)
		f.Expect(b.IsLeader()).To(BeTrue())
	}, Republished)
}

func TestRecordThatNeverExpiresIsWrittenOver(t *testing.T) {
	for name, value := range map[string]func(f *Fleet) string{
		"a bare name": func(*Fleet) string { return "x" },
		"a record":    func(f *Fleet) string { return changed(f, map[string]any{"name": "evil", "instance": "evil"}) },
		"other data":  func(*Fleet) string { return `{"x":1}` },
		"nothing":     func(*Fleet) string { return "" },
	} {
		t.Run(name, func(t *testing.T) {
			ForEachSource(t, func(f *Fleet, candidate NewCandidate) {
				a := candidate("a").Begin()
				After(Interval)
				candidate("b").Begin()
				After(Interval)
				m := nats.NewMsg(f.Bucket.(interface{ Bucket() string }).Bucket())
				m.Subject = "$KV." + m.Subject + "." + Key
				m.Header.Set(jetstream.MsgTTLHeader, "never")
				m.Data = []byte(value(f))
				js := f.JetStream()
				_, err := js.PublishMsg(context.Background(), m)
				f.Expect(err).NotTo(HaveOccurred())
				After(Interval) // the leader learns of it by its next renewal
				f.Expect(a.IsLeader()).To(BeFalse())
				began := time.Now()
				awaitLeader(f)
				f.Expect(time.Since(began) + Interval).To(BeNumerically("<=", TTL*5/2))
			})
		})
	}
}

// One record must not have every winner stand down for an hour.
func TestEndlessLeaseDelaysNobodyForLongerThanALease(t *testing.T) {
	ForEachSource(t, func(f *Fleet, candidate NewCandidate) {
		candidate("a").Begin()
		After(Interval)
		candidate("b").Begin()
		After(Interval)
		overwrite(f, changed(f, map[string]any{"name": "evil", "instance": "evil", "attempt": "evil.1", "lease_ms": 3_600_000, "stand_down_ms": 3_600_000, "commitment": "AAAAAAAAAAAAAAAAAAAAAQ"}), f.Revision())
		began := time.Now()
		After(Interval)
		awaitLeader(f)
		f.Expect(time.Since(began)).To(BeNumerically("<=", TTL*5/2))
	})
}

// awaitLeader returns when a candidate of the test leads. It reads the key, and so seldom: a read takes longer than all else that happens meanwhile.
func awaitLeader(f *Fleet) {
	for began := time.Now(); time.Since(began) < time.Hour; After(100 * time.Millisecond) {
		if r := f.Record(); strings.Contains(r, `"term":`) && !strings.Contains(r, `"released"`) && !strings.Contains(r, "evil") {
			return
		}
	}
}

// A server that is killed republishes nothing of what it stored last.
func TestReleaseWhoseNotificationIsLostIsFoundWhenARenewalIsOverdue(t *testing.T) {
	Run(t, func(f *Fleet) {
		a, b := f.LeaderAndFollower(f.Connected)
		After(Interval)
		b.Link.LoseReplies(func(m faultproxy.Message) bool { return strings.HasPrefix(m.Subject, "election.") })
		renewed := time.Now()
		a.End()
		for !b.IsLeader() && time.Since(renewed) < time.Hour {
			After(10 * time.Millisecond)
		}
		f.Expect(time.Since(renewed)).To(BeNumerically("<=", Interval+(TTL-Interval)/2+ExpirySpread+100*time.Millisecond))
	}, Republished)
}

// The target of a transfer may end just when the key is released to it. Then the key is anybody's soon, also its former leader's.
func TestReleaseToATargetThatIsGoneIsAnybodysSoon(t *testing.T) {
	for _, others := range []int{0, 1} {
		t.Run(fmt.Sprint(others, " others"), func(t *testing.T) {
			Run(t, func(f *Fleet) {
				a, all := f.LeaderWith([]string{"b", "c"}[:1+others]...)
				a.Link.OnRequest(func(m faultproxy.Message) {
					if strings.Contains(string(m.Payload), `"released"`) {
						all["b"].Link.Cut()
					}
				})
				began := time.Now()
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				go func() { _ = a.Transfer(ctx, "b") }()
				After(100 * time.Millisecond)
				f.Expect(a.IsLeader()).To(BeFalse())
				for !a.IsLeader() && (others == 0 || !all["c"].IsLeader()) && time.Since(began) < time.Hour {
					After(10 * time.Millisecond)
				}
				f.Expect(time.Since(began)).To(BeNumerically("<", 1200*time.Millisecond))
			}, Republished)
		})
	}
}
