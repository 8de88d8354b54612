package election

import (
	"github.com/natscampaign/election/internal/core"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/witness"
)

// entrust gives the witness, if there is one, what it needs to release a term that begins, should this process die. A bare name has nothing by which
// a witness would recognise the term. The caller holds mu.
func (e *Election) entrust(t *core.Term) {
	if e.opts.Witness == nil || e.opts.PlainValue {
		return
	}
	told := witness.Term{
		Bucket: e.bucket.Bucket(), Key: e.key, Name: e.name, Instance: e.candidate.Rules.Instance,
		Secret: t.Secret(), LeaseMs: record.Milliseconds(t.Lease.Timing.TTL),
	}
	if js := e.bucket.JetStream(); js != nil {
		told.API = kv.APIPrefix(js)
	}
	e.opts.Witness.Began(told)
}

// recall tells the witness that a term is over. The caller holds mu.
func (e *Election) recall(a *activeTerm) {
	if e.opts.Witness != nil && !e.opts.PlainValue {
		e.opts.Witness.Over(a.term.Secret().Commitment())
	}
}
