package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election/internal/history"
	"github.com/natscampaign/election/internal/processes"
	"github.com/natscampaign/election/internal/timeutil"
)

// streamPatience is how long an operator waits for one answer about a stream.
const streamPatience = 2 * time.Second

// healthy waits until all servers have all of both streams. Where that takes too long it returns an error.
func (d *Drill) healthy(ctx context.Context) error {
	limit, cancel := context.WithTimeout(ctx, wellWithin)
	defer cancel()
	for {
		var behind []error
		for _, s := range d.cluster.Servers {
			behind = append(behind, s.CaughtUp())
		}
		err := errors.Join(append(behind, d.current(limit, "KV_"+processes.Bucket, d.Replicas), d.current(limit, processes.Stream, processes.ClusterSize))...)
		if err == nil {
			return nil
		}
		if timeutil.Pause(limit, 50*time.Millisecond) != nil {
			if ctx.Err() != nil {
				return nil // the drill is over
			}
			return fmt.Errorf("the cluster is not well after %v: %w", wellWithin, err)
		}
		if err := d.broken(); err != nil {
			return err
		}
	}
}

// current returns nil if the stream has a leader and all copies of it are up to date.
func (d *Drill) current(ctx context.Context, stream string, replicas int) error {
	info, err := d.info(ctx, stream)
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

func (d *Drill) info(ctx context.Context, stream string) (*jetstream.StreamInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, streamPatience)
	defer cancel()
	s, err := d.js.Stream(ctx, stream)
	if err != nil {
		return nil, err
	}
	return s.CachedInfo(), nil
}

// revive starts servers that are down, and returns when the cluster is well.
func (d *Drill) revive(ctx context.Context, servers ...int) error {
	for _, n := range servers {
		if err := d.cluster.Servers[n].Start(ctx); err != nil {
			return err
		}
	}
	return d.healthy(ctx)
}

// streamLeader returns which server leads the bucket's stream; the first if that is not known.
func (d *Drill) streamLeader() int {
	info, err := d.info(d.life, "KV_"+processes.Bucket)
	if err != nil || info.Cluster == nil {
		return 0
	}
	return d.cluster.Named(info.Cluster.Leader)
}

// stepDown asks the leader of the bucket's stream to step down.
func (d *Drill) stepDown(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, streamPatience)
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
	if response.Error != nil { // a nil one of its type would be no nil error
		return response.Error
	}
	return nil
}

// records reads all records of the work stream.
func (d *Drill) records(ctx context.Context) ([]history.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, wellWithin)
	defer cancel()
	info, err := d.info(ctx, processes.Stream)
	if err != nil {
		return nil, fmt.Errorf("the records cannot be read: %w", err)
	}
	consumer, err := d.js.OrderedConsumer(ctx, processes.Stream, jetstream.OrderedConsumerConfig{HeadersOnly: true})
	if err != nil {
		return nil, fmt.Errorf("the records cannot be read: %w", err)
	}
	all, err := consumer.Messages()
	if err != nil {
		return nil, fmt.Errorf("the records cannot be read: %w", err)
	}
	defer all.Stop()
	var records []history.Record
	for last := uint64(0); last < info.State.LastSeq; {
		m, err := all.Next(jetstream.NextContext(ctx))
		if err != nil {
			return nil, fmt.Errorf("the records cannot be read: %w", err)
		}
		meta, err := m.Metadata()
		if err != nil {
			return nil, err
		}
		last = meta.Sequence.Stream
		records = append(records, processes.ReadRecord(last, m.Headers()))
	}
	return records, nil
}
