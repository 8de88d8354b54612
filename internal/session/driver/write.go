package driver

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election/internal/core"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/session"
)

// write has what the session writes be published. The answer comes to the inbox of the driver.
func (d *Driver) write(op *session.Op) {
	if d.writes = append(d.writes, op); !d.writing {
		d.writing = true
		go d.publishAll()
	}
}

// publishAll publishes what there is to write. The client may wait for the network, while it connects or while the server does not read, so the mutex is not
// held meanwhile.
func (d *Driver) publishAll() {
	for {
		d.Lock()
		writes := d.writes
		if d.writes = nil; len(writes) == 0 || d.closed {
			d.writing = false
			d.Unlock()
			return
		}
		d.Unlock()
		for _, op := range writes {
			d.publish(op)
		}
	}
}

// publish publishes a write, unless its limit has come: the session was told then that nobody knows whether it was applied.
func (d *Driver) publish(op *session.Op) {
	err := nats.ErrDisconnected
	if d.nc.IsConnected() { // else the client keeps what it publishes, and sends it late
		if !time.Now().Before(op.Limit) {
			return
		}
		err = d.nc.PublishMsg(d.message(op))
	}
	if err != nil { // it was not sent
		d.Do(func(_ *session.Session, now time.Time) {
			d.done(now, op.ID, &session.Result{Outcome: core.Failed, Err: err})
		})
	}
}

// message returns the message by which a write is made.
func (d *Driver) message(op *session.Op) *nats.Msg {
	m := nats.NewMsg(kv.SubjectToWrite(kv.APIPrefix(d.js), d.bucket, op.Key))
	m.Data, m.Reply = op.Value, d.inbox+strconv.FormatUint(op.ID, 10)
	if op.While == "" {
		m.Header.Set(jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(op.Replaces, 10))
	} else {
		m.Header.Set(jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(op.Own, 10))
		m.Header.Set(jetstream.ExpectedLastSubjSeqSubjHeader, kv.Subject(d.bucket, op.While))
	}
	if op.Expires > 0 {
		m.Header.Set(jetstream.MsgTTLHeader, op.Expires.String())
	}
	return m
}

// answered takes the answer to a write.
func (d *Driver) answered(token string, m *nats.Msg) {
	id, err := strconv.ParseUint(token, 10, 64)
	if err != nil {
		return
	}
	r := resultOf(m)
	d.Do(func(_ *session.Session, now time.Time) { d.done(now, id, &r) })
}

// resultOf returns what an answer to a write says.
func resultOf(m *nats.Msg) (r session.Result) {
	if m.Header.Get("Status") != "" { // nobody stores what is published there
		return session.Result{Outcome: core.Failed, Err: nats.ErrNoResponders}
	}
	var ack struct {
		Sequence uint64              `json:"seq"`
		Error    *jetstream.APIError `json:"error"`
	}
	switch err := json.Unmarshal(m.Data, &ack); {
	case err != nil:
		return session.Result{Outcome: core.Unknown, Err: err}
	case ack.Error == nil && ack.Sequence > 0:
		return session.Result{Outcome: core.Applied, Revision: ack.Sequence}
	case ack.Error == nil:
		return session.Result{Outcome: core.Unknown}
	}
	r = session.Result{Outcome: core.Failed, Err: ack.Error}
	switch ack.Error.ErrorCode {
	case jetstream.JSErrCodeStreamWrongLastSequence, wrongLastSequence: // the latter also while another write of the key is under way
		r.Outcome = core.Refused
	}
	r.Last, r.Named = kv.LastSequence(ack.Error)
	return r
}

// wrongLastSequence is how several replicas refuse a write.
const wrongLastSequence jetstream.ErrorCode = 10164
