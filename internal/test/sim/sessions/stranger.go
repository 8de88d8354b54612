package sessions

import (
	"encoding/binary"
	"fmt"
	"slices"
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
	hit := w.holderOf(claim)
	if a.kind == closeByStranger || a.kind == spoilSession || a.kind == forgeSessionRelease {
		hit = p
	}
	if hit != nil && a.chance%2 == 0 && a.kind != rewind {
		hit.cutOff(w.Now.Add(w.script.ttl))
	}
	var done bool
	switch a.kind {
	case rewind:
		w.server.rewind(min(a.draw, w.Now.Sub(w.server.created)/2))
		done = true
	case remake:
		w.server.remake()
		if done = true; a.chance/2%4 == 0 {
			w.count(actNames[forgeSettled])
			w.writeSettled()
		}
	case evict:
		done = w.writeBlindly(claim, record.Record{Name: "operator"})
	case forgeClaim:
		r := record.Record{Name: "x", Instance: "x.1", Attempt: "x.2", StandDownMs: int64(a.chance % 2 * 1e9)}
		if done = true; a.chance/2%2 == 0 {
			w.writeBlindly(claim, r)
		} else {
			w.server.apply(&write{sent: w.Now, key: claim, record: r, replaces: w.server.revision(claim), conditional: true})
		}
	case usurp:
		switch done = true; a.chance / 2 % 4 {
		case 0:
			w.writeBlindly(claim, record.Record{Name: "operator"})
		case 1:
			if e := w.server.keys[claim]; e != nil {
				w.writeOver(a, session.SessionKey(e.Record.Instance), func(r *record.Record) { r.ClosedBy = "x" })
			}
		}
		for i := range 1 + a.chance/8%2 {
			w.usurp(claim, virtual.Mix(a.chance, i))
		}
	case spoilSession:
		done = w.server.keys[own] != nil && w.writeBlindly(own, record.Record{Name: "operator"})
	case forgeSettled:
		done = w.writeSettled()
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
		done = w.restore(a, claim)
	}
	if done {
		w.count(actNames[a.kind])
		w.note("", actNames[a.kind])
	}
}

// writeSettled has a stranger write that the bucket is settled.
func (w *world) writeSettled() bool {
	return w.writeBlindly("settled", record.Record{Name: "x", Instance: "x.1", Attempt: "x.3"})
}

// usurp has a stranger open a session, take a claim that it must not take, and release the session.
func (w *world) usurp(claim string, draw uint64) {
	var secret record.Secret
	binary.BigEndian.PutUint64(secret[:], draw)
	r := record.Record{Name: "x", Instance: fmt.Sprint("x.", draw), Attempt: fmt.Sprint("x.", draw, ".1"), Commitment: secret.Commitment()}
	own := session.SessionKey(r.Instance)
	w.forge(claim)
	w.server.apply(&write{sent: w.Now, key: own, record: r, conditional: true, expires: 4 * w.script.ttl})
	w.server.apply(&write{sent: w.Now, key: claim, record: r, replaces: w.server.revision(claim), conditional: true})
	r.Released, r.Secret = w.Now, secret
	w.server.apply(&write{sent: w.Now, key: own, record: r, replaces: w.server.revision(own), conditional: true})
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
		w.forge(key)
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
func (w *world) restore(a *act, claim string) bool {
	if len(w.server.written) == 0 {
		return false
	}
	old := w.server.written[virtual.Mix(a.chance, 3)%uint64(len(w.server.written))]
	if a.chance/2%2 == 0 { // most often nothing but a claim matters
		if i := slices.IndexFunc(w.server.written, func(e *entry) bool { return e.Key == claim }); i >= 0 {
			old = w.server.written[i]
		}
	}
	if old.Key == "settled" {
		return false
	}
	w.forge(old.Key)
	w.server.apply(&write{sent: w.Now, key: old.Key, record: old.Record, replaces: w.server.revision(old.Key), conditional: true, expires: w.expires(old.Key)})
	return true
}
