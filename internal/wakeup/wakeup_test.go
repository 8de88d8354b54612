package wakeup

import (
	"testing"

	. "github.com/onsi/gomega"
)

func TestLatchWakesWhoWaitsAndWhoComesLater(t *testing.T) {
	g := NewWithT(t)
	var l Latch
	before := l.Wait()
	g.Expect(before).NotTo(BeClosed())
	g.Expect(l.Wait()).To(Equal(before))
	l.Close()
	g.Expect(before).To(BeClosed())
	g.Expect(l.Wait()).To(BeClosed())
}
