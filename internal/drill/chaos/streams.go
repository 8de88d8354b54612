package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/drill/history"
	"github.com/natscampaign/election/internal/drill/processes"
	"github.com/natscampaign/election/internal/host"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/timeutil"
)

// streamTimeout is the timeout of one request about a stream.
const streamTimeout = 2 * time.Second

// createStreams creates the bucket and the stream of records as soon as the cluster accepts that, and waits until it is healthy. It
// restarts the servers of a cluster that is stuck: of one cluster in a hundred, nats-server 2.10 has only two servers take part.
func (d *Drill) createStreams(ctx context.Context) error {
	limit, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	for stuck := host.Clock() + stuckTimeout; ; {
		err := d.tryCreateStreams(limit)
		if err == nil {
			return d.awaitHealthy(ctx)
		}
		if timeutil.Pause(limit, 50*time.Millisecond) != nil {
			return fmt.Errorf("create the bucket and the stream within %v: %w", clusterTimeout, err)
		}
		if host.Clock() < stuck {
			continue
		}
		d.logf("%-16s the cluster does not accept a stream: %v", "restarts servers", err)
		for _, s := range d.cluster.Servers {
			s.Shutdown()
			if err := s.Start(limit); err != nil {
				return err
			}
		}
		stuck = host.Clock() + stuckTimeout
	}
}

func (d *Drill) tryCreateStreams(ctx context.Context) error {
	if err := d.checkServers(); err != nil {
		return err // a request would be lost, and its timeout with it
	}
	ctx, cancel := context.WithTimeout(ctx, streamTimeout)
	defer cancel()
	var err error
	if d.Sessions > 0 {
		err = kv.SessionsConfig{Name: processes.Bucket, TTL: d.TTL, Replicas: d.Replicas}.Create(ctx, d.js)
		if err == nil || errors.Is(err, jetstream.ErrBucketExists) { // an earlier try made it
			d.bucket, err = election.OpenBucket(ctx, d.js, processes.Bucket)
		}
	} else {
		d.bucket, err = election.CreateBucket(ctx, d.js, election.BucketConfig{Name: processes.Bucket, TTL: d.TTL, Replicas: d.Replicas})
	}
	if err != nil {
		return err
	}
	_, err = d.js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{Name: processes.Stream, Subjects: []string{processes.Subject, processes.SubjectOfKey("*")}, Replicas: processes.ClusterSize})
	return err
}

// checkServers returns an error unless all servers that are up have caught up.
func (d *Drill) checkServers() error {
	var behind []error
	for _, s := range d.cluster.Servers {
		behind = append(behind, s.CaughtUp())
	}
	return errors.Join(behind...)
}

// awaitHealthy waits until all servers have caught up and all replicas of both streams are current. It returns an error if that takes
// too long, and nil if ctx ends.
func (d *Drill) awaitHealthy(ctx context.Context) error {
	limit, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	for {
		err := errors.Join(d.checkServers(), d.checkReplicas(limit, "KV_"+processes.Bucket, d.Replicas), d.checkReplicas(limit, processes.Stream, processes.ClusterSize))
		if err == nil {
			return nil
		}
		if timeutil.Pause(limit, 50*time.Millisecond) != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("the cluster is not healthy after %v: %w", clusterTimeout, err)
		}
		if err := d.unexpectedExit(); err != nil {
			return err
		}
	}
}

// checkReplicas returns an error unless the stream has a leader and all its replicas are current.
func (d *Drill) checkReplicas(ctx context.Context, stream string, replicas int) error {
	info, err := d.streamInfo(ctx, stream)
	if err != nil {
		return err
	}
	if info.Cluster == nil || info.Cluster.Leader == "" || len(info.Cluster.Replicas) < replicas-1 {
		return fmt.Errorf("stream %s has no leader", stream)
	}
	for _, r := range info.Cluster.Replicas {
		if !r.Current || r.Offline {
			return fmt.Errorf("stream %s is behind on %s", stream, r.Name)
		}
	}
	return nil
}

func (d *Drill) streamInfo(ctx context.Context, stream string) (*jetstream.StreamInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, streamTimeout)
	defer cancel()
	s, err := d.js.Stream(ctx, stream)
	if err != nil {
		return nil, err
	}
	return s.CachedInfo(), nil
}

// startServers starts servers that are down, and waits until the cluster is healthy.
func (d *Drill) startServers(ctx context.Context, servers ...int) error {
	for _, n := range servers {
		if err := d.cluster.Servers[n].Start(ctx); err != nil {
			return err
		}
	}
	return d.awaitHealthy(ctx)
}

// streamLeader returns the index of the server that leads the bucket's stream, as the target of a fault; nil if no server is known to
// lead it.
func (d *Drill) streamLeader() []int {
	info, err := d.streamInfo(d.lifetime, "KV_"+processes.Bucket)
	if err != nil || info.Cluster == nil {
		return nil
	}
	if n := d.cluster.ServerIndex(info.Cluster.Leader); n >= 0 {
		return []int{n}
	}
	return nil
}

// stepDown asks the leader of the bucket's stream to step down.
func (d *Drill) stepDown(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, streamTimeout)
	defer cancel()
	m, err := d.nc.RequestWithContext(ctx, "$JS.API.STREAM.LEADER.STEPDOWN.KV_"+processes.Bucket, nil)
	if err != nil {
		return err
	}
	var response struct {
		Error *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(m.Data, &response); err != nil {
		return err
	}
	if response.Error != nil { // a nil *APIError would be an error that is not nil
		return response.Error
	}
	return nil
}

// readRecords reads all records of the stream.
func (d *Drill) readRecords(ctx context.Context) ([]history.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	info, err := d.streamInfo(ctx, processes.Stream)
	if err != nil {
		return nil, fmt.Errorf("read the records of the leaders: %w", err)
	}
	consumer, err := d.js.OrderedConsumer(ctx, processes.Stream, jetstream.OrderedConsumerConfig{HeadersOnly: true})
	if err != nil {
		return nil, fmt.Errorf("read the records of the leaders: %w", err)
	}
	messages, err := consumer.Messages()
	if err != nil {
		return nil, fmt.Errorf("read the records of the leaders: %w", err)
	}
	defer messages.Stop()
	var records []history.Record
	for last := uint64(0); last < info.State.LastSeq; {
		m, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return nil, fmt.Errorf("read the records of the leaders: %w", err)
		}
		meta, err := m.Metadata()
		if err != nil {
			return nil, fmt.Errorf("read the records of the leaders: %w", err)
		}
		last = meta.Sequence.Stream
		r := processes.ParseRecord(last, m.Headers())
		r.Key = strings.TrimPrefix(strings.TrimPrefix(m.Subject(), processes.Subject), ".")
		records = append(records, r)
	}
	return records, nil
}
