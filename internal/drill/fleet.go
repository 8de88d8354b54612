package drill

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/drill/faultproxy"
	"github.com/natscampaign/election/internal/drill/timeline"
	"github.com/natscampaign/election/internal/timeutil"
)

// reconnectWait is shorter than a production client would use: the next failover waits until a candidate whose link was healed has
// reconnected, and a few candidates cannot overload a server.
const reconnectWait = 100 * time.Millisecond

// fleet is the candidates of a drill.
type fleet struct {
	candidates []*candidate
	failed     chan error // receives the first error of a candidate that cannot campaign
}

// candidate is one candidate of a drill. It connects over a link of its own, which the drill can cut.
type candidate struct {
	name      string
	link      *faultproxy.Link
	client    *cli.Client
	bucket    *election.Bucket
	failed    chan error
	candidacy atomic.Pointer[candidacy] // nil while the candidate does not campaign
}

// candidacy is one run of an election by a candidate.
type candidacy struct {
	election *election.Election
	ended    sync.WaitGroup
}

// newFleet connects n candidates to the server, each over a link of its own.
func newFleet(ctx context.Context, conn cli.ConnectionFlags, bucket string, n int) (*fleet, error) {
	f := &fleet{failed: make(chan error, 1)}
	for i := range n {
		c := &candidate{name: fmt.Sprintf("candidate-%d", i+1), link: faultproxy.New(nil), failed: f.failed}
		f.candidates = append(f.candidates, c)
		if err := c.connect(ctx, conn, bucket); err != nil {
			f.close()
			return nil, err
		}
	}
	return f, nil
}

func (c *candidate) connect(ctx context.Context, conn cli.ConnectionFlags, bucket string) (err error) {
	c.client, err = conn.Connect(
		nats.Name("election-cli drill "+c.name),
		requireDirectConnection, nats.SetCustomDialer(c.link),
		nats.MaxReconnects(-1), nats.ReconnectWait(reconnectWait), nats.ReconnectJitter(reconnectWait/4, reconnectWait/4),
		nats.ReconnectBufSize(-1),
	)
	if err != nil {
		return err
	}
	c.bucket, err = election.OpenBucket(ctx, c.client.JetStream, bucket)
	if err != nil {
		return fmt.Errorf("%s cannot open bucket %q: %w", c.name, bucket, err)
	}
	return nil
}

// requireDirectConnection refuses a context with a dialer of its own, because the candidate's link would replace that dialer.
func requireDirectConnection(o *nats.Options) error {
	if o.CustomDialer != nil {
		return errors.New("the context connects through a proxy, which a drill cannot cut: give --server with a server that accepts direct connections")
	}
	return nil
}

// start starts to campaign for key.
func (c *candidate) start(key string) {
	e, err := election.NewElection(c.name, key, c.bucket, election.WithSplay(0))
	if err != nil {
		c.fail(err)
		return
	}
	run := &candidacy{election: e}
	run.ended.Go(func() {
		if err := e.Start(context.Background()); err != nil && !errors.Is(err, election.ErrStopped) {
			c.fail(err)
		}
	})
	c.candidacy.Store(run)
}

// fail reports that the candidate cannot campaign. Only the first report of all candidates is kept.
func (c *candidate) fail(err error) {
	select {
	case c.failed <- fmt.Errorf("%s cannot campaign: %w", c.name, err):
	default:
	}
}

// stop stops campaigning. It returns when the election has ended, and a leader has released its key.
func (c *candidate) stop() {
	if run := c.candidacy.Load(); run != nil {
		run.election.Stop()
		run.ended.Wait()
		c.candidacy.Store(nil)
	}
}

// state returns the current phase of the candidate, and the number of the term that it leads; 0 if it does not lead.
func (c *candidate) state() (timeline.Phase, uint64) {
	run := c.candidacy.Load()
	if run == nil {
		return timeline.PhaseOut, 0
	}
	switch run.election.State() {
	case election.UnknownState:
		return timeline.PhaseOut, 0
	case election.LeaderElectState:
		return timeline.PhaseElect, 0
	case election.LeaderState:
		if t, ok := run.election.Term(); ok { // the term may have ended after State returned
			return timeline.PhaseLeader, t.Number
		}
	}
	return timeline.PhaseCandidate, 0
}

// leads says whether the candidate leads now.
func (c *candidate) leads() bool {
	run := c.candidacy.Load()
	return run != nil && run.election.IsLeader()
}

// stopAll heals all links and stops all candidates. The leader stops last, so that no other candidate is elected meanwhile.
func (f *fleet) stopAll() {
	var followers sync.WaitGroup
	var leaders []*candidate
	for _, c := range f.candidates {
		c.link.Heal()
		if p, _ := c.state(); p == timeline.PhaseLeader || p == timeline.PhaseElect {
			leaders = append(leaders, c)
			continue
		}
		followers.Go(c.stop)
	}
	followers.Wait()
	for _, c := range leaders {
		c.stop()
	}
}

// awaitConnections waits until the server answers all candidates, for at most cleanupTimeout. That a client says that it is connected is not
// enough: it notices that its link was cut only some time after the link has healed.
func (f *fleet) awaitConnections(ctx context.Context) error {
	deadline := time.Now().Add(cleanupTimeout)
	for _, c := range f.candidates {
		for c.client.Conn.FlushTimeout(reconnectWait) != nil && time.Now().Before(deadline) {
			if err := timeutil.Pause(ctx, time.Millisecond); err != nil {
				return err
			}
		}
	}
	return nil
}

// close stops all candidates and closes their connections.
func (f *fleet) close() {
	f.stopAll()
	for _, c := range f.candidates {
		if c.client != nil {
			c.client.Conn.Close()
		}
		c.link.Close()
	}
}
