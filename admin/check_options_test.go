package admin_test

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/admin"
	"github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/natstest"
)

func TestCheckRefusesWhatStartRefuses(t *testing.T) {
	natstest.SkipIfShort(t)
	for name, change := range map[string]func(*jetstream.KeyValueConfig){
		"fit": withoutMarkers, "history": func(cfg *jetstream.KeyValueConfig) { cfg.History = 2 },
		"no TTL": func(cfg *jetstream.KeyValueConfig) { cfg.TTL = 0 }, "short": func(cfg *jetstream.KeyValueConfig) { cfg.TTL = time.Second - 1 },
		"shortest": func(cfg *jetstream.KeyValueConfig) { cfg.TTL = time.Second }, "longest": func(cfg *jetstream.KeyValueConfig) { cfg.TTL = time.Hour },
		"long": func(cfg *jetstream.KeyValueConfig) { cfg.TTL = time.Hour + 1 },
	} {
		for _, opt := range []election.Option{
			election.WithCampaignInterval(9700 * time.Millisecond), election.WithCampaignInterval(9701 * time.Millisecond),
			election.WithLeaseMargin(ttl / 2), election.WithSplay(0),
		} {
			t.Run(name, func(t *testing.T) {
				fleettest.Run(t, func(f *fleet) {
					refused := false
					for _, code := range []string{"no-ttl", "ttl-out-of-range", "history", "options-unfit"} {
						_, found := check(f, f.Bucket, opt)[code]
						refused = refused || found
					}
					ctx, cancel := context.WithTimeout(ctx, time.Millisecond)
					defer cancel()
					f.Expect(refused).To(Equal(f.Candidate("a", opt).Start(ctx) != nil))
				}, change)
			})
		}
	}
}

func TestCheckNamesTheOptionThatDoesNotFit(t *testing.T) {
	fleettest.Run(t, func(f *fleet) {
		found := check(f, f.Bucket, election.WithCampaignInterval(ttl))
		f.Expect(found["options-unfit"].Severity).To(Equal(admin.SeverityCritical))
		f.Expect(found["options-unfit"].Message).To(HavePrefix("with the bucket's TTL of 10s"))
		f.Expect(found).NotTo(HaveKey("expect-crash"))
	})
}
