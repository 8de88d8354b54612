package look

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/observe"
)

func TestLeaderThatHasNotRenewedInTimeIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		var logged bytes.Buffer
		o := &Overdue{TTL: 15 * time.Second, Log: slog.New(slog.NewTextHandler(&logged, nil))}
		event := func(kind observe.EventKind, key string) {
			o.Follow(observe.Event{Kind: kind, Key: key, Leader: election.Leader{Name: "web-1", Interval: 5 * time.Second}})
		}
		wait := func(d time.Duration) {
			for end := time.Now().Add(d); time.Now().Before(end); {
				time.Sleep(OverdueInterval)
				o.Report()
			}
		}
		event(observe.Leading, "dies")
		event(observe.Leading, "stops")
		event(observe.Leading, "renews")
		for range 4 {
			wait(5 * time.Second)
			event(observe.Renewed, "renews")
			event(observe.Released, "stops")
		}
		g.Expect(strings.Count(logged.String(), "Leader has not renewed")).To(Equal(1), logged.String())
		g.Expect(logged.String()).To(ContainSubstring("election=dies leader=web-1 since=10s expires-in=5s"))
		event(observe.Expired, "dies")
		event(observe.Leading, "dies")
		wait(11 * time.Second)
		g.Expect(strings.Count(logged.String(), "election=dies")).To(Equal(2), "of the next leader again")
	})
}
