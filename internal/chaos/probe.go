package chaos

import (
	"context"
	"encoding/json"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natscampaign/election/internal/history"
	"github.com/natscampaign/election/internal/timeutil"
)

const (
	probeEvery   = 100 * time.Millisecond
	probeTimeout = 300 * time.Millisecond
	outageAfter  = 250 * time.Millisecond // from one probe that succeeded to the next is an outage
)

// probe writes to a key of its own in the bucket over and over, to know when the bucket could not be written: a renewal
// that failed then failed for a reason, and nobody could be elected.
type probe struct {
	nc      *nats.Conn
	subject string

	last    time.Duration // when it last succeeded
	outages []history.Span
	done    chan struct{}
}

// newProbe returns a probe of the bucket. Its connection leads to the servers directly.
func newProbe(nc *nats.Conn, bucket string) *probe {
	return &probe{nc: nc, subject: "$KV." + bucket + ".probe", last: history.Now(), done: make(chan struct{})}
}

// run probes until ctx ends; then an outage that still lasts ends too.
func (p *probe) run(ctx context.Context) {
	defer close(p.done)
	for timeutil.Pause(ctx, probeEvery) == nil {
		if p.write() {
			p.succeeded(history.Now())
		}
	}
	if now := history.Now(); now-p.last > outageAfter+probeEvery {
		p.succeeded(now)
	}
}

// write says whether a write was acknowledged.
func (p *probe) write() bool {
	m, err := p.nc.Request(p.subject, []byte("probe"), probeTimeout)
	if err != nil {
		return false
	}
	var ack struct {
		Sequence uint64 `json:"seq"`
	}
	return json.Unmarshal(m.Data, &ack) == nil && ack.Sequence > 0
}

func (p *probe) succeeded(now time.Duration) {
	if gap := now - p.last; gap > outageAfter+probeEvery {
		p.outages = append(p.outages, history.Span{From: p.last, To: now})
	}
	p.last = now
}

// found returns the outages, once run has returned.
func (p *probe) found() []history.Span {
	<-p.done
	return p.outages
}
