package docs_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/test/natstest"
)

// attempt is a user that tries to have a message arrive on a subject. Errors count as failures to do so.
type attempt struct {
	*bench
	nc        *nats.Conn
	permitted []string // the subjects that the user may publish to, as its block has them
	consumers int      // how many were created
}

// way is a way to have a message arrive.
type way struct {
	name string
	try  func(a *attempt, m *nats.Msg)
}

// ways are all that are known. The server itself publishes what comes by all but the first, and by a reply to a program of the user.
var ways = []way{
	{"directly", (*attempt).publish}, {"by reply", (*attempt).reply}, {"by consumer", (*attempt).consume}, {"by trace", (*attempt).trace}, {"by settings", (*attempt).configure},
}

// chosen is what a user has arrive, if it can choose the text.
const chosen = "chosen by the user"

// requests calls f with each message that the user may publish.
func (a *attempt) requests(f func(m *nats.Msg)) {
	for _, subject := range a.permitted {
		m := &nats.Msg{Subject: strings.NewReplacer("*", "x", ">", "x").Replace(subject), Data: []byte("?")} // nothing that the server would do
		switch {
		case strings.Contains(subject, ".DIRECT.GET."):
			m.Data = nil
		case !strings.HasPrefix(subject, "$JS.") && !strings.HasPrefix(subject, "elections.STREAM."):
			m.Data = []byte(chosen)
		}
		f(m)
	}
}

func (a *attempt) publish(m *nats.Msg) { _ = a.nc.PublishMsg(m) }

// reply sends every request with the reply subject m.Subject, and sends m as the answer to those that it receives itself.
func (a *attempt) reply(m *nats.Msg) {
	a.requests(func(request *nats.Msg) {
		own, err := a.nc.SubscribeSync(request.Subject)
		a.Expect(err).NotTo(HaveOccurred())
		request.Reply = m.Subject
		_ = a.nc.PublishMsg(request)
		if _, err := own.NextMsg(10 * time.Millisecond); err == nil {
			_ = a.nc.PublishMsg(m)
		}
		_ = own.Unsubscribe()
	})
}

// consume creates a consumer that delivers to m.Subject what is stored, and heartbeats.
func (a *attempt) consume(m *nats.Msg) {
	for _, subject := range a.permitted {
		before, after, create := strings.Cut(subject, "CONSUMER.CREATE.")
		if !create {
			continue
		}
		stream, rest, _ := strings.Cut(after, ".")
		_, filter, _ := strings.Cut(rest, ".")
		a.consumers++
		name := fmt.Sprint("c", a.consumers)
		config := map[string]any{
			"name": name, "deliver_subject": m.Subject, "ack_policy": "none", "deliver_policy": "all", "idle_heartbeat": 100 * time.Millisecond, "inactive_threshold": time.Second,
		}
		to := before + "CONSUMER.CREATE." + stream + "." + name
		if filter != "" {
			config["filter_subject"] = filter
			to += "." + filter
		}
		body, err := json.Marshal(map[string]any{"stream_name": stream, "config": config, "action": "create"})
		a.Expect(err).NotTo(HaveOccurred())
		_, _ = a.nc.Request(to, body, 50*time.Millisecond)
	}
}

// trace has the server publish to m.Subject what became of each message that the user may publish.
func (a *attempt) trace(m *nats.Msg) {
	a.requests(func(request *nats.Msg) {
		request.Header = nats.Header{"Nats-Trace-Dest": {m.Subject}}
		_ = a.nc.PublishMsg(request)
	})
}

// configure has the bucket republish to m.Subject what it stores, and store what the user may publish.
func (a *attempt) configure(m *nats.Msg) {
	carrier := slices.IndexFunc(a.permitted, func(subject string) bool { return !strings.HasPrefix(subject, "$JS.") })
	if carrier < 0 || !slices.Contains(a.permitted, "$JS.API.STREAM.UPDATE.KV_"+bucketName) {
		return
	}
	s, err := a.js(root).Stream(a.ctx, "KV_"+bucketName)
	a.Expect(err).NotTo(HaveOccurred())
	config, subject := s.CachedInfo().Config, strings.ReplaceAll(a.permitted[carrier], ">", "x")
	before := config
	config.Subjects = []string{"$KV." + bucketName + ".>"}
	if !strings.HasPrefix(subject, "$KV.") {
		config.Subjects = append(config.Subjects, subject)
	}
	config.RePublish = &jetstream.RePublish{Source: subject, Destination: m.Subject}
	js, err := jetstream.New(a.nc)
	a.Expect(err).NotTo(HaveOccurred())
	_, _ = js.UpdateStream(a.ctx, config)
	_ = a.nc.Publish(subject, []byte(chosen))
	_ = a.nc.Flush()
	time.Sleep(10 * time.Millisecond)
	_, err = a.js(root).UpdateStream(a.ctx, before)
	a.Expect(err).NotTo(HaveOccurred())
}

// attemptOf returns an attempt of a user who may publish to these subjects.
func (b *bench) attemptOf(user string, permitted []string) *attempt {
	b.Helper()
	return &attempt{bench: b, nc: b.connect(user, nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})), permitted: permitted}
}

// permittedBy returns the subjects that a block permits to publish to.
func permittedBy(t *testing.T, block string) (subjects []string) {
	t.Helper()
	publish, _, _ := strings.Cut(block, "subscribe = [")
	for _, l := range linesOf(t, publish) {
		if !l.option {
			subjects = append(subjects, strings.Trim(l.name, `"`))
		}
	}
	return subjects
}

// beyond are subjects of all kinds that no role may publish to.
var beyond = []string{
	"$KV.ELECTIONS.other", "$KV.OTHER.x", "$JS.API.STREAM.LEADER.STEPDOWN.KV_ELECTIONS", "$JS.API.STREAM.DELETE.OTHER", "$JS.API.CONSUMER.DELETE.OTHER.c",
	"election-control.ELECTIONS.resign.other", "election-control.OTHER.candidates.x", "election-answers.ELECTIONS.x.other", "election.ELECTIONS.x.other",
	"_INBOX.x.y", "_INBOX_other.x.y", "$SRV.PING.billing", "other.stream", "application",
}

// reached says what a user can have arrive, on subjects that it may not publish to, in each of the ways.
func reached(b *bench, user string, permitted []string) (cells []string) {
	b.leader(root, "a", key)
	js := b.js(root)
	for _, c := range []jetstream.StreamConfig{{Name: "ORDERS", Subjects: []string{"orders.>"}}, {Name: "OTHER", Subjects: []string{"other.>"}}} {
		c.Storage = jetstream.MemoryStorage
		_, err := js.CreateStream(b.ctx, c)
		b.Expect(err).NotTo(HaveOccurred())
	}
	a := b.attemptOf(user, permitted)
	for _, w := range ways {
		var something, anything []string
		for _, target := range beyond {
			arrived, err := b.connect(root).SubscribeSync(target) // a consumer delivers to what somebody subscribes to
			b.Expect(err).NotTo(HaveOccurred())
			b.Expect(arrived.SetPendingLimits(-1, -1)).To(Succeed())
			a.requests(func(m *nats.Msg) { _ = a.nc.PublishMsg(m) }) // stores what can be read
			b.Expect(a.nc.Flush()).To(Succeed())
			time.Sleep(10 * time.Millisecond)
			w.try(a, &nats.Msg{Subject: target, Data: []byte(chosen)})
			b.Expect(a.nc.Flush()).To(Succeed())
			time.Sleep(300 * time.Millisecond)
			for m, err := arrived.NextMsg(time.Millisecond); err == nil; m, err = arrived.NextMsg(time.Millisecond) {
				if !slices.Contains(something, target) {
					something = append(something, target)
				}
				if string(m.Data) == chosen && !slices.Contains(anything, target) {
					anything = append(anything, target)
				}
			}
			b.Expect(arrived.Unsubscribe()).To(Succeed())
			time.Sleep(2 * time.Second) // until the server has removed the consumers
		}
		all := len(beyond)
		if w.name == "by consumer" || w.name == "by settings" { // the server refuses what would feed a stream with its own messages
			b.Expect(something).NotTo(ContainElement(beyond[0]))
			all--
		}
		switch {
		case len(something) == 0:
			cells = append(cells, "nothing")
		case len(something) == all && len(anything) == 0:
			cells = append(cells, "something")
		case len(anything) == all:
			cells = append(cells, "anything")
		default:
			cells = append(cells, fmt.Sprintf("something on %v, anything on %v", something, anything))
		}
	}
	return cells
}

func TestPageSaysWhatEachRoleCanHaveArriveWhereItMayNotPublish(t *testing.T) {
	natstest.SkipIfShort(t)
	text, err := os.ReadFile("PERMISSIONS.md")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	page := blocks(t)
	for role, user := range users {
		t.Run(role, func(t *testing.T) {
			g := NewWithT(t)
			var cells []string
			g.Expect(run(t, configOf(page), func(b *bench) { cells = reached(b, user, permittedBy(t, page[role])) })).To(BeEmpty())
			t.Log(role, cells)
			g.Expect(rowsOf(string(text), "ELECTION_"+role)).To(ContainElement(" " + strings.Join(cells, " | ") + " |"))
		})
	}
}

func TestResponsesLetARoleMoveTheLeadersOfOtherElections(t *testing.T) {
	natstest.SkipIfShort(t)
	page := blocks(t)
	for _, role := range []string{"CANDIDATE", "MEMBER", "HOLDER"} {
		block := strings.TrimSuffix(page[role], "}\n") + "  allow_responses = true\n}\n"
		var found []string
		g := NewWithT(t)
		g.Expect(run(t, configOf(adapt(page, role, block)), func(b *bench) { found = misuse(b, users[role], permittedBy(t, block)) })).To(BeEmpty())
		g.Expect(found).To(ContainElement(handsOver), role)
	}
}

func TestUsersOfOneInboxPrefixCanForgeEachOthersAnswers(t *testing.T) {
	natstest.SkipIfShort(t)
	shared := func(string) nats.Option { return nats.CustomInboxPrefix("_INBOX") }
	page := blocks(t)
	for role, user := range users {
		page[role] = strings.Replace(page[role], `"_INBOX_`+user+`.>"`, `"_INBOX.>"`, 1)
	}
	forges := func(b *bench) {
		b.leader(root, "a", "other")
		a := b.attemptOf("locks", permittedBy(b.T, page["HOLDER"]))
		seen, err := a.nc.SubscribeSync("_INBOX.>")
		b.Expect(err).NotTo(HaveOccurred())
		b.Expect(a.nc.Flush()).To(Succeed())
		silent := b.connect(root)
		_, err = silent.SubscribeSync("election-control.ELECTIONS.candidates.scheduler") // which answers nothing
		b.Expect(err).NotTo(HaveOccurred())
		b.Expect(silent.Flush()).To(Succeed()) // else the victim's request may find nobody
		victim := b.connect("web")
		_, err = victim.Request("$JS.API.STREAM.INFO.KV_ELECTIONS", nil, time.Second)
		b.Expect(err).NotTo(HaveOccurred())
		var inbox string
		for inbox == "" {
			m, err := seen.NextMsg(time.Second)
			b.Expect(err).NotTo(HaveOccurred(), "the attacker sees the answer, and with it the inbox")
			if strings.Contains(string(m.Data), "stream_info_response") {
				inbox = m.Subject[:strings.LastIndex(m.Subject, ".")]
			}
		}
		a.requests(func(m *nats.Msg) { _ = a.nc.PublishMsg(m) })
		_, err = a.nc.SubscribeSync(inbox + ".x") // a consumer delivers to what somebody subscribes to, without wildcards
		b.Expect(err).NotTo(HaveOccurred())
		go a.consume(&nats.Msg{Subject: inbox + ".x"})
		answer, err := victim.Request("election-control.ELECTIONS.candidates.scheduler", nil, time.Second)
		b.Expect(err).NotTo(HaveOccurred())
		b.Expect(string(answer.Data)).To(Equal(chosen))
	}
	NewWithT(t).Expect(run(t, configOf(page), forges, shared)).To(BeEmpty())
	NewWithT(t).Expect(run(t, configOf(blocks(t)), forges)).To(ContainSubstring("sees the answer"))
}
