package group_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/drill/faultproxy"
	"github.com/natscampaign/election/internal/test/natstest"
)

// unable is after how long others lead the keys of a member that receives no answers: its last renewal may be applied without its knowledge, one
// interval after the last that it knows of; then the key expires, and the next leader stands down.
const unable = 5*ttl/2 + time.Second

// unanswered are ways in which a member may not receive answers, although its requests arrive.
var unanswered = map[string]func(faultproxy.Message) bool{
	"nothing arrives":   nil,
	"deliveries arrive": func(m faultproxy.Message) bool { return m.Request != "" },
}

// A member whose requests arrive while no answer does leads nothing. It must not keep its share by a presence that it goes on writing.
func TestMemberThatReceivesNoAnswersLosesItsKeys(t *testing.T) {
	natstest.SkipIfShort(t)
	for name, lost := range unanswered {
		for i, role := range []string{"the planner", "the second planner", "a follower"} {
			t.Run(fmt.Sprintf("%s, %s", role, name), func(t *testing.T) {
				onVirtualTime(t, func(f *fleet) {
					keys := keysOf(6)
					members := f.together(keys, "a", "b", "c")
					deaf := members[i]
					deaf.link.LoseReplies(lost)
					after(unable)
					f.expectEven(keys, without(members, deaf))
					for range 20 {
						after(ttl / 4)
						f.expectEven(keys, without(members, deaf))
					}
					deaf.link.Heal()
					after(ttl)
					f.expectEven(keys, members)
					f.Expect(f.journal.twice).To(BeEmpty())
				})
			})
		}
	}
}

func TestMemberThatReceivesNoAnswersFromItsStartGetsNoKeys(t *testing.T) {
	natstest.SkipIfShort(t)
	onVirtualTime(t, func(f *fleet) {
		keys := keysOf(6)
		members := f.together(keys, "a", "b")
		deaf := f.member("c", "shards", keys)
		answered := time.Now()
		deaf.link.LoseReplies(func(m faultproxy.Message) bool {
			return time.Since(answered) > 0 || strings.HasPrefix(m.Request, "$KV.")
		})
		deaf.start()
		after(2 * ttl)
		f.Expect(members[0].Status().Members).To(Equal([]string{"a", "b"}))
		f.expectEven(keys, members)
		deaf.link.Heal()
		after(ttl)
		f.expectEven(keys, append(members, deaf))
	})
}
