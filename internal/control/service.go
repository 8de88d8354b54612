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
	"github.com/nats-io/nuid"

	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/version"
)

const (
	serviceName = "election"
	// maxRequests is how many requests may wait to be read.
	maxRequests = 256
	// MaxHandovers is how many handovers on request may be under way in a process.
	MaxHandovers = 16
)

// service answers for all candidates of a process in one bucket. It is a NATS micro service, so that `nats micro ls` and `info` find it,
// but not one of package micro: that takes over the error and closed handlers of a connection, which belongs to the user, and undoes
// at its end what the user has set since. Here all subjects arrive on one channel, for one goroutine.
type service struct {
	bucket   *kv.Bucket
	log      *slog.Logger
	identity micro.ServiceIdentity
	requests chan *nats.Msg
	subs     []*nats.Subscription

	handovers chan struct{}  // holds one value for each handover on request that is under way
	pending   sync.WaitGroup // those handovers
	stale     chan struct{}  // receives when there is a candidate to refresh
	cancel    context.CancelFunc
	done      chan struct{}

	mu        sync.Mutex // guards what follows; never held across I/O
	members   map[string][]*Member
	refreshes map[string][]func() // the answers that wait, by key: the candidates are refreshed once for all of them
	laterAt   time.Time           // when a request last had candidates refreshed by naming a later bucket
}

// services are those of this process, by the id of the bucket.
var services struct {
	sync.Mutex
	by map[any]*service
}

// open returns a service that is subscribed to its requests, to those at least that the connection takes.
func open(bucket *kv.Bucket, log *slog.Logger) (*service, error) {
	host, _ := os.Hostname()
	ctx, cancel := context.WithCancel(context.Background())
	s := &service{
		bucket: bucket, log: log, requests: make(chan *nats.Msg, maxRequests), handovers: make(chan struct{}, MaxHandovers),
		members: map[string][]*Member{}, refreshes: map[string][]func(){}, stale: make(chan struct{}, 1), cancel: cancel, done: make(chan struct{}),
		identity: micro.ServiceIdentity{
			Name: serviceName, ID: nuid.Next(), Version: version.String(),
			Metadata: map[string]string{"bucket": bucket.Bucket(), "host": host, "pid": strconv.Itoa(os.Getpid())},
		},
	}
	var failures []error
	for _, to := range []string{
		Subject(bucket.Bucket(), "*", ">"),
		micro.APIPrefix + ".*", micro.APIPrefix + ".*." + serviceName, micro.APIPrefix + ".*." + serviceName + "." + s.identity.ID,
	} {
		sub, err := bucket.Conn().ChanSubscribe(to, s.requests)
		if err != nil {
			failures = append(failures, fmt.Errorf("%s: %w", to, err))
			continue
		}
		s.subs = append(s.subs, sub)
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
			if rest, ok := strings.CutPrefix(m.Subject, micro.APIPrefix+"."); ok {
				verb, _, _ := strings.Cut(rest, ".")
				s.identify(verb, m)
			} else {
				s.handle(ctx, m)
			}
		}
	}
}

// identify answers the requests by which `nats micro ls` and `nats micro info` find services.
func (s *service) identify(verb string, m *nats.Msg) {
	s.restrict(m, "")
	switch verb {
	case micro.PingVerb.String():
		reply(m, micro.Ping{ServiceIdentity: s.identity, Type: micro.PingResponseType})
	case micro.InfoVerb.String():
		info := micro.Info{ServiceIdentity: s.identity, Type: micro.InfoResponseType, Description: "Leader election: candidates and handovers"}
		for _, v := range []string{verbCandidates, verbResign, verbTransfer, verbRefresh} {
			info.Endpoints = append(info.Endpoints, micro.EndpointInfo{Name: v, Subject: Subject(s.bucket.Bucket(), v, ">")})
		}
		reply(m, info)
	}
}

// of returns the members of a key. The list is never changed.
func (s *service) of(key string) []*Member {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.members[key]
}
