package witness

import (
	"testing"

	. "github.com/onsi/gomega"
)

func TestNobodyTakesMoreMemoryThanHeMayAndWhatIsGivenBackMayBeTakenAgain(t *testing.T) {
	g := NewWithT(t)
	var l ledger
	open := func(user uint32) *account {
		a, err := l.open(user)
		g.Expect(err).NotTo(HaveOccurred())
		return a
	}
	rest := maxConnectionBytes - connectionBytes
	var all []*account
	for user := range uint32(maxTotalBytes / maxUserBytes) {
		for range maxUserBytes / maxConnectionBytes {
			a := open(user)
			g.Expect(a.take(rest + 1)).To(MatchError(ContainSubstring("the terms of one program may take 8 MiB")))
			g.Expect(a.take(rest)).To(Succeed())
			all = append(all, a)
		}
		_, err := l.open(user)
		g.Expect(err).To(MatchError(ContainSubstring("may take 32 MiB")))
	}
	_, err := l.open(99)
	g.Expect(err).To(MatchError(ContainSubstring("all programs together may take 128 MiB")))
	all[0].give(rest)
	again := open(99)
	for _, a := range append(all, again) {
		a.close()
	}
	g.Expect(l.total).To(BeZero())
	g.Expect(l.users).To(BeEmpty())
	g.Expect((*account)(nil).take(maxTotalBytes + 1)).To(Succeed())
}
