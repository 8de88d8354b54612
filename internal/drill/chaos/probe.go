package chaos

import (
	"context"
	"encoding/json"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natscampaign/election/internal/drill/history"
	"github.com/natscampaign/election/internal/host"
	"github.com/natscampaign/election/internal/timeutil"
)

const (
	probeInterval   = 100 * time.Millisecond
	probeTimeout    = 300 * time.Millisecond
	outageThreshold = 250 * time.Millisecond // an outage lasts longer than this and one interval
)

// probe finds the outages of the bucket: it writes to its own key at an interval. During an outage renewals fail, and no candidate can
// be elected.
type probe struct {
	nc      *nats.Conn
	subject string

	last    time.Duration // when a write last succeeded
	outages []history.Span
	done    chan struct{}
}

// newProbe returns a probe of the bucket. The connection must not use a link, which may have faults.
func newProbe(nc *nats.Conn, bucket string) *probe {
	return &probe{nc: nc, subject: "$KV." + bucket + ".probe", last: host.Clock(), done: make(chan struct{})}
}

// run probes until ctx ends. An outage at that time ends then.
func (p *probe) run(ctx context.Context) {
	defer close(p.done)
	for timeutil.Pause(ctx, probeInterval) == nil {
		if p.write() {
			p.recordSuccess(host.Clock())
		}
	}
	p.recordSuccess(host.Clock())
}

// write reports whether the bucket acknowledged a write.
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

func (p *probe) recordSuccess(now time.Duration) {
	if gap := now - p.last; gap > outageThreshold+probeInterval {
		p.outages = append(p.outages, history.Span{From: p.last, To: now})
	}
	p.last = now
}

// awaitOutages waits until run has returned, and returns the outages.
func (p *probe) awaitOutages() []history.Span {
	<-p.done
	return p.outages
}
