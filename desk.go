package election

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"github.com/nats-io/nuid"
)

const (
	serviceName = "election"
	modulePath  = "github.com/natscampaign/election"
	// maxQuestions is how many questions may wait to be read.
	maxQuestions = 256
	// maxWindingUp is how many requests to hand over may be under way in a process.
	maxWindingUp = 16
)

// desk answers for the candidates that share a hub. It is a NATS micro service, so that `nats micro` finds it, but is not
// made by package micro: that takes over the error and closed handlers of a connection, which is not ours, and its end
// undoes what the owner has set since. Here all subjects come in on one channel, to one goroutine.
type desk struct {
	hub       *hub
	identity  micro.ServiceIdentity
	started   time.Time
	subs      []*nats.Subscription
	questions chan *nats.Msg // as they come
	asked     map[string]int // questions by verb
	failed    map[string]int // those of them that were no questions
	windUps   chan struct{}  // holds one for each request to hand over that is under way
	looks     chan *nats.Msg // a request to look that waits: it serves for all that come meanwhile
	api       string         // the prefix of this process's requests to JetStream, if it is not the default
	inbox     string         // the inbox prefix of this process's connection, likewise
	busy      sync.WaitGroup // those who look and hand over
}

// verbs are those that the desk counts, and tells of.
var verbs = []string{verbCandidates, verbResign, verbTransfer}

// open returns a desk that is subscribed to what it answers. It waits for nothing: whoever hears of a campaign that is made
// later on this connection finds the desk open.
func (h *hub) open() *desk {
	host, _ := os.Hostname()
	d := &desk{
		hub: h, started: time.Now(), asked: map[string]int{}, failed: map[string]int{}, questions: make(chan *nats.Msg, maxQuestions),
		windUps: make(chan struct{}, maxWindingUp), looks: make(chan *nats.Msg, 1),
		api: strings.TrimSuffix(h.js.Options().APIPrefix, "."), inbox: h.conn.Opts.InboxPrefix,
		identity: micro.ServiceIdentity{
			Name: serviceName, ID: nuid.Next(), Version: version(),
			Metadata: map[string]string{"bucket": h.bucket.Bucket(), "host": host, "pid": strconv.Itoa(os.Getpid())},
		},
	}
	for _, subject := range []string{
		controlSubject(h.bucket.Bucket(), "*", ">"),
		micro.APIPrefix + ".*", micro.APIPrefix + ".*." + serviceName, micro.APIPrefix + ".*." + serviceName + "." + d.identity.ID,
	} {
		sub, err := h.conn.ChanSubscribe(subject, d.questions)
		if err != nil {
			h.log.Debug("Questions about candidates cannot be heard", "subject", subject, "error", err)
			continue
		}
		d.subs = append(d.subs, sub)
	}
	return d
}

// serve answers until ctx ends, and closes the desk.
func (d *desk) serve(ctx context.Context) {
	defer func() {
		for _, sub := range d.subs {
			_ = sub.Unsubscribe()
		}
	}()
	defer d.busy.Wait()
	d.busy.Go(func() { d.look(ctx) })
	for {
		select {
		case <-ctx.Done():
			return
		case m := <-d.questions:
			if rest, ok := strings.CutPrefix(m.Subject, micro.APIPrefix+"."); ok {
				verb, _, _ := strings.Cut(rest, ".")
				d.introduce(verb, m)
			} else {
				d.answer(ctx, m)
			}
		}
	}
}

// look has the hub's elections look whether they are paused when somebody asks for it. It takes a request to the server,
// which no other question should wait for.
func (d *desk) look(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case m := <-d.looks:
			d.hub.heed(ctx)
			reply(m, answer{})
		}
	}
}

// answer reads one question and answers it, or has it answered.
func (d *desk) answer(ctx context.Context, m *nats.Msg) {
	tokens := strings.SplitN(m.Subject, ".", 4) // as controlSubject joins them
	verb, key := tokens[2], tokens[3]
	if verb != verbLook && !slices.Contains(verbs, verb) {
		return
	}
	d.asked[verb]++
	q := question{Key: key}
	failed := len(m.Data) > 0 && json.Unmarshal(m.Data, &q) != nil
	d.restrict(m, q.InboxPrefix)
	if failed {
		d.failed[verb]++
		reject(m, codeBad, `the body cannot be read: send none, or a JSON object such as {"to":"web-2"}`)
		return
	}
	if verb == verbLook {
		select {
		case d.looks <- m:
		default:
		}
		return
	}
	if !q.Bucket.IsZero() && !d.hub.knows(q.Bucket) {
		return
	}
	if verb == verbCandidates {
		var a answer
		for _, ear := range d.hub.listeners(q.Key) {
			if q.Instance != "" && q.Instance != ear.election.instance {
				continue
			}
			a.Candidates = append(a.Candidates, ear.election.candidate())
		}
		if len(a.Candidates) > 0 {
			reply(m, a)
		}
		return
	}
	for _, ear := range d.hub.listeners(q.Key) {
		if t := ear.election.tenure.Load(); t != nil && t.holds() && (q.Instance == "" || q.Instance == ear.election.instance) {
			d.handOver(ctx, ear.election, verb, q, m)
			return
		}
	}
}

// handOver has the leader hand over, in a goroutine of its own, for the work may take its time to wind up. It is not
// waited for any longer when ctx ends, as the desk closes.
func (d *desk) handOver(ctx context.Context, e *Election, verb string, q question, m *nats.Msg) {
	select {
	case d.windUps <- struct{}{}:
	default:
		reject(m, codeFailed, "too many requests to hand over are under way: ask again later")
		return
	}
	wait := time.Duration(q.WaitMs) * time.Millisecond
	if most := e.facts.Load().ttl + windUpPatience; q.WaitMs <= 0 || q.WaitMs > most.Milliseconds() {
		wait = most
	}
	reply(m, answer{Begun: true})
	e.log.Info("Asked to hand over", "verb", verb, "to", q.To)
	d.busy.Go(func() {
		defer func() { <-d.windUps }()
		ctx, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		var err error
		if verb == verbTransfer {
			err = e.Transfer(ctx, q.To)
		} else {
			err = e.Resign(ctx)
		}
		switch {
		case err == nil:
			reply(m, answer{})
		case errors.Is(err, context.DeadlineExceeded): // the asker's time is over, not the winding up
			reply(m, answer{Begun: true})
		case errors.Is(err, context.Canceled):
			reject(m, codeFailed, "the leader stopped before it heard who leads now")
		default:
			reject(m, codeOf(err), err.Error())
		}
	})
}

// introduce answers what any micro service is asked.
func (d *desk) introduce(verb string, m *nats.Msg) {
	d.restrict(m, "")
	switch verb {
	case micro.PingVerb.String():
		reply(m, micro.Ping{ServiceIdentity: d.identity, Type: micro.PingResponseType})
	case micro.InfoVerb.String():
		info := micro.Info{ServiceIdentity: d.identity, Type: micro.InfoResponseType, Description: "Leader election: who stands, and handing over"}
		for _, v := range verbs {
			info.Endpoints = append(info.Endpoints, micro.EndpointInfo{Name: v, Subject: controlSubject(d.hub.bucket.Bucket(), v, ">")})
		}
		reply(m, info)
	case micro.StatsVerb.String():
		stats := micro.Stats{ServiceIdentity: d.identity, Type: micro.StatsResponseType, Started: d.started.UTC()}
		for _, v := range verbs {
			stats.Endpoints = append(stats.Endpoints, &micro.EndpointStats{
				Name: v, Subject: controlSubject(d.hub.bucket.Bucket(), v, ">"), NumRequests: d.asked[v], NumErrors: d.failed[v],
			})
		}
		reply(m, stats)
	}
}

// inboxShape is what follows the prefix of an inbox that a client of nats.go makes.
var inboxShape = regexp.MustCompile(`^[0-9A-Za-z]{22}(\.[0-9A-Za-z]+)?$`)

// answerable says whether an answer may be published to a reply subject. An answer is published with the permissions of this
// process, but the asker chooses the subject: so it must be an inbox. An answer must never be a write to a key, or a request to
// JetStream, to which an empty body or {} can be a valid one. Below the given inbox prefixes, one of which the asker names, all
// is refused that resembles either. api is the prefix of requests to JetStream, if it is not the default.
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

// restrict leaves a request without a reply subject if that must not be answered. named is the inbox prefix that it names.
func (d *desk) restrict(m *nats.Msg, named string) {
	if !answerable(m.Reply, d.api, d.inbox, named) {
		m.Reply = ""
	}
}

// reply answers a request, if it has a reply subject. Whoever does not get the answer asks again.
func reply(m *nats.Msg, v any) {
	if text, err := json.Marshal(v); err == nil {
		_ = m.Respond(text)
	}
}

// reject answers a request with an error, as micro services do.
func reject(m *nats.Msg, code int, text string) {
	r := nats.NewMsg(m.Reply)
	r.Header.Set(micro.ErrorHeader, strings.Join(strings.Fields(text), " ")) // a header is one line
	r.Header.Set(micro.ErrorCodeHeader, strconv.Itoa(code))
	_ = m.RespondMsg(r)
}

// version returns the version of this package, as builds know it.
var version = sync.OnceValue(func() string {
	const unknown = "0.0.0"
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return unknown
	}
	modules := append(info.Deps, &info.Main)
	for _, m := range modules {
		if m.Path == modulePath && strings.HasPrefix(m.Version, "v") {
			return strings.TrimPrefix(m.Version, "v")
		}
	}
	return unknown
})
