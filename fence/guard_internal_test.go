package fence

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
)

// Both find that their term is new, and one of them runs before the other looks again.
func TestSecondOfTwoFirstEffectsDoesNotWaitForTheOther(t *testing.T) {
	g := NewWithT(t)
	var guard Guard
	token := election.Term{Bucket: time.Unix(1, 0), Number: 1}.Token()
	err := guard.Do(token, func() error {
		second := make(chan struct{})
		go func() {
			guard.turnTo(token)
			close(second)
		}()
		g.Eventually(second).WithTimeout(20 * time.Second).Should(BeClosed())
		return nil
	})
	g.Expect(err).NotTo(HaveOccurred())
}
