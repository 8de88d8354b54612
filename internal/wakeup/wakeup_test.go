package wakeup

import (
	"context"
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

func TestWaitPrefersTheChannelToTheEndOfTheContext(t *testing.T) {
	g := NewWithT(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	g.Expect(Wait(ctx, make(chan struct{}))).To(MatchError(context.Canceled))
	for range 100 {
		g.Expect(Wait(ctx, closed)).To(Succeed())
	}
}
