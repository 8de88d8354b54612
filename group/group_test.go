package group_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/test/natstest"
)

func TestSingleMemberLeadsAll(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		keys := keysOf(20)
		a := f.member("a", "shards", keys).start()
		after(standDown + time.Second)
		f.expectEven(keys, []*member{a})
	})
}

func TestMembersThatStartTogetherShareEvenlyFromTheFirstTerm(t *testing.T) {
	natstest.SkipIfShort(t)
	onVirtualTime(t, func(f *fleet) {
		keys := keysOf(20)
		var members []*member
		for _, name := range []string{"a", "b", "c"} {
			members = append(members, f.member(name, "shards", keys).start())
		}
		after(standDown + time.Second)
		f.expectEven(keys, members)
		_, moves, _ := f.journal.reset()
		f.Expect(moves).To(BeZero())
	})
}

func TestNewcomerIsHandedItsShareAndNoMore(t *testing.T) {
	natstest.SkipIfShort(t)
	onVirtualTime(t, func(f *fleet) {
		keys := keysOf(20)
		a := f.member("a", "shards", keys).start()
		after(standDown + time.Second)
		b := f.member("b", "shards", keys).start()
		after(200 * time.Millisecond)
		f.expectEven(keys, []*member{a, b})
		_, moves, gap := f.journal.reset()
		f.Expect(moves).To(Equal(10))
		f.Expect(gap).To(BeNumerically("<", 10*time.Millisecond))
	})
}

func TestMemberThatLeavesHandsOverBeforeItIsGone(t *testing.T) {
	natstest.SkipIfShort(t)
	onVirtualTime(t, func(f *fleet) {
		keys := keysOf(20)
		a, b, c := f.member("a", "shards", keys).start(), f.member("b", "shards", keys).start(), f.member("c", "shards", keys).start()
		after(standDown + time.Second)
		led := len(a.Keys())
		f.journal.reset()
		begun := time.Now()
		a.leave()
		f.Expect(time.Since(begun)).To(BeNumerically("<", 100*time.Millisecond))
		after(instant)
		f.expectEven(keys, []*member{b, c})
		_, moves, gap := f.journal.reset()
		f.Expect(moves).To(Equal(led))
		f.Expect(gap).To(BeNumerically("<", 10*time.Millisecond))
	})
}

func TestMemberWithManyKeysLeavesWithoutDelay(t *testing.T) {
	natstest.SkipIfShort(t)
	onVirtualTime(t, func(f *fleet) { // more keys per member than a process hands over at a time
		keys := keysOf(240)
		members := f.together(keys, "a", "b", "c", "d")
		begun := time.Now()
		members[0].leave()
		f.Expect(time.Since(begun)).To(BeNumerically("<", time.Second))
		after(instant)
		f.expectEven(keys, members[1:])
	})
}
