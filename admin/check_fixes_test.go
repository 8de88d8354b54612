package admin_test

import (
	"regexp"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/admin"
	"github.com/natscampaign/election/internal/test/fleettest"
)

// Each case follows, to the letter, the fix of a finding about the connection, or about how the bucket was opened. cmd/election-cli follows all others.
func TestFixesOfTheConnectionAreOptionsThatEndTheTrouble(t *testing.T) {
	options := map[string]func(argument string) nats.Option{
		"ReconnectBufSize(-1)":   func(string) nats.Option { return nats.ReconnectBufSize(-1) },
		"MaxReconnects(-1)":      func(string) nats.Option { return nats.MaxReconnects(-1) },
		"IgnoreAuthErrorAbort()": func(string) nats.Option { return nats.IgnoreAuthErrorAbort() },
		"PingInterval": func(argument string) nats.Option {
			interval, _ := time.ParseDuration(argument)
			return nats.PingInterval(interval)
		},
	}
	named := regexp.MustCompile(`with (?:nats\.NoReconnect, and with )?nats\.((\w+)\(([^)]*)\))`)
	for name, c := range map[string]struct {
		code    string
		trouble nats.Option
		says    []string
	}{
		"a buffer":        {"reconnect-buffer", nats.ReconnectBufSize(1 << 20), []string{"1048576 bytes"}},
		"few attempts":    {"reconnects-limited", nats.MaxReconnects(60), []string{"60 attempts"}},
		"refused twice":   {"reconnects-limited", func(o *nats.Options) error { o.IgnoreAuthErrorAbort = false; return nil }, []string{"nats.IgnoreAuthErrorAbort()"}},
		"no reconnection": {"reconnects-limited", nats.NoReconnect(), []string{"does not reconnect"}},
		"no pings":        {"ping-interval", nats.PingInterval(0), nil},
		"pings that come too late": {"ping-interval", nats.PingInterval(nats.DefaultPingInterval),
			[]string{"every 2m0s", "after up to 6m0s", "TTL is 10s", "nats.PingInterval(1.7s)"}},
	} {
		t.Run(name, func(t *testing.T) {
			fleettest.Run(t, func(f *fleet) {
				_, bucket := connected(f, c.trouble)
				found := check(f, reporting{bucket, onFile})
				f.Expect(found.problems()).To(Equal([]string{c.code}))
				fix := found[c.code].Fix
				for _, text := range c.says {
					f.Expect(found[c.code].Message + ". " + fix).To(ContainSubstring(text))
				}
				m := named.FindStringSubmatch(fix)
				f.Expect(m).NotTo(BeNil(), fix)
				option := options[m[1]]
				if option == nil {
					option = options[m[2]]
				}
				f.Expect(option).NotTo(BeNil(), fix)
				all := []nats.Option{c.trouble, option(m[3])}
				if name == "no reconnection" { // "connect without nats.NoReconnect"
					all = all[1:]
				}
				_, bucket = connected(f, all...)
				f.Expect(check(f, reporting{bucket, onFile}).problems()).To(BeEmpty())
			}, republished)
		})
	}
	t.Run("pings as those of connect.Connect", func(t *testing.T) {
		fleettest.Run(t, func(f *fleet) {
			_, bucket := connected(f, nats.PingInterval(10*time.Second))
			f.Expect(check(f, reporting{bucket, onFile}).problems()).To(BeEmpty())
		}, republished)
	})
	for code, bucket := range map[string]func(f *fleet) jetstream.KeyValue{
		"republish-unused": func(f *fleet) jetstream.KeyValue { return f.Bucket },
		"not-inspected":    func(f *fleet) jetstream.KeyValue { return reporting{f.Bucket, nil} },
	} {
		t.Run(code, func(t *testing.T) {
			fleettest.Run(t, func(f *fleet) {
				found := check(f, bucket(f))[code]
				f.Expect(found.Severity).To(Equal(admin.SeverityInfo))
				f.Expect(found.Fix).To(ContainSubstring("OpenBucket"))
				f.Expect(check(f, f.Open(f.Server.Connect(f.T)))).NotTo(HaveKey(code))
			}, republished)
		})
	}
}
