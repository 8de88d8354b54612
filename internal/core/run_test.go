package core

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/record"
)

// The simulator found it: a candidate whose context had ended was started again, and took a forged release of a term for its end though it had
// read a record of that term in its first run.
func TestCandidateThatIsStartedAgainKnowsTheTermsThatItHasRead(t *testing.T) {
	g := NewWithT(t)
	c := candidate()
	secret := record.NewSecret()
	holder := record.Record{Name: "a", Instance: "a.1", Attempt: "a.1.1", Term: 1, Commitment: secret.Commitment()}
	c.learn(time.Now(), &record.State{Read: time.Now(), Revision: 7, Record: holder})
	c.Notice(time.Now(), EndRun{})
	c.Notice(time.Now(), NewRun{Rules: c.Rules})
	c.Notice(time.Now(), Joined{Source: NoSource, Created: c.bucket.Created})
	c.Begin(time.Now(), time.Now())

	another := record.NewSecret()
	forged := holder
	forged.Released, forged.Secret, forged.Commitment = time.Now(), another, another.Commitment()
	g.Expect(c.proves(&record.State{Read: time.Now(), Revision: 8, Record: forged})).To(BeFalse())
	release := holder
	release.Released, release.Secret = time.Now(), secret
	g.Expect(c.proves(&record.State{Read: time.Now(), Revision: 8, Record: release})).To(BeTrue())
	g.Expect(c.key.highest).To(BeEquivalentTo(7))
	c.Notice(time.Now(), Joined{Source: NoSource, Created: c.bucket.Created.Add(time.Hour)})
	g.Expect(c.key.highest).To(BeZero(), "in a bucket that was made again revisions begin anew")
}
