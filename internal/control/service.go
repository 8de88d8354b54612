package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/natsconn"
	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/version"
)

const (
	serviceName = "election"
	// maxRequests is how many requests to have candidates of one key refreshed may wait.
	maxRequests = 256
	// maxPendingBytes is how many bytes of requests may wait in a subscription, before the client drops what comes beyond that. One that is
	// too large should fit, where the server has the usual limit of 1 MiB, so that it can be answered.
	maxPendingBytes = 1<<20 + 64<<10
	// maxIdentifyBytes is how many bytes may wait in each subscription to what nats micro asks, which has no body.
	maxIdentifyBytes = 64 << 10
	// MaxHandovers is how many handovers on request may be under way in a process.
	MaxHandovers = 16
)

// service answers for all candidates of a process in one bucket. It is a NATS micro service, so that `nats micro ls` and `info` find it,
// but not one of package micro: that takes over the error and closed handlers of a connection, which belongs to the user, and undoes
// at its end what the user has set since. One goroutine handles all messages.
type service struct {
	bucket   *kv.Bucket
	log      *slog.Logger
	identity micro.ServiceIdentity
	started  time.Time
	requests chan *nats.Msg       // without a buffer: what waits, waits in a subscription, whose bytes are bounded
	keys     natsconn.Keyed       // the subscriptions to requests about the keys of members
	subs     []*nats.Subscription // those to what nats micro asks

	handovers chan struct{}  // holds one value for each handover on request that is under way
	pending   sync.WaitGroup // those handovers
	stale     chan struct{}  // receives when there is a candidate to refresh
	cancel    context.CancelFunc
	done      chan struct{}

	mu        sync.Mutex // guards what follows; never held across I/O
	members   map[string][]*Member
	counters  map[string]counters     // by verb
	refreshes map[string][]func(bool) // the answers that wait, by key: the candidates are refreshed once for all of them
	laterAt   time.Time               // when a request last had candidates refreshed by naming a later bucket
}

// services are those of this process.
var services kv.Shared[service]

// open returns a service that is subscribed to what nats micro asks, as far as the connection takes that.
func open(bucket *kv.Bucket, log *slog.Logger) (*service, error) {
	host, _ := os.Hostname()
	ctx, cancel := context.WithCancel(context.Background())
	s := &service{
		bucket: bucket, log: log, started: time.Now().UTC(), requests: make(chan *nats.Msg), handovers: make(chan struct{}, MaxHandovers),
		members: map[string][]*Member{}, counters: map[string]counters{}, refreshes: map[string][]func(bool){}, stale: make(chan struct{}, 1), cancel: cancel, done: make(chan struct{}),
		identity: micro.ServiceIdentity{
			Name: serviceName, ID: record.NewID(), Version: version.String(),
			Metadata: map[string]string{"bucket": bucket.Bucket(), "host": host, "pid": strconv.Itoa(os.Getpid())},
		},
	}
	receive := func(m *nats.Msg) {
		select {
		case s.requests <- m:
		case <-ctx.Done():
		}
	}
	s.keys = natsconn.Keyed{Conn: bucket.Conn(), Subject: func(key string) string { return Subject(bucket.Bucket(), "*", key) }, Handle: receive, MaxBytes: maxPendingBytes}
	var failures []error
	for _, verb := range []micro.Verb{micro.PingVerb, micro.InfoVerb, micro.StatsVerb} { // one by one: to permit $SRV.* is to permit $SRV.>
		all := micro.APIPrefix + "." + verb.String()
		for _, to := range []string{all, all + "." + serviceName, all + "." + serviceName + "." + s.identity.ID} {
			sub, err := bucket.Conn().Subscribe(to, receive)
			if err != nil {
				failures = append(failures, fmt.Errorf("%s: %w", to, err))
				continue
			}
			_ = sub.SetPendingLimits(-1, maxIdentifyBytes)
			s.subs = append(s.subs, sub)
		}
	}
	go s.serve(ctx)
	return s, errors.Join(failures...)
}

// serve handles requests until ctx ends.
func (s *service) serve(ctx context.Context) {
	defer close(s.done)
	defer s.pending.Wait()
	s.pending.Go(func() { s.refresh(ctx) })
	defer func() {
		for _, sub := range s.subs {
			_ = sub.Unsubscribe()
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return
		case m := <-s.requests:
			if strings.HasPrefix(m.Subject, micro.APIPrefix+".") {
				s.identify(m)
			} else {
				s.handle(ctx, m)
			}
		}
	}
}

// of returns the members of a key. The list is never changed.
func (s *service) of(key string) []*Member {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.members[key]
}
