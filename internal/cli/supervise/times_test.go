package supervise

import (
	"testing"
	"time"

	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/timing"
	. "github.com/onsi/gomega"
)

// bucketOf returns what is known of a bucket with the given TTL.
func bucketOf(ttl time.Duration) kv.Info { return kv.Info{TTL: ttl, MarkerTTL: time.Second} }

func TestGraceLeavesTimeToRetryARenewalAndToKillTheProgram(t *testing.T) {
	g := NewWithT(t)
	for _, ttl := range []time.Duration{time.Second, 2 * time.Second, 3 * time.Second, 5 * time.Second, 15 * time.Second, 30 * time.Second, time.Minute, time.Hour} {
		for _, share := range []float64{0, 0.1, 0.25, 0.5, 0.75} {
			r := &Config{}
			if share > 0 {
				r.Interval = new(time.Duration(float64(ttl) * share))
			}
			byDefault, err := r.divideLease(bucketOf(ttl))
			g.Expect(err).NotTo(HaveOccurred())
			room := ttl - byDefault.margin - byDefault.interval
			g.Expect(room-byDefault.grace-byDefault.killTime).To(BeNumerically(">=", min(room/2, maxRetryTime)), "time to retry a renewal, TTL %v", ttl)
			g.Expect(byDefault.grace).To(BeNumerically(">", 0))
			g.Expect(byDefault.grace).To(BeNumerically("<=", maxDefaultGrace))
			g.Expect(byDefault.killTime).To(BeNumerically(">=", minKillTime))
			r.Grace, r.GraceSet = byDefault.grace, true
			g.Expect(r.divideLease(bucketOf(ttl))).To(Equal(byDefault))
			r.Grace = room
			_, err = r.divideLease(bucketOf(ttl))
			g.Expect(err).To(MatchError(ContainSubstring("--grace")), "TTL %v", ttl)
			g.Expect(err).NotTo(MatchError(MatchRegexp(`every \S*\.\d{4}`)), "it is rounded")
		}
	}
}

func TestLeaseIsDividedAsTheDocumentationSays(t *testing.T) {
	g := NewWithT(t)
	for interval, want := range map[*time.Duration]leaseTimes{
		nil:                           {15 * time.Second, 1500 * time.Millisecond, 3750 * time.Millisecond, 1250 * time.Millisecond, 500 * time.Millisecond},
		new(11250 * time.Millisecond): {15 * time.Second, 1500 * time.Millisecond, 11250 * time.Millisecond, 625 * time.Millisecond, 500 * time.Millisecond},
	} {
		r := &Config{Interval: interval}
		g.Expect(r.divideLease(bucketOf(timing.DefaultTTL))).To(Equal(want))
	}
}

func TestRenewalsComeLaterWhereCandidatesOfChoriaMayCampaign(t *testing.T) {
	g := NewWithT(t)
	r := &Config{}
	bucket := bucketOf(timing.DefaultTTL)
	g.Expect(r.intervalIn(bucket, bucket.TTL)).To(Equal(3750 * time.Millisecond))
	bucket.MarkerTTL = 0
	g.Expect(r.intervalIn(bucket, bucket.TTL)).To(Equal(11250 * time.Millisecond))
}

func TestRunOutlastsTheCrashOfAServerByDefault(t *testing.T) {
	g := NewWithT(t)
	times, err := (&Config{}).divideLease(bucketOf(timing.DefaultTTL))
	g.Expect(err).NotTo(HaveOccurred())
	const election = 6500 * time.Millisecond // of a leader of the stream, as measured
	g.Expect(times.ttl - times.margin - times.interval - times.grace - times.killTime).To(BeNumerically(">", election))
}

func TestNoBucketIsSuggestedForAGraceThatFitsNone(t *testing.T) {
	g := NewWithT(t)
	for _, grace := range []time.Duration{time.Hour, 50 * time.Minute, 100 * time.Hour} {
		_, err := (&Config{Grace: grace, GraceSet: true}).divideLease(bucketOf(timing.DefaultTTL))
		g.Expect(err).To(MatchError(HaveSuffix("; give a --grace of at most 6.25s")))
	}
	_, err := (&Config{Grace: 6250 * time.Millisecond, GraceSet: true}).divideLease(bucketOf(timing.DefaultTTL)) // as suggested
	g.Expect(err).NotTo(HaveOccurred())
}

func TestSuggestionsForAGraceThatDoesNotFitAreAccepted(t *testing.T) {
	g := NewWithT(t)
	for _, ttl := range []time.Duration{2 * time.Second, 5 * time.Second, 30 * time.Second, 10 * time.Minute} {
		for _, grace := range []time.Duration{150 * time.Millisecond, time.Second, 1200 * time.Millisecond, 4 * time.Second, 20 * time.Second, 3 * time.Minute} {
			r := &Config{Grace: grace, GraceSet: true}
			if _, err := r.divideLease(bucketOf(ttl)); err == nil {
				continue
			}
			longer, ok := r.ttlWithRoom(roomForGrace(grace), bucketOf(ttl))
			g.Expect(ok).To(BeTrue())
			_, err := r.divideLease(bucketOf(longer))
			g.Expect(err).NotTo(HaveOccurred(), "grace %v", grace)
			if interval := ttl - timing.DefaultMargin(ttl) - roomForGrace(grace); interval > 10*time.Millisecond {
				r.Interval = &interval
				_, err = r.divideLease(bucketOf(ttl))
				g.Expect(err).NotTo(HaveOccurred(), "grace %v", grace)
			}
		}
	}
}
