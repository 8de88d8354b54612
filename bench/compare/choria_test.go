//go:build linux

package compare

import (
	"context"

	choria "github.com/choria-io/go-choria/providers/election/streams"
	"github.com/nats-io/nats.go"
)

// choriaCandidate is one of go-choria. It leads from its OnWon to its OnLost, or to the end of its context.
type choriaCandidate struct {
	place
	nc     *nats.Conn
	bucket nats.KeyValue
}

func startChoria(s *stage) {
	js, err := startNATS(s).JetStream()
	s.check(err)
	_, err = js.CreateKeyValue(&nats.KeyValueConfig{Bucket: bucketName, TTL: s.ttl, History: 1})
	s.check(err)
}

func newChoria(_ context.Context, p place, _ *comparison) (candidate, error) {
	nc, err := nats.Connect(p.endpoint, nats.MaxReconnects(-1))
	if err != nil {
		return nil, err
	}
	js, err := nc.JetStream()
	if err != nil {
		return nil, err
	}
	bucket, err := js.KeyValue(bucketName)
	return &choriaCandidate{p, nc, bucket}, err
}

func (c *choriaCandidate) campaign(ctx context.Context, report func(bool)) error {
	e, err := choria.NewElection(c.name, c.key, c.bucket,
		choria.OnWon(func() { report(true) }),
		choria.OnLost(func() { report(false) }))
	if err != nil {
		return err
	}
	return e.Start(ctx)
}

func (c *choriaCandidate) requests() int64 { return int64(c.nc.Stats().OutMsgs) }
