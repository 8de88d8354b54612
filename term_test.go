package election_test

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/fence"
	clocks "github.com/natscampaign/election/internal/lease"
	"github.com/natscampaign/election/internal/settings"
	. "github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/natstest"
)

func TestLaterTermHasAGreaterToken(t *testing.T) {
	bucket := time.Unix(1_700_000_000, 0)
	earlier := election.Term{BucketCreated: bucket, Number: 9}
	for _, later := range []election.Term{
		{BucketCreated: bucket, Number: 10},
		{BucketCreated: bucket, Number: 1 << 40},
		{BucketCreated: bucket.Add(1), Number: 1},
	} {
		g := NewWithT(t)
		g.Expect(later.Compare(earlier)).To(Equal(1))
		g.Expect(earlier.Compare(later)).To(Equal(-1))
		g.Expect(later.Compare(later)).To(Equal(0))
		g.Expect(later.Token() > earlier.Token()).To(BeTrue())
	}
}

// The leaders of this test have led for 10 minutes of an hour, or for nearly an hour.
func TestFencedHandleIsOpenWhileItsTermIsValid(t *testing.T) {
	natstest.SkipIfShort(t)
	if _, ok := clocks.SinceBoot(); !ok {
		t.Skip("no clock here counts suspension")
	}
	s := natstest.Start(t)
	js, err := jetstream.New(s.Connect(t))
	g := NewWithT(t)
	g.Expect(err).NotTo(HaveOccurred())
	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}, Storage: jetstream.MemoryStorage})
	g.Expect(err).NotTo(HaveOccurred())
	const led, most = 10 * time.Minute, time.Hour - 40*time.Millisecond
	for _, c := range []struct {
		name             string
		mono, wall, boot time.Duration
		valid            bool
	}{
		{"nothing happened", led, led, led, true},
		{"the wall clock was stepped forward", led, 24 * time.Hour, led, true},
		{"the wall clock was stepped back", led, -24 * time.Hour, led, true},
		{"suspended", led, 70 * time.Minute, 70 * time.Minute, false},
		{"suspended while the wall clock was set back", led, led + time.Minute, 70 * time.Minute, false},
		{"suspended for a moment at the end", most, time.Hour + 5*time.Millisecond, time.Hour + 5*time.Millisecond, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := NewWithT(t)
			term, ok := runningLeader(t, false).Term()
			g.Expect(ok).To(BeTrue())
			handle, err := fence.OpenStream(context.Background(), js, "ORDERS", "orders.epoch."+t.Name(), term)
			g.Expect(err).NotTo(HaveOccurred())
			election.AgeLease(term, c.mono, c.wall, c.boot)
			_, err = handle.Publish(context.Background(), "orders.done", nil)
			g.Expect(term.Valid()).To(Equal(c.valid))
			if c.valid {
				g.Expect(err).NotTo(HaveOccurred())
			} else {
				g.Expect(err).To(MatchError(fence.ErrFenced))
			}
		})
	}
}

// Timers stand still while a machine is suspended: those of this leader, whose interval is a quarter of an hour, had long to run.
func TestWorkEndsWithinASecondOfASuspensionThatOutlastedTheLease(t *testing.T) {
	if _, ok := clocks.SinceBoot(); !ok {
		t.Skip("no clock here counts suspension")
	}
	Run(t, func(f *Fleet) {
		f.Remake(time.Hour)
		var work context.Context
		a := f.Candidate("a", settings.ShortInterval, election.WithStandDown(0), election.WithSplay(0)).BeginRun(func(ctx context.Context, _ election.Term) error {
			work = ctx
			<-ctx.Done()
			return nil
		})
		After(time.Minute)
		term, leads := a.Term()
		f.Expect(leads && work.Err() == nil).To(BeTrue())
		election.AgeLease(term, 10*time.Minute, 70*time.Minute, 70*time.Minute)
		After(1100 * time.Millisecond)
		f.Expect(work.Err()).To(HaveOccurred())
		f.Expect(a.Seen()).To(HaveLen(2), "OnWon and OnLost")
	})
}
