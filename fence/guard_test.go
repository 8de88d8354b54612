package fence_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/fence"
)

func token(bucket time.Time, number uint64) string {
	return election.Term{Bucket: bucket, Number: number}.Token()
}

func TestGuardRefusesTokensOlderThanOneItHasSeen(t *testing.T) {
	g := NewWithT(t)
	old, later := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	var guard fence.Guard
	g.Expect(guard.Highest()).To(BeEmpty())
	g.Expect(guard.Admit(token(old, 9))).To(Succeed())
	g.Expect(guard.Admit(token(old, 9))).To(Succeed())
	g.Expect(guard.Admit(token(old, 16))).To(Succeed())
	g.Expect(guard.Admit(token(old, 9))).To(MatchError(fence.ErrFenced))
	g.Expect(guard.Admit(token(later, 1))).To(Succeed(), "the bucket was made again")
	g.Expect(guard.Admit(token(old, 17))).To(MatchError(fence.ErrFenced))
	g.Expect(guard.Highest()).To(Equal(token(later, 1)))
}

func TestGuardTakesNothingThatIsNoToken(t *testing.T) {
	g := NewWithT(t)
	good := token(time.Unix(1, 0), 7)
	var guard fence.Guard
	g.Expect(guard.Admit(good)).To(Succeed())
	for _, bad := range []string{
		"", "-", "7", "zzzz", good + " ", " " + good, strings.ToUpper(token(time.Unix(1, 0), 10)), good[:32], good + "0",
		strings.ReplaceAll(good, "-", "_"), strings.Repeat("f", 16) + "-" + strings.Repeat("g", 16), strings.Repeat("f", 33),
		token(time.Time{}, 0), token(time.Unix(2, 0), 0), strings.Repeat("\xff", 1000),
	} {
		err := guard.Admit(bad)
		g.Expect(err).To(MatchError(fence.ErrInvalidToken), "%q", bad)
		g.Expect(len(err.Error())).To(BeNumerically("<", 600))
	}
	g.Expect(guard.Highest()).To(Equal(good))
}

func TestGuardNeverGoesBackAmongMany(t *testing.T) {
	g := NewWithT(t)
	var guard fence.Guard
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 2000 {
				before, mine := guard.Highest(), token(time.Unix(1, 0), 1+rand.Uint64N(1<<20))
				err := guard.Admit(mine)
				if err == nil && mine < before {
					t.Errorf("%s was let pass after %s", mine, before)
				}
				if now := guard.Highest(); now < before || now < mine && err == nil {
					t.Errorf("%s went back to %s", before, now)
				}
			}
		})
	}
	all.Wait()
	g.Expect(guard.Highest()).NotTo(BeEmpty())
}

func FuzzGuard(f *testing.F) {
	f.Add("")
	f.Add(token(time.Unix(1, 0), 7))
	f.Add("0000000000000000-0000000000000000")
	f.Fuzz(func(t *testing.T, text string) {
		var guard fence.Guard
		if guard.Admit(text) != nil {
			if guard.Highest() != "" {
				t.Errorf("%q was refused, and remembered", text)
			}
			return
		}
		var bucket, number uint64
		if _, err := fmt.Sscanf(text, "%016x-%016x", &bucket, &number); err != nil || number == 0 || fmt.Sprintf("%016x-%016x", bucket, number) != text {
			t.Errorf("%q was let pass, and is no token", text)
		}
	})
}
