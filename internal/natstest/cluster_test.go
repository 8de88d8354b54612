package natstest_test

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/natstest"
)

// One cluster serves all of these tests, because a cluster takes seconds to start.
func TestClusterOfThree(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute of raft elections")
	}
	g := NewWithT(t)
	c := natstest.StartCluster(t, 3)
	kv := c.Bucket(t, c.Connect(t), 0)
	bucket := kv.Bucket()
	put := func() error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, err := kv.Put(ctx, "a", []byte("1"))
		return err
	}

	status, err := kv.Status(context.Background())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(status.Config().Replicas).To(Equal(3))
	g.Expect(put()).To(Succeed())

	t.Run("another server leads after a leader stepped down", func(t *testing.T) {
		g := NewWithT(t)
		before := c.StreamLeader(t, bucket)
		g.Expect(c.StepDown(t, bucket)).NotTo(Equal(before))
		g.Eventually(put, 10*time.Second).Should(Succeed())
	})

	t.Run("a leader that is isolated is replaced by the others, and may come back", func(t *testing.T) {
		g := NewWithT(t)
		isolated := c.StreamLeader(t, bucket)
		itsClient := c.Server(t, isolated).Connect(t)

		c.Isolate(isolated)
		g.Expect(c.StreamLeader(t, bucket)).NotTo(Equal(isolated))
		g.Expect(itsClient.FlushTimeout(5 * time.Second)).To(Succeed())

		c.Rejoin(t, isolated)
		g.Expect(itsClient.Stats().Reconnects).To(BeZero())
		g.Eventually(put, 30*time.Second).Should(Succeed())
	})

	t.Run("a leader that crashes is replaced, but without a majority nothing is written", func(t *testing.T) {
		g := NewWithT(t)
		crashed := c.StreamLeader(t, bucket)
		c.Crash(crashed)
		stopped := c.StreamLeader(t, bucket)
		g.Expect(stopped).NotTo(Equal(crashed))
		g.Eventually(put, 30*time.Second).Should(Succeed())

		c.Server(t, stopped).Stop()
		g.Consistently(put, 2*time.Second).ShouldNot(Succeed())

		c.Rejoin(t, stopped)
		g.Eventually(put, 30*time.Second).Should(Succeed())
		c.Rejoin(t, crashed)
		g.Eventually(put, 30*time.Second).Should(Succeed())
	})
}
