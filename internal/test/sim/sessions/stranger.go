package sessions

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/session"
	"github.com/natscampaign/election/internal/test/virtual"
)

// actOnBucket is what an operator, a stranger or a disaster does to the bucket.
func (w *world) actOnBucket(a *act, claim string, p *process) {
	own := ""
	if p != nil {
		own = session.SessionKey(p.session.ID())
	}
	if holder := w.holderOf(claim); holder != nil && a.chance%2 == 0 && a.kind != rewind && a.kind != remake {
		holder.cutOff(w.Now.Add(w.script.ttl))
	}
	var done bool
	switch a.kind {
	case rewind:
		w.server.rewind(min(a.draw, w.Now.Sub(w.server.created)/2))
		done = true
	case remake:
		w.server.remake()
		done = true
	case evict:
		done = w.writeBlindly(claim, record.Record{Name: "operator"})
	case forgeClaim:
		done = w.writeBlindly(claim, record.Record{Name: "x", Instance: "x.1", Attempt: "x.2", StandDownMs: int64(a.chance % 2 * 1e9)})
	case spoilSession:
		done = w.server.keys[own] != nil && w.writeBlindly(own, record.Record{Name: "operator"})
	case forgeSettled:
		done = w.writeBlindly("settled", record.Record{Name: "x", Instance: "x.1", Attempt: "x.3"})
	case closeByStranger:
		done = w.writeOver(a, own, func(r *record.Record) { r.ClosedBy = "x" })
	case clone:
		done = w.writeOver(a, own, func(r *record.Record) {
			if a.chance%8 == 1 { // it has forgotten the secret
				r.Commitment[0]++
			}
		})
	case forgeClaimRelease:
		done = w.forgeRelease(a, claim)
	case forgeSessionRelease:
		done = w.forgeRelease(a, own)
	case restore:
		done = w.restore(a)
	}
	if done {
		w.count(actNames[a.kind])
		w.note("", actNames[a.kind])
	}
}

// writeBlindly writes a key, whatever is stored.
func (w *world) writeBlindly(key string, r record.Record) bool {
	w.server.apply(&write{sent: w.Now, key: key, record: r})
	return true
}

// writeOver writes over what is stored under a key, as sessions write, a record that is changed a little.
func (w *world) writeOver(a *act, key string, change func(*record.Record)) bool {
	e := w.server.keys[key]
	if e == nil {
		return false
	}
	r := e.Record
	r.Attempt = fmt.Sprint("x.", a.chance)
	change(&r)
	w.server.apply(&write{sent: w.Now, key: key, record: r, replaces: e.Revision, conditional: true, expires: w.expires(key)})
	return true
}

// expires returns after how long a record expires that is written under a key.
func (w *world) expires(key string) time.Duration {
	if _, is := w.server.keys[key]; is && key[0] == 's' {
		return 4 * w.script.ttl
	}
	return 0
}

// forgeRelease writes a release of a stranger, who does not know the secret of the term or of the session.
func (w *world) forgeRelease(a *act, key string) bool {
	return w.writeOver(a, key, func(r *record.Record) {
		w.forged[key] = w.Now
		r.Released, r.StandDownMs = w.Now, 0
		var secret record.Secret
		binary.BigEndian.PutUint64(secret[:], virtual.Mix(a.chance, 19))
		switch a.chance % 4 {
		case 0:
			r.Secret = secret
		case 1:
			r.Commitment = record.Commitment{}
		default: // it opens a commitment, though not that of the term
			r.Secret, r.Commitment = secret, secret.Commitment()
		}
	})
}

// holderOf returns the process of the session that a claim names; nil if there is none.
func (w *world) holderOf(claim string) *process {
	if e := w.server.keys[claim]; e != nil && e.by != nil && !e.by.crashed && e.by.session.ID() == e.Record.Instance {
		return e.by
	}
	return nil
}

// restore writes a record over what is stored that was stored under the same key before. That the bucket is settled is believed, whoever writes it.
func (w *world) restore(a *act) bool {
	if len(w.server.written) == 0 {
		return false
	}
	old := w.server.written[virtual.Mix(a.chance, 3)%uint64(len(w.server.written))]
	if old.Key == "settled" {
		return false
	}
	w.forged[old.Key] = w.Now
	w.server.apply(&write{sent: w.Now, key: old.Key, record: old.Record, replaces: w.server.revision(old.Key), conditional: true, expires: w.expires(old.Key)})
	return true
}
