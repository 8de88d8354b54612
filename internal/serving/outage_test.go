package serving

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/faultproxy"
	"github.com/natscampaign/election/internal/fleettest"
	"github.com/natscampaign/election/internal/natstest"
)

// following returns a page that observes the bucket of a fleet over a link.
func following(f *fleettest.Fleet) (*statusPage, *faultproxy.Link) {
	link := f.Server.Link(f.T)
	nc := natstest.Connect(f.T, link)
	js, err := jetstream.New(nc)
	f.Expect(err).NotTo(HaveOccurred())
	p := newBucketPage("", nil, slog.New(slog.DiscardHandler))
	f.Cleanup(p.Stop)
	p.Follow(context.Background(), &cli.Client{Conn: nc, JetStream: js, Timeout: 5 * time.Second}, f.Open(nc), nil)
	return p, link
}

func TestStandbysAreKnownSoonAfterAnOutage(t *testing.T) {
	for _, c := range []struct{ down, later time.Duration }{
		{4 * time.Second, 0}, {9 * time.Second, 0}, {9 * time.Second, 4 * time.Second}, {30 * time.Second, 0}, {30 * time.Second, 6 * time.Second},
	} {
		t.Run(fmt.Sprintf("of %v, and candidates are back %v later", c.down, c.later), func(t *testing.T) {
			fleettest.Run(t, func(f *fleettest.Fleet) {
				a := f.Connected("a").Begin()
				fleettest.After(fleettest.Interval)
				b := f.Connected("b").Begin()
				p, link := following(f)
				leader, unknown := "", time.Duration(0)
				watch := func(d time.Duration, most time.Duration) {
					const step = 200 * time.Millisecond
					for range d / step {
						list, _ := p.list(context.Background(), 0, false)
						if len(list.Rows) == 1 {
							r := list.Rows[0]
							if unknown += step; r.Leader != leader || r.Leader == "" || r.Standbys != "" {
								leader, unknown = r.Leader, 0
							}
							f.Expect(unknown).To(BeNumerically("<=", most), "%s: standbys of %s are not known", r.State, r.Leader)
						}
						time.Sleep(step)
					}
				}
				watch(20*time.Second, time.Second)
				for _, l := range []*faultproxy.Link{a.Link, b.Link, link} {
					l.Disconnect() // as a server does that restarts
					l.Cut()
				}
				watch(c.down, 0)
				link.Heal()
				watch(c.later, 0)
				a.Link.Heal()
				b.Link.Heal()
				watch(time.Minute, 4*time.Second)
				f.Expect(unknown).To(BeZero())
			}, fleettest.Republished)
		})
	}
}
