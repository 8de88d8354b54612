package natstest_test

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/natstest"
)

// One cluster serves all of these tests, because a cluster takes seconds to start.
// threeServers returns a cluster, the name of a bucket with a replica on each server, and a function that writes to it.
func threeServers(t *testing.T) (c *natstest.Cluster, bucket string, put func() error) {
	if testing.Short() {
		t.Skip("takes many seconds of raft elections")
	}
	t.Parallel()
	c = natstest.StartCluster(t, 3)
	kv := c.Bucket(t, c.Connect(t), 0)
	status, err := kv.Status(t.Context())
	g := NewWithT(t)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(status.Config().Replicas).To(Equal(3))
	return c, kv.Bucket(), func() error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, err := kv.Put(ctx, "a", []byte("1"))
		return err
	}
}

func TestAnotherServerOfAClusterLeadsAfterALeaderSteppedDown(t *testing.T) {
	c, bucket, put := threeServers(t)
	g := NewWithT(t)
	g.Expect(put()).To(Succeed())
	before := c.StreamLeader(t, bucket)
	g.Expect(c.StepDown(t, bucket)).NotTo(Equal(before))
	g.Eventually(put, 10*time.Second).Should(Succeed())
}

func TestLeaderOfAClusterThatIsIsolatedIsReplacedAndMayComeBack(t *testing.T) {
	c, bucket, put := threeServers(t)
	g := NewWithT(t)
	isolated := c.StreamLeader(t, bucket)
	itsClient := c.Server(t, isolated).Connect(t)

	c.Isolate(isolated)
	g.Expect(c.StreamLeader(t, bucket)).NotTo(Equal(isolated))
	g.Expect(itsClient.FlushTimeout(5 * time.Second)).To(Succeed())

	c.Rejoin(t, isolated)
	g.Expect(itsClient.Stats().Reconnects).To(BeZero())
	g.Eventually(put, 30*time.Second).Should(Succeed())
}

func TestClusterWithoutAMajorityTakesNoWrites(t *testing.T) {
	c, bucket, put := threeServers(t)
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
}
