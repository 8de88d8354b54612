package election

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/record"
)

func TestRecordOfItsOwnIsForeignUnlessTheCandidateStoredIt(t *testing.T) {
	bucket := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		state   kv.State
		foreign bool
	}{
		"the last write":                           {kv.State{Revision: 7, Record: record.Record{Attempt: "last"}}, false},
		"the last write, stored again":             {kv.State{Revision: 9, Record: record.Record{Attempt: "last"}}, true},
		"an earlier write, as a replica lags":      {kv.State{Revision: 5, Record: record.Record{Attempt: "earlier"}}, false},
		"an earlier write, stored again":           {kv.State{Revision: 9, Record: record.Record{Attempt: "earlier"}}, true},
		"an earlier write in a newer bucket":       {kv.State{Revision: 2, Record: record.Record{Attempt: "earlier", BucketCreated: bucket.Add(1)}}, true},
		"a write of unknown outcome":               {kv.State{Revision: 9, Record: record.Record{Attempt: "doubtful"}}, false},
		"a write of unknown outcome, by an answer": {kv.State{Revision: 9, Unconditional: true, Record: record.Record{Attempt: "doubtful"}}, true},
		"a write that it never made":               {kv.State{Revision: 9, Record: record.Record{Attempt: "another"}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			d := doubt{}
			d.applied(record.Record{Attempt: "last", BucketCreated: bucket}, 7, nil)
			d.add(record.Record{Attempt: "doubtful"}, time.Now(), nil)
			g.Expect(d.foreign(test.state)).To(Equal(test.foreign))
		})
	}
}
