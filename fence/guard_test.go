package fence_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/natscampaign/election/internal/test/natstest"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/fence"
)

func token(bucket time.Time, number uint64) string {
	return election.Term{BucketCreated: bucket, Number: number}.Token()
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

func TestGuardAdmitsNothingThatCannotBeKept(t *testing.T) {
	g := NewWithT(t)
	one, two, three := token(time.Unix(1, 0), 1), token(time.Unix(1, 0), 2), token(time.Unix(1, 0), 3)
	var kept []string
	full := errors.New("disk full")
	guard := fence.Guard{Keep: func(token string) error {
		if token == two {
			return full
		}
		kept = append(kept, token)
		return nil
	}}
	g.Expect(guard.Admit(one)).To(Succeed())
	g.Expect(guard.Admit(two)).To(MatchError(full))
	g.Expect(guard.Do(two, func() error { panic("called") })).To(MatchError(full))
	g.Expect(guard.Highest()).To(Equal(one))
	g.Expect(guard.Admit(one)).To(Succeed())
	g.Expect(guard.Admit(three)).To(Succeed())
	g.Expect(guard.Admit(two)).To(MatchError(fence.ErrFenced))
	g.Expect(kept).To(Equal([]string{one, three}))
}

func TestEffectsOfTwoTermsNeverMix(t *testing.T) {
	natstest.SkipIfShort(t)
	g := NewWithT(t)
	old, newer := token(time.Unix(1, 0), 1), token(time.Unix(1, 0), 2)
	var guard fence.Guard
	begun, done := make(chan string, 10), make(chan error, 10)
	do := func(token string) (end chan struct{}) {
		end = make(chan struct{})
		go func() {
			done <- guard.Do(token, func() error {
				begun <- token
				<-end
				return nil
			})
		}()
		return end
	}
	first := do(old)
	g.Eventually(begun).Should(Receive(Equal(old)))
	second := do(old)
	g.Eventually(begun).Should(Receive(Equal(old)), "beside the first")

	third, fourth := do(newer), do(newer)
	g.Eventually(guard.Highest).Should(Equal(newer))
	do(old)
	g.Eventually(done).Should(Receive(MatchError(fence.ErrFenced)), "at once, though the newer effects wait")
	close(first)
	g.Eventually(done).Should(Receive(BeNil()))
	g.Consistently(begun, "50ms").ShouldNot(Receive(), "an effect of the old term is still under way")
	close(second)
	g.Eventually(done).Should(Receive(BeNil()))
	g.Eventually(begun).Should(Receive(Equal(newer)))
	g.Eventually(begun).Should(Receive(Equal(newer)), "neither waits for the other")
	close(third)
	close(fourth)
	g.Eventually(done).Should(Receive(BeNil()))
	g.Eventually(done).Should(Receive(BeNil()))
}

// The newer effect comes while an older one is about to begin another within itself.
func TestEffectWithinAnEffectOfTheSameTermNeverWaitsForANewerOne(t *testing.T) {
	g := NewWithT(t)
	old, newer := token(time.Unix(1, 0), 1), token(time.Unix(1, 0), 2)
	for range 1000 {
		var guard fence.Guard
		first, second := make(chan error, 1), make(chan error, 1)
		go func() {
			first <- guard.Do(old, func() error {
				go func() { second <- guard.Do(newer, func() error { return nil }) }()
				for {
					if err := guard.Do(old, func() error { return nil }); err != nil {
						return err
					}
					runtime.Gosched() // a single processor must get to the newer one
				}
			})
		}()
		select {
		case err := <-first:
			g.Expect(err).To(MatchError(fence.ErrFenced))
			g.Expect(<-second).To(Succeed())
		case <-time.After(20 * time.Second):
			t.Fatal("an effect waits for itself")
		}
	}
}

func TestEffectThatFailsOrPanicsBlocksNoOther(t *testing.T) {
	g := NewWithT(t)
	var guard fence.Guard
	failure := errors.New("out of paper")
	g.Expect(guard.Do(token(time.Unix(1, 0), 1), func() error { return failure })).To(MatchError(failure))
	g.Expect(func() { _ = guard.Do(token(time.Unix(1, 0), 1), func() error { panic("paper jam") }) }).To(PanicWith("paper jam"))
	g.Expect(guard.Do(token(time.Unix(1, 0), 2), func() error { return nil })).To(Succeed())
	g.Expect(guard.Do("7", func() error { panic("called") })).To(MatchError(fence.ErrInvalidToken))
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
