//go:build linux

package compare

import (
	"context"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election"
)

const bucketName = "LEADER_ELECTION"

// startNATS runs a server with JetStream, which keeps buckets in files.
func startNATS(s *stage) *nats.Conn {
	n, err := server.NewServer(&server.Options{
		Host: serverAddress, Port: server.RANDOM_PORT, JetStream: true, StoreDir: s.TempDir(), NoLog: true, NoSigs: true,
	})
	s.check(err)
	n.Start()
	s.Cleanup(func() { n.Shutdown(); n.WaitForShutdown() })
	if !n.ReadyForConnections(time.Minute) {
		s.Fatal("the NATS server does not start")
	}
	s.endpoint = n.ClientURL()
	nc, err := nats.Connect(s.endpoint)
	s.check(err)
	s.Cleanup(nc.Close)
	return nc
}

// ours is a candidate of package election, by its README: a connection that reconnects for ever and buffers nothing, and the
// work in Run. It leads from the start of the work to the end of the work's context.
type ours struct {
	nc *nats.Conn
	e  *election.Election
}

func startElection(s *stage) {
	js, err := jetstream.New(startNATS(s))
	s.check(err)
	_, err = election.CreateBucket(s.Context(), js, election.BucketConfig{Name: bucketName, TTL: s.ttl})
	s.check(err)
}

func connectOurs(endpoint string) (*nats.Conn, error) {
	return nats.Connect(endpoint, nats.MaxReconnects(-1), nats.ReconnectBufSize(-1))
}

func newOurs(ctx context.Context, p place, _ *comparison) (candidate, error) {
	nc, err := connectOurs(p.endpoint)
	if err != nil {
		return nil, err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	bucket, err := election.OpenBucket(ctx, js, bucketName)
	if err != nil {
		return nil, err
	}
	e, err := election.NewElection(p.name, p.key, bucket, p.witness.Option())
	if err != nil {
		return nil, err
	}
	return &ours{nc, e}, nil
}

func (o *ours) campaign(ctx context.Context, report func(bool)) error {
	return o.e.Run(ctx, func(ctx context.Context, _ election.Term) error {
		report(true)
		<-ctx.Done()
		report(false)
		return nil
	})
}

func (o *ours) requests() int64 { return int64(o.nc.Stats().OutMsgs) }
