package group

import (
	"errors"
	"fmt"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/test/natstest"
	"github.com/natscampaign/election/internal/validate"
)

// namesOf returns all names of up to n of the words, which the group uses itself but for one.
func namesOf(n int) (names []string) {
	for _, word := range []string{"a", "plan", "planner", "members", "lists", "keys"} {
		names = append(names, word)
		if n > 1 {
			for _, rest := range namesOf(n - 1) {
				names = append(names, word+"."+rest)
			}
		}
	}
	return names
}

func TestNoTwoGroupsShareAKeyOfTheBucket(t *testing.T) {
	natstest.SkipIfShort(t)
	g := NewWithT(t)
	parts, accepted, users := namesOf(3), 0, map[string]string{}
	for _, name := range parts {
		group := &Group{group: name}
		if group.checkGroup() != nil {
			continue
		}
		accepted++
		uses := []string{group.planKey(), group.announcementKey()}
		for _, part := range parts {
			uses = append(uses, group.memberKey(part), group.listKey(part), group.electionKey(part))
		}
		for _, key := range uses {
			if other, used := users[key]; used { // HaveKey would look at each of them
				t.Fatalf("group %q uses %q, and so does %q", name, key, other)
			}
			users[key] = name
		}
	}
	g.Expect(accepted).To(Equal(6 * (1 + 3 + 3*3)))
}

func TestNameOfAGroupThatSharesKeysWithAnotherIsRefused(t *testing.T) {
	g := NewWithT(t)
	for name, use := range map[string]string{
		"a.keys": "a-keys", "a.members": "a-members", "a.lists": "a-lists", "a.keys.b": "a-keys-b", "a.b.members.c.keys": "a-b-members-c-keys",
	} {
		_, err := New("m", name, []string{"plan"}, nil)
		g.Expect(err).To(MatchError(validate.ErrInvalidOption))
		g.Expect(err).To(MatchError(And(ContainSubstring("the name of the group is %q", name), ContainSubstring("such as %q", use))))
		g.Expect((&Group{group: use}).checkGroup()).To(Succeed())
	}
	for _, name := range []string{"keys", "members", "plan", "a.plan", "a.key", "a.memberships", "keys.a", "lists", "a.list", "a.planner"} {
		g.Expect((&Group{group: name}).checkGroup()).To(Succeed(), name)
	}
	_, err := New("plan", "a", []string{"plan", "keys.plan", "members.plan"}, nil)
	g.Expect(errors.Unwrap(err)).NotTo(HaveOccurred())
	g.Expect(fmt.Sprint(err)).NotTo(ContainSubstring("plan"), "a key or member may have any name")
}
