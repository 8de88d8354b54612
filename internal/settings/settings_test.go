package settings_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/settings"
)

func TestNoIntervalIsShortWhereCandidatesOfChoriaMayCampaign(t *testing.T) {
	const ttl = 15 * time.Second
	ours, shared := kv.Info{TTL: ttl, MarkerTTL: time.Second}, kv.Info{TTL: ttl}
	interval := func(d time.Duration) func(*settings.Options) {
		return func(o *settings.Options) { o.Interval = &d }
	}
	plain := func(o *settings.Options) { o.PlainValue = true }
	for name, c := range map[string]struct {
		bucket kv.Info
		opts   []func(*settings.Options)
		want   time.Duration
	}{
		"an election of the library":               {ours, nil, 11250 * time.Millisecond},
		"one of connect or the command":            {ours, []func(*settings.Options){settings.ShortInterval}, 3750 * time.Millisecond},
		"one with an interval, given before":       {ours, []func(*settings.Options){interval(time.Second), settings.ShortInterval}, time.Second},
		"one with an interval, given afterwards":   {ours, []func(*settings.Options){settings.ShortInterval, interval(time.Second)}, time.Second},
		"one that writes bare names":               {ours, []func(*settings.Options){settings.ShortInterval, plain}, 11250 * time.Millisecond},
		"one in a bucket that announces no expiry": {shared, []func(*settings.Options){settings.ShortInterval}, 11250 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			o := &settings.Options{}
			for _, opt := range c.opts {
				opt(o)
			}
			got, err := o.TimingIn(c.bucket)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(got.Interval).To(Equal(c.want))
			g.Expect(got.StandDown).To(Equal(c.want))
		})
	}
}
