package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"github.com/nats-io/nuid"

	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/version"
	"github.com/natscampaign/election/internal/wakeup"
)

const (
	serviceName = "election"
	// maxRequests is how many requests may wait to be read.
	maxRequests = 256
	// MaxHandovers is how many handovers on request may be under way in a process.
	MaxHandovers = 16
)

// Served is a candidate for which a process answers.
type Served interface {
	Describe() Candidate
	BucketCreated() time.Time
	HoldsKey() bool
	Resign(ctx context.Context) error
	Transfer(ctx context.Context, target string) error
	Refresh(ctx context.Context) // reads the bucket's info again
	HandoverTimeout() time.Duration
}

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

// laterPause is how often requests that name a later bucket may have candidates refreshed: who may only ask for the candidates must not keep
// all of them busy.
const laterPause = time.Second

// services are those of this process, by the id of the bucket.
var services struct {
	sync.Mutex
	by map[any]*service
}

// Member is one candidate that takes part in the protocol.
type Member struct {
	service *service
	key     string
	served  Served
}

// Join has this process answer for a candidate. The bucket must know its connection. The subscriptions are made before Join returns:
// a leader that is notified of a later campaign can ask this candidate. The caller must call Leave.
func Join(bucket *kv.Bucket, key string, served Served, log *slog.Logger) *Member {
	var refused error
	defer func() {
		if refused != nil { // logged when nothing is locked: the log handler is the user's
			log.Debug("Control requests cannot be received", "bucket", bucket.Bucket(), "error", refused)
		}
	}()
	services.Lock()
	defer services.Unlock()
	s := services.by[bucket.ID()]
	if s == nil {
		s, refused = open(bucket, log)
		if services.by == nil {
			services.by = map[any]*service{}
		}
		services.by[bucket.ID()] = s
	}
	m := &Member{s, key, served}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.members[key] = append(slices.Clone(s.members[key]), m)
	return m
}

// Leave ends the candidate's part; the last of a bucket closes the service.
func (m *Member) Leave() {
	s := m.service
	services.Lock()
	s.mu.Lock()
	rest := slices.DeleteFunc(slices.Clone(s.members[m.key]), func(other *Member) bool { return other == m })
	if s.members[m.key] = rest; len(rest) == 0 {
		delete(s.members, m.key)
	}
	last := len(s.members) == 0
	s.mu.Unlock()
	if last {
		delete(services.by, s.bucket.ID())
	}
	services.Unlock()
	if last {
		s.cancel()
		<-s.done
	}
}

// client returns one for the bucket as this candidate knows it.
func (m *Member) client() Client { return Client{m.service.bucket, m.served.BucketCreated()} }

// of returns the members of a key. The list is never changed.
func (s *service) of(key string) []*Member {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.members[key]
}

// Meet passes each candidate of the key to found until found returns true, or no further answers come: first those of this process,
// whose own requests a connection may not echo, and then all. A candidate may come twice.
func (m *Member) Meet(ctx context.Context, found func(Candidate) (enough bool)) error {
	for _, other := range m.service.of(m.key) {
		if found(other.served.Describe()) {
			return nil
		}
	}
	return m.client().candidates(ctx, m.key, "", firstAnswerTimeout, func(c Candidate, _ time.Time) bool { return found(c) })
}

// State asks one candidate of the key for its state; "" if it does not answer.
func (m *Member) State(ctx context.Context, instance string) (state string) {
	see := func(c Candidate, _ time.Time) (enough bool) {
		if c.Instance == instance {
			state = c.State
		}
		return c.Instance == instance
	}
	for _, other := range m.service.of(m.key) {
		if see(other.served.Describe(), time.Time{}) {
			return state
		}
	}
	_ = m.client().candidates(ctx, m.key, instance, 0, see) // no answer is no state
	return state
}

// RequestTransfer asks the leader of the given instance to transfer leadership to target.
func (m *Member) RequestTransfer(ctx context.Context, instance, target string, timeout time.Duration) error {
	for _, other := range m.service.of(m.key) {
		if other.served.Describe().Instance == instance {
			return other.served.Transfer(ctx, target)
		}
	}
	return m.client().Transfer(ctx, m.key, instance, target, timeout)
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

// handle handles one request of this protocol.
func (s *service) handle(ctx context.Context, m *nats.Msg) {
	verb, key, ok := parseSubject(s.bucket.Bucket(), m.Subject)
	if !ok {
		return
	}
	var r request
	invalid := len(m.Data) > 0 && json.Unmarshal(m.Data, &r) != nil
	s.restrict(m, r.InboxPrefix)
	if invalid {
		reject(m, codeOf(errInvalidBody), errInvalidBody.Error())
		return
	}
	addressed := s.addressed(key, r)
	switch verb {
	case verbCandidates:
		s.describe(m, r, addressed)
		if s.behind(key, r) {
			s.refreshFor(key, func() {
				s.describe(m, r, slices.DeleteFunc(s.addressed(key, r), func(m *Member) bool { return slices.Contains(addressed, m) }))
			})
		}
	case verbRefresh:
		if len(addressed) > 0 {
			s.refreshFor(key, func() { reply(m, answer{}) })
		}
	case verbResign, verbTransfer:
		for _, member := range addressed {
			if member.served.HoldsKey() && (r.Instance == "" || r.Instance == member.served.Describe().Instance) {
				s.handOver(ctx, member.served, verb, r, m)
				return
			}
		}
	}
}

// addressed returns the candidates of the key that a request concerns.
func (s *service) addressed(key string, r request) (members []*Member) {
	for _, member := range s.of(key) {
		if r.Bucket.IsZero() || r.Bucket.Equal(member.served.BucketCreated()) {
			members = append(members, member)
		}
	}
	return members
}

// behind reports whether a request names a later bucket than a candidate of the key knows, once in a while: the bucket may have been
// deleted and made again.
func (s *service) behind(key string, r request) bool {
	if !slices.ContainsFunc(s.of(key), func(m *Member) bool { return r.Bucket.After(m.served.BucketCreated()) }) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); now.Sub(s.laterAt) >= laterPause {
		s.laterAt = now
		return true
	}
	return false
}

// describe answers which of the candidates there are.
func (s *service) describe(m *nats.Msg, r request, members []*Member) {
	var a answer
	for _, member := range members {
		if c := member.served.Describe(); r.Instance == "" || r.Instance == c.Instance {
			a.Candidates = append(a.Candidates, c)
		}
	}
	if len(a.Candidates) > 0 {
		reply(m, a)
	}
}

// refreshFor has the candidates of the key read the bucket's info again, and then calls the function. It drops a request too many.
func (s *service) refreshFor(key string, then func()) {
	s.mu.Lock()
	if len(s.refreshes[key]) < maxRequests {
		s.refreshes[key] = append(s.refreshes[key], then)
	}
	s.mu.Unlock()
	wakeup.Send(s.stale)
}

// refresh has candidates read the bucket's info again, one request after the other: other requests must not wait for the server.
func (s *service) refresh(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.stale:
		}
		s.mu.Lock()
		waiting := s.refreshes
		s.refreshes = map[string][]func(){}
		s.mu.Unlock()
		for key, requests := range waiting {
			for _, member := range s.of(key) {
				member.served.Refresh(ctx)
			}
			for _, answer := range requests {
				answer()
			}
		}
	}
}

// handOver has the leader hand over, in a goroutine of its own, because the work may take its time to return. When ctx ends the handover
// is not waited for any longer.
func (s *service) handOver(ctx context.Context, leader Served, verb string, r request, m *nats.Msg) {
	select {
	case s.handovers <- struct{}{}:
	default:
		reject(m, codeFailed, "too many handovers are under way: ask again later")
		return
	}
	wait := time.Duration(r.WaitMs) * time.Millisecond
	if most := leader.HandoverTimeout(); r.WaitMs <= 0 || r.WaitMs > most.Milliseconds() {
		wait = most
	}
	reply(m, answer{Begun: true})
	s.log.Info("Handover requested", "verb", verb, "target", r.To)
	s.pending.Go(func() {
		defer func() { <-s.handovers }()
		ctx, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		var err error
		if verb == verbTransfer {
			err = leader.Transfer(ctx, r.To)
		} else {
			err = leader.Resign(ctx)
		}
		switch {
		case err == nil:
			reply(m, answer{})
		case errors.Is(err, context.DeadlineExceeded): // the caller's time is over; the handover goes on
			reply(m, answer{Begun: true})
		case errors.Is(err, context.Canceled):
			reject(m, codeFailed, "the leader stopped before the handover was complete")
		default:
			reject(m, codeOf(err), err.Error())
		}
	})
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

// inboxShape is what follows the prefix of an inbox that a client of nats.go makes.
var inboxShape = regexp.MustCompile(`^[0-9A-Za-z]{22}(\.[0-9A-Za-z]+)?$`)

// answerable reports whether an answer may be published to a reply subject. An answer is published with the permissions of this process,
// but the caller chooses the subject: so it must be an inbox. An answer must never be a write to a key, or a request to JetStream, to
// which an empty body or {} can be a valid request. Below the given inbox prefixes, one of which the caller names, every subject is
// refused that resembles either. api is the prefix of requests to JetStream, which may have any form; empty if it is not known.
func answerable(reply, api string, prefixes ...string) bool {
	if strings.HasPrefix(reply, nats.InboxPrefix) {
		return true
	}
	tokens := strings.Split(reply, ".")
	reserved := func(token string) bool {
		return strings.HasPrefix(token, "$") || strings.HasPrefix(token, "KV_") || token == "API"
	}
	if tokens[0] == "election" || tokens[0] == "election-control" || slices.ContainsFunc(tokens, reserved) ||
		api != "" && strings.Contains("."+reply+".", "."+api+".") {
		return false
	}
	return slices.ContainsFunc(prefixes, func(prefix string) bool {
		inbox, ok := strings.CutPrefix(reply, prefix+".")
		return ok && prefix != "" && inboxShape.MatchString(inbox)
	})
}

// restrict removes a reply subject that must not be answered. named is the inbox prefix that the request names.
func (s *service) restrict(m *nats.Msg, named string) {
	api := strings.TrimSuffix(kv.APIPrefix(s.bucket.JetStream()), ".")
	if !answerable(m.Reply, api, s.bucket.Conn().Opts.InboxPrefix, named) {
		m.Reply = ""
	}
}

// reply answers a request, if it has a reply subject. A caller that does not receive the answer asks again.
func reply(m *nats.Msg, v any) {
	if body, err := json.Marshal(v); err == nil {
		_ = m.Respond(body)
	}
}

// reject answers a request with an error, as micro services do.
func reject(m *nats.Msg, code int, text string) {
	r := nats.NewMsg(m.Reply)
	r.Header.Set(micro.ErrorHeader, strings.Join(strings.Fields(text), " ")) // a header is one line
	r.Header.Set(micro.ErrorCodeHeader, strconv.Itoa(code))
	_ = m.RespondMsg(r)
}
