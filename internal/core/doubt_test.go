package core

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/record"
)

func TestRecordOfItsOwnIsForeignUnlessTheCandidateStoredIt(t *testing.T) {
	bucket := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		state   record.State
		foreign bool
		own     bool
	}{
		"the last write":                            {record.State{Revision: 7, Record: record.Record{Attempt: "last"}}, false, true},
		"the last write, stored again":              {record.State{Revision: 9, Record: record.Record{Attempt: "last"}}, true, false},
		"an earlier write, as a replica lags":       {record.State{Revision: 5, Record: record.Record{Attempt: "earlier"}}, false, false},
		"an earlier write, stored again":            {record.State{Revision: 9, Record: record.Record{Attempt: "earlier"}}, true, false},
		"an earlier write in a newer bucket":        {record.State{Revision: 2, Record: record.Record{Attempt: "earlier", BucketCreated: bucket.Add(1)}}, true, false},
		"a write of unknown outcome":                {record.State{Revision: 9, Record: record.Record{Attempt: "doubtful"}}, false, true},
		"a write of unknown outcome, by an answer":  {record.State{Revision: 9, Unconditional: true, Record: record.Record{Attempt: "doubtful"}}, true, false},
		"a write that it never made":                {record.State{Revision: 9, Record: record.Record{Attempt: "another"}}, true, false},
		"another write where the last one was":      {record.State{Revision: 7, Record: record.Record{Attempt: "another"}}, true, false},
		"the last write in a bucket that went back": {record.State{Revision: 5, Record: record.Record{Attempt: "last"}}, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			d := doubt{}
			d.applied(&record.Record{Attempt: "last", BucketCreated: bucket}, 7, nil)
			d.add(&record.Record{Attempt: "doubtful"}, time.Now(), 8, nil)
			g.Expect(d.foreign(&test.state)).To(Equal(test.foreign))
			g.Expect(d.isOurs(&test.state)).To(Equal(test.own))
		})
	}
}

func TestWriteIsForgottenOnceItCannotBeAppliedAnyMore(t *testing.T) {
	g := NewWithT(t)
	d := doubt{}
	d.add(&record.Record{Attempt: "update"}, time.Now(), 7, nil)
	d.add(&record.Record{Attempt: "creation"}, time.Now(), 0, nil)
	d.applied(&record.Record{Attempt: "other"}, 7, nil)
	g.Expect(d.writes).To(HaveLen(2))
	d.applied(&record.Record{Attempt: "later"}, 8, nil)
	g.Expect(d.writes).To(HaveLen(1))
	g.Expect(d.writes).To(HaveKey("creation"))
}
