package control

import (
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
)

// verbs are the verbs of the requests, each an endpoint of the micro service.
var verbs = []string{verbCandidates, verbResign, verbTransfer, verbRefresh}

// counters are what a service counts of the requests of one verb.
type counters struct {
	requests, errors int
	lastError        string
	took             time.Duration
}

// count counts a request that took so long to handle; err is what was wrong with it, or nil.
func (s *service) count(verb string, took time.Duration, err error) {
	s.mu.Lock()
	c := s.counters[verb]
	c.requests++
	c.took += took
	s.counters[verb] = c
	s.mu.Unlock()
	if err != nil {
		s.countError(verb, err)
	}
}

// countError counts a request that failed.
func (s *service) countError(verb string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.counters[verb]
	c.errors++
	c.lastError = err.Error()
	s.counters[verb] = c
}

// identify answers the requests by which `nats micro` finds services, and asks what they do. It drops those that cannot be answered, as
// handle does.
func (s *service) identify(m *nats.Msg) {
	if !isRequest(m) || m.Size() > maxRequestBytes || !answerable(m.Reply, s.bucket.Bucket(), "") {
		return
	}
	verb, _, _ := strings.Cut(strings.TrimPrefix(m.Subject, micro.APIPrefix+"."), ".")
	switch verb {
	case micro.PingVerb.String():
		reply(m, micro.Ping{ServiceIdentity: s.identity, Type: micro.PingResponseType})
	case micro.InfoVerb.String():
		reply(m, s.info())
	case micro.StatsVerb.String():
		reply(m, s.stats())
	}
}

func (s *service) info() micro.Info {
	info := micro.Info{ServiceIdentity: s.identity, Type: micro.InfoResponseType, Description: "Leader election: candidates and handovers"}
	for _, verb := range verbs {
		info.Endpoints = append(info.Endpoints, micro.EndpointInfo{Name: verb, Subject: Subject(s.bucket.Bucket(), verb, ">"), Metadata: map[string]string{}})
	}
	return info
}

func (s *service) stats() micro.Stats {
	stats := micro.Stats{ServiceIdentity: s.identity, Type: micro.StatsResponseType, Started: s.started}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, verb := range verbs {
		c := s.counters[verb]
		e := &micro.EndpointStats{
			Name: verb, Subject: Subject(s.bucket.Bucket(), verb, ">"),
			NumRequests: c.requests, NumErrors: c.errors, LastError: c.lastError, ProcessingTime: c.took,
		}
		if c.requests > 0 {
			e.AverageProcessingTime = c.took / time.Duration(c.requests)
		}
		stats.Endpoints = append(stats.Endpoints, e)
	}
	return stats
}
