package look

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/admin"
	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/observe"
)

// findingsOf returns the codes of the findings for candidates that renew as the leaders do: of one key, and of all.
func findingsOf(f *fleettest.Fleet) (codes []string) {
	f.Helper()
	v := viewOf(f)
	var err error
	v.Observer, err = observe.New(v.Bucket)
	f.Expect(err).NotTo(HaveOccurred())
	v.Client = &cli.Client{Timeout: time.Second}
	for _, key := range []string{"", fleettest.Key} {
		findings, err := v.Findings(context.Background(), admin.RoleObserver, key, nil)
		f.Expect(err).NotTo(HaveOccurred())
		for _, found := range findings {
			codes = append(codes, found.Code)
		}
	}
	return codes
}

func TestFindingsDoNotDependOnAnIntervalThatNoLeaderCanHave(t *testing.T) {
	for name, value := range map[string]string{
		"that is too short":            `{"name":"a","instance":"a","attempt":"a","term":1,"interval_ms":1}`,
		"that leaves no room":          `{"name":"a","instance":"a","attempt":"a","term":1,"interval_ms":9900}`,
		"of a TTL that was longer":     `{"name":"a","instance":"a","attempt":"a","term":1,"interval_ms":60000}`,
		"that is as long as any lease": `{"name":"a","instance":"a","attempt":"a","term":1,"interval_ms":3600000}`,
	} {
		t.Run(name, func(t *testing.T) {
			fleettest.Run(t, func(f *fleettest.Fleet) {
				f.Write(value)
				f.Expect(findingsOf(f)).To(And(ContainElement("expect-outage"), Not(ContainElement("options-unfit"))))
			}, fleettest.Republished)
		})
	}
}

func TestFindingsNameAMissingTTLThoughSomebodyHoldsAKey(t *testing.T) {
	for name, value := range map[string]string{
		"by a bare name": "web-1",
		"by a record":    `{"name":"a","instance":"a","attempt":"a","term":1,"interval_ms":5000}`,
	} {
		t.Run(name, func(t *testing.T) {
			fleettest.Run(t, func(f *fleettest.Fleet) {
				f.Write(value)
				f.Expect(findingsOf(f)).To(ContainElement("no-ttl"))
			}, func(cfg *jetstream.KeyValueConfig) { cfg.TTL = 0 })
		})
	}
}
