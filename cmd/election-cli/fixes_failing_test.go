package main

import (
	"bytes"
	"os/exec"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/control"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/test/clitest"
)

// maxStore is how much the server stores in files.
const maxStore = 8 << 20

// failingFixes are the troubles of a candidate that says in its answer why its requests fail.
var failingFixes = map[string]func(*fixing){
	"a candidate may not write any more": func(f *fixing) {
		cmd, log := f.limitedCandidate("web-1")
		f.mendFailing(`"web-1" fail`, func(fix string) {
			f.Expect(fix).To(Equal(`permit the user of "web-1" to publish to $KV.LEADER_ELECTION.jobs`))
			f.grant("limited", fix, 0)
		}, "jobs")
		f.must(cmd.Process.Kill())
		_ = cmd.Wait()
		f.Expect(log.String()).To(ContainSubstring("The server does not permit this user to publish to $KV.LEADER_ELECTION.jobs"))
	},
	"a candidate may not receive answers any more": func(f *fixing) {
		cmd, _ := f.limitedCandidate("web-1")
		f.findsThat(f.code, failing("$KV."), "jobs")
		moved := candidatePermissions(func(verb, subject string) bool { return verb == "subscribe" && strings.HasPrefix(subject, "_INBOX") })
		moved.Subscribe.Allow = append(moved.Subscribe.Allow, "_INBOX_web.>")
		f.permit("limited", moved)
		f.mendFailing("may not receive answers", func(fix string) {
			f.Expect(fix).To(Equal(`have "web-1" connect with the inbox prefix that its permissions name, by --inbox-prefix, ELECTION_INBOX_PREFIX or nats.CustomInboxPrefix`))
			f.must(cmd.Process.Kill())
			f.startLimited("web-1", "--inbox-prefix", "_INBOX_web")
		}, "jobs")
	},
	"the account of a candidate has no room": func(f *fixing) {
		f.withoutAccountInfo()
		f.Put("other", clitest.LeaderRecord("web-2", nil))
		f.limitStore(1)
		f.campaign("web-1")
		f.mendFailing("resource limits exceeded for account", func(fix string) {
			f.Expect(fix).To(HavePrefix("raise max_file of the account, "))
			f.limitStore(1 << 20)
		}, "jobs", "--as", "operator")
	},
	"the server of a candidate has no room": func(f *fixing) {
		elsewhere := clitest.Connect(f.T, f.url, "elsewhere")
		orders, err := elsewhere.JetStream.CreateStream(f.T.Context(), jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders"}})
		f.must(err)
		for size := 1 << 17; size > 0; size /= 2 {
			for err = nil; err == nil; {
				_, err = elsewhere.JetStream.Publish(f.T.Context(), "orders", make([]byte, size))
			}
		}
		f.campaign("web-1")
		f.mendFailing("insufficient", func(fix string) {
			f.Expect(fix).To(HavePrefix("raise max_file of the servers, or max_mem for a bucket in memory, or remove what fills them, which 'nats stream report' lists"))
			f.must(orders.Purge(f.T.Context()))
		}, "jobs")
	},
	"the bucket had no room": func(f *fixing) { // a moment ago
		stop := f.answer("jobs", map[string]any{"name": "web-1", "instance": "i-web-1", "state": "candidate", "last_error": "nats: API error: code=503 err_code=10077 description=maximum bytes exceeded"})
		f.mendFailing("maximum bytes exceeded", func(fix string) {
			f.Expect(fix).To(Equal("wait until it tries again: the bucket has room now"))
			stop()
			f.campaign("web-1")
		}, "jobs")
	},
	"the bucket was unfit": func(f *fixing) {
		f.changeTTL(clitest.Timeout)
		f.Put("jobs", clitest.LeaderRecord("stranger", nil))
		f.campaign("web-1", election.WithCampaignInterval(10*time.Second)) // which leaves time to look
		f.changeTTL(0)
		f.refresh()
		f.purge()
		f.changeTTL(clitest.Timeout)
		f.mendFailing("has no TTL", func(fix string) { f.Expect(fix).To(Equal("wait until it looks again: the bucket is fit now")) }, "jobs")
	},
	"the interval of a candidate does not fit any more": func(f *fixing) {
		f.Put("jobs", clitest.LeaderRecord("stranger", nil))
		e := f.campaign("web-1", election.WithCampaignInterval(f.ttl*3/4))
		f.changeTTL(f.ttl * 3 / 4)
		f.refresh()
		f.purge()
		f.mendFailing("invalid option: with the bucket's TTL of 3s", func(fix string) {
			f.Expect(fix).To(Equal(`change that option of "web-1", or the bucket's TTL`))
			clitest.Shutdown(f.T, e)
			f.campaign("web-1", election.WithCampaignInterval(f.ttl/4))
		}, "jobs")
	},
}

// refresh has the candidates of jobs read the info of the bucket again.
func (f *fixing) refresh() {
	f.T.Helper()
	f.must(control.Client{Bucket: kv.With(f.Bucket, nil)}.Refresh(f.T.Context(), "jobs"))
}

// limitedCandidate starts a candidate of the limited user, which may not write.
func (f *fixing) limitedCandidate(name string) (cmd *exec.Cmd, log *bytes.Buffer) {
	f.T.Helper()
	f.withhold("publish", "$KV.")
	return f.startLimited(name, "--inbox-prefix", "_INBOX_limited")
}

// startLimited starts a candidate of the limited user, until the end of the test.
func (f *fixing) startLimited(name string, args ...string) (cmd *exec.Cmd, log *bytes.Buffer) {
	f.T.Helper()
	f.user = "limited"
	cmd, _, log = f.command(append([]string{"campaign", "jobs", "--name", name}, args...)...)
	f.must(cmd.Start())
	f.user = "admin"
	return cmd, log
}

// failing matches a finding that says why requests fail.
func failing(why string) OmegaMatcher {
	return And(ContainSubstring("requests of "), ContainSubstring(why))
}

// mendFailing is mend where the finding must say why requests fail.
func (f *fixing) mendFailing(why string, follow func(fix string), args ...any) {
	f.T.Helper()
	f.mendThat(failing(why), follow, args...)
}

// withoutAccountInfo has the commands run as an operator who may not ask for the limits of the account.
func (f *fixing) withoutAccountInfo() {
	f.T.Helper()
	f.user = "limited"
	f.permit("limited", &server.Permissions{Publish: &server.SubjectPermission{Deny: []string{"$JS.API.INFO"}}})
}

// limitStore limits what the account stores in files, until permissions change: the server reads its configuration again then.
func (f *fixing) limitStore(bytes int64) {
	f.T.Helper()
	account, err := f.server.LookupAccount("ELECTIONS")
	f.must(err)
	f.must(account.UpdateJetStreamLimits(map[string]server.JetStreamAccountLimits{"": {MaxMemory: -1, MaxStore: bytes, MaxStreams: -1, MaxConsumers: -1}}))
}
