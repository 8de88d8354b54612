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
	"github.com/natscampaign/election/internal/faultproxy"
	"github.com/natscampaign/election/internal/timeline"
	"github.com/natscampaign/election/internal/timeutil"
)

// A candidate whose link is healed should be back soon; a drill has no fleet to spare the server from.
const memberReconnect = 100 * time.Millisecond

// fleet is the candidates of a drill.
type fleet struct {
	members []*member
	broken  chan error // the first candidate that could not go on
}

// member is one candidate of a drill, with a link of its own that can be cut.
type member struct {
	name    string
	index   int
	link    *faultproxy.Link
	session *cli.Session
	bucket  *election.Bucket
	broken  chan error

	standing atomic.Pointer[standing] // nil while it takes no part
}

// standing is a member's part in one election.
type standing struct {
	*election.Election
	over sync.WaitGroup
}

// newFleet connects n candidates, each over a link of its own.
func newFleet(ctx context.Context, conn cli.ConnFlags, bucket string, n int) (*fleet, error) {
	f := &fleet{broken: make(chan error, 1)}
	for i := range n {
		m := &member{name: fmt.Sprintf("candidate-%d", i+1), index: i, link: faultproxy.New(nil), broken: f.broken}
		f.members = append(f.members, m)
		if err := m.connect(ctx, conn, bucket); err != nil {
			f.close()
			return nil, err
		}
	}
	return f, nil
}

func (m *member) connect(ctx context.Context, conn cli.ConnFlags, bucket string) (err error) {
	m.session, err = conn.Connect(
		nats.Name("election-cli drill "+m.name),
		directOnly, nats.SetCustomDialer(m.link),
		nats.MaxReconnects(-1), nats.ReconnectWait(memberReconnect), nats.ReconnectJitter(memberReconnect/4, memberReconnect/4),
		nats.ReconnectBufSize(-1),
	)
	if err != nil {
		return err
	}
	m.bucket, err = election.OpenBucket(ctx, m.session.JetStream, bucket)
	if err != nil {
		return fmt.Errorf("%s cannot read bucket %q: %w", m.name, bucket, err)
	}
	return nil
}

// directOnly refuses a context that dials by other means, which a link would leave out.
func directOnly(o *nats.Options) error {
	if o.CustomDialer != nil {
		return errors.New("the context dials through a proxy, which a drill cannot cut: name a server that is reached directly with --server")
	}
	return nil
}

// join campaigns for key from now on.
func (m *member) join(key string) {
	e, err := election.NewElection(m.name, key, m.bucket, election.WithSplay(0))
	if err != nil {
		m.fail(err)
		return
	}
	s := &standing{Election: e}
	s.over.Go(func() {
		if err := e.Start(context.Background()); err != nil && !errors.Is(err, election.ErrStopped) {
			m.fail(err)
		}
	})
	m.standing.Store(s)
}

// fail reports that the member cannot go on; the first report counts.
func (m *member) fail(err error) {
	select {
	case m.broken <- fmt.Errorf("%s cannot campaign: %w", m.name, err):
	default:
	}
}

// leave stops, and returns when all is wound up.
func (m *member) leave() {
	if s := m.standing.Load(); s != nil {
		s.Stop()
		s.over.Wait()
		m.standing.Store(nil)
	}
}

// look says where the member stands now, and the number of the term it leads.
func (m *member) look() (timeline.Phase, uint64) {
	s := m.standing.Load()
	if s == nil {
		return timeline.PhaseOut, 0
	}
	switch s.State() {
	case election.UnknownState:
		return timeline.PhaseOut, 0
	case election.LeaderElectState:
		return timeline.PhaseElect, 0
	case election.LeaderState:
		if t, ok := s.Term(); ok { // if not, it ended just now
			return timeline.PhaseLeader, t.Number
		}
	}
	return timeline.PhaseCandidate, 0
}

// leads says whether the member leads now.
func (m *member) leads() bool {
	s := m.standing.Load()
	return s != nil && s.IsLeader()
}

// dissolve has everybody leave, the leader last so that nobody is elected meanwhile. A link that was cut is healed.
func (f *fleet) dissolve() {
	var followers sync.WaitGroup
	var leaders []*member
	for _, m := range f.members {
		m.link.Heal()
		if p, _ := m.look(); p == timeline.PhaseLeader || p == timeline.PhaseElect {
			leaders = append(leaders, m)
			continue
		}
		followers.Go(m.leave)
	}
	followers.Wait()
	for _, m := range leaders {
		m.leave()
	}
}

// reconnected waits until all members have their connections, but not for longer than is reasonable.
func (f *fleet) reconnected(ctx context.Context) error {
	deadline := time.Now().Add(cleanupTimeout)
	for _, m := range f.members {
		for !m.session.Conn.IsConnected() && time.Now().Before(deadline) {
			if err := timeutil.Pause(ctx, time.Millisecond); err != nil {
				return err
			}
		}
	}
	return nil
}

// close has everybody leave and closes all connections.
func (f *fleet) close() {
	f.dissolve()
	for _, m := range f.members {
		if m.session != nil {
			m.session.Conn.Close()
		}
		m.link.Close()
	}
}
