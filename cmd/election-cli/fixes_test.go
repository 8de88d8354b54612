package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/cli/checkup"
	"github.com/natscampaign/election/internal/drill/faultproxy"
	"github.com/natscampaign/election/internal/test/clitest"
	"github.com/natscampaign/election/internal/test/natstest"
)

// fixes lists the troubles that check finds, by the code of the finding and by what distinguishes them. Each function makes the trouble, and does what
// the fix of the finding says, to the letter; [fixing.mend] sees that the trouble is over then.
var fixes = map[string]map[string]func(*fixing){
	"no-bucket": {
		"it was removed": func(f *fixing) {
			f.RemoveBucket()
			f.mend(func(fix string) { f.runs(fix, "create it with 'election-cli bucket add'") })
		},
		"the account is the wrong one": func(f *fixing) {
			f.user = "elsewhere"
			f.mend(func(fix string) {
				f.Expect(fix).To(ContainSubstring("if this is the wrong account, connect as a user of the right one"))
				f.user = "admin"
			})
		},
	},
	"no-leader": {
		"paused": func(f *fixing) {
			f.ok("pause", "jobs", "--force")
			f.campaign("web-1")
			f.mend(func(fix string) { f.runs(fix, "run 'election-cli resume jobs'") }, "jobs")
		},
		"no candidate runs": func(f *fixing) {
			f.mend(func(fix string) {
				f.Expect(fix).To(HavePrefix("start the program that campaigns, or read its log"))
				f.campaign("web-1")
			}, "jobs")
		},
		"a candidate has the wrong password": func(f *fixing) {
			cmd, _, stderr := command(f.T, "campaign", "jobs", "-s", f.url, "--user", "admin", "--password", "wrong")
			f.must(cmd.Start())
			f.mend(func(fix string) {
				f.Expect(fix).To(ContainSubstring("read its log, which says why: a candidate that cannot connect"))
				_ = cmd.Wait()
				f.Expect(stderr.String()).To(ContainSubstring("the server refuses the credentials"))
				f.campaign("web-1")
			}, "jobs")
		},
		"this user may not ask": func(f *fixing) {
			f.user = "asks-nobody"
			f.heldBack("web-1")
			f.mend(func(fix string) {
				f.Expect(fix).To(HavePrefix("run 'election-cli check jobs --as operator' as a user who may publish to "))
				f.grant("asks-nobody", fix, 0)
				f.Eventually(func() string { // the answer may come too late
					_, stdout, _ := f.run(commands(fix)[0]...)
					return stdout
				}).Should(ContainSubstring("1 candidate answers, and none is ready"), "which the user did not learn before")
				f.candidates[0].Resume()
			}, "jobs", "--as", "observer")
		},
		"this user may not write": func(f *fixing) {
			f.user = "observer"
			f.mend(func(fix string) {
				f.Expect(fix).To(ContainSubstring("permit to publish to $KV.LEADER_ELECTION.>, or to $KV.LEADER_ELECTION.jobs"))
				f.grant("observer", fix, 1)
				f.campaign("web-1")
			}, "jobs")
		},
		"none is ready": func(f *fixing) {
			f.heldBack("web-1")
			f.mendThat(ContainSubstring("none is ready"), func(fix string) {
				f.runs(fix, "run 'election-cli candidates jobs', and see in the log of a candidate what holds it back")
				f.candidates[0].Resume() // its program held it back
			}, "jobs")
		},
		"a candidate is about to win": func(f *fixing) {
			stop := f.answer("jobs", map[string]any{"name": "web-1", "instance": "i-web-1", "state": "candidate", "ready": true})
			f.mendThat(ContainSubstring("election-cli wait jobs"), func(fix string) {
				stop()
				f.campaign("web-1")
				f.runs(fix, "run 'election-cli wait jobs --max-wait 13s'")
			}, "jobs")
		},
		"a candidate says that it leads": func(f *fixing) {
			stop := f.answer("jobs", map[string]any{"name": "web-1", "instance": "i-web-1", "state": "leader"})
			f.mendThat(ContainSubstring("if this stays"), func(fix string) {
				f.Expect(fix).To(HavePrefix("run 'election-cli check jobs' again; if this stays, run 'election-cli info': a replica is far behind"))
				stop()
				f.Put("jobs", clitest.LeaderRecord("web-1", nil)) // as the replica would have it
			}, "jobs")
		},
		"the bucket is unfit": func(f *fixing) {
			f.purge() // whatever the fix of that finding says is followed by the tests of that finding
			f.changeTTL(0)
			f.mend(func(fix string) {
				f.Expect(fix).NotTo(ContainSubstring("start"))
				f.changeTTL(f.ttl)
				f.campaign("web-1")
			}, "jobs")
		},
	},
	"lease-over": {
		"the record does not expire, and nobody campaigns": func(f *fixing) {
			f.putForEver("jobs")
			f.awaitAge(f.ttl + time.Second)
			f.mend(func(fix string) {
				f.Expect(fix).To(HavePrefix("start the program that campaigns"))
				f.campaign("web-1")
			}, "jobs")
		},
	},
	"outlived": {"a record does not expire": func(f *fixing) {
		f.putForEver("jobs")
		f.awaitAge(f.ttl + time.Second)
		f.mend(func(fix string) {
			f.Expect(fix).To(HavePrefix("evict each, by Admin.Evict or 'election-cli evict jobs --bucket LEADER_ELECTION'"))
			f.ok(append(commands(fix)[0], "--force")...)
		}, "jobs")
	}},
	"two-leaders": {"one does not hold the key": func(f *fixing) {
		f.leads(f.campaign("web-1"))
		stop := f.answer("jobs", map[string]any{"name": "web-2", "instance": "other", "host": "h2", "state": "leader"})
		f.mend(func(fix string) {
			f.Expect(fix).To(MatchRegexp(`^stop all but "web-1" on \S+, which holds the key`))
			stop()
		}, "jobs")
	}},
	"leader-elect": {"a stand-down is not over": func(f *fixing) {
		f.changeTTL(clitest.Timeout) // which leaves time to look
		f.campaign("web-1", election.WithStandDown(12*time.Second))
		f.Eventually(f.candidates[0].State).Should(Equal(election.LeaderElectState))
		f.mend(func(fix string) {
			f.runs(fix, "wait for the end of its stand-down: 'election-cli wait jobs' returns then")
		}, "jobs")
	}},
	"renewal-overdue": {
		"the leader is cut off": func(f *fixing) {
			f.changeTTL(clitest.Timeout) // which leaves time to look
			link, bucket := f.linked()
			f.leads(f.campaignIn(bucket, "web-1", election.WithCampaignInterval(time.Second)))
			link.Stall()
			f.mend(func(fix string) {
				f.Expect(fix).To(HavePrefix("check its host and its connection to the server"))
				link.Heal()
			}, "jobs", "--overdue", "3s")
		},
		"it renews seldom on purpose": func(f *fixing) {
			f.leads(f.campaign("web-1"))
			overdue := "1us"
			f.mend(func(fix string) {
				f.Expect(fix).To(ContainSubstring("if it renews less often on purpose, raise --overdue"))
				overdue = f.ttl.String()
			}, "jobs", "--overdue", &overdue)
		},
	},
	"paused": {"a leader leads on": func(f *fixing) {
		f.changeTTL(clitest.Timeout) // which a leader on a busy host outlasts
		f.leads(f.campaign("web-1"))
		f.ok("pause", "jobs")
		f.mend(func(fix string) { f.runs(fix, "run 'election-cli resume jobs'") }, "jobs")
	}},
	"same-name": {
		"rename one": func(f *fixing) {
			f.leads(f.campaign("web-1"))
			second := f.campaign("web-1")
			f.mend(func(fix string) {
				f.Expect(fix).To(HavePrefix("give each candidate a name of its own"))
				clitest.Shutdown(f.T, second)
				f.campaign("web-2")
			}, "jobs")
		},
		"transfer to the instance": func(f *fixing) {
			f.changeTTL(clitest.Timeout) // which a leader on a busy host outlasts
			f.leads(f.campaign("web-1"))
			second := f.campaign("web-1")
			f.Expect(f.finds("same-name", "jobs")).To(HaveSuffix("or give 'transfer' the instance"))
			var found []struct{ Instance, State string }
			var other int
			f.Eventually(func() int { // an answer may come too late
				_, stdout, _ := f.run("candidates", "jobs", "--json")
				f.must(json.Unmarshal([]byte(stdout), &found))
				other = slices.IndexFunc(found, func(c struct{ Instance, State string }) bool { return c.State != "leader" })
				return other
			}).Should(BeNumerically(">=", 0))
			f.Eventually(func() (code int) { // the second may take over too late
				code, _, _ = f.run("transfer", "jobs", "--to="+found[other].Instance)
				return code
			}).Should(Equal(cli.ExitOK))
			f.leads(second)
		},
	},
	"copied-process": {"a machine was cloned": func(f *fixing) {
		second := f.campaign("web-1")
		stop := f.answer("jobs", map[string]any{"name": "web-1", "instance": second.Status().Instance, "host": "h", "state": "candidate", "connection": "99@other"})
		f.mend(func(fix string) {
			f.Expect(fix).To(HavePrefix("stop all but one of them; 'nats server report connections' says from where each connects"))
			stop()
		}, "jobs")
	}},
	"no-standby": {
		"one candidate runs": func(f *fixing) {
			f.leads(f.campaign("web-1"))
			f.mend(func(fix string) {
				f.Expect(fix).To(HavePrefix("start the program on another host too, or read its log"))
				f.campaign("web-2")
			}, "jobs")
		},
		"one is enough": func(f *fixing) {
			f.leads(f.campaign("web-1"))
			ignored := "memory"
			f.mend(func(fix string) {
				f.Expect(fix).To(HaveSuffix("if one is enough, give --ignore no-standby"))
				ignored = "no-standby"
			}, "jobs", "--ignore", &ignored)
		},
		"another may not write": func(f *fixing) {
			f.leads(f.campaign("web-1"))
			f.limitedCandidate("web-2")
			f.mendFailing(`"web-2" fail`, func(fix string) {
				f.Expect(fix).To(Equal(`permit the user of "web-2" to publish to $KV.LEADER_ELECTION.jobs`))
				f.grant("limited", fix, 0)
			}, "jobs")
		},
		"another is not ready": func(f *fixing) {
			f.leads(f.campaign("web-1"))
			second := f.heldBack("web-2")
			f.mendThat(ContainSubstring("is not ready"), func(fix string) {
				f.runs(fix, "run 'election-cli candidates jobs', and see in the log of a candidate what holds it back")
				second.Resume()
			}, "jobs")
		},
	},
	"options-unfit": {"an interval that leaves no room": func(f *fixing) {
		interval := f.ttl.String()
		f.mend(func(fix string) {
			f.Expect(fix).To(HavePrefix("change the option"))
			interval = (f.ttl / 4).String()
		}, "--interval", &interval)
	}},
	"expect-eviction": {"somebody deletes the key": func(f *fixing) {
		f.changeTTL(clitest.Timeout) // which a leader on a busy host outlasts
		f.leads(f.campaign("web-1"))
		second := f.campaign("web-2")
		f.Expect(f.finds("expect-eviction", "jobs")).To(HavePrefix("have the leader resign instead"))
		handOver(f, f.run, "jobs", "web-1", "web-2", "resign", "jobs")
		f.leads(second)
	}},
	"expect-crash": {"a leader crashes": func(f *fixing) {
		f.Expect(f.finds("expect-crash")).To(Equal("for less, lower the TTL"))
		before := f.message("expect-crash")
		f.changeTTL(f.ttl / 2)
		f.Expect(f.message("expect-crash")).NotTo(Equal(before))
	}},
}

func init() {
	maps.Copy(fixes, permissionFixes)
	maps.Copy(fixes, bucketFixes)
	maps.Copy(fixes["no-leader"], failingFixes)
}

// followedElsewhere are the findings whose fixes another test follows, which is named with its folder.
var followedElsewhere = map[string]string{
	"clock-differs":      "internal/cli/checkup TestAWrongClockIsAFindingOfSeverityInfo",
	"expect-outage":      "admin TestLeaderOutlastsTheCrashOfAServerWithWhatCheckRecommends",
	"reconnect-buffer":   "admin TestFixesOfTheConnectionAreOptionsThatEndTheTrouble",
	"reconnects-limited": "admin TestFixesOfTheConnectionAreOptionsThatEndTheTrouble",
	"ping-interval":      "admin TestFixesOfTheConnectionAreOptionsThatEndTheTrouble",
	"republish-unused":   "admin TestFixesOfTheConnectionAreOptionsThatEndTheTrouble",
	"not-inspected":      "admin TestFixesOfTheConnectionAreOptionsThatEndTheTrouble",
	"rollup":             "admin TestCheckWarnsOfARollUpThatTheBucketCouldRefuse",
	"claims-expire":      "admin TestFixesOfABucketForSessionsEndTheTrouble",
	"claims-disappear":   "admin TestFixesOfABucketForSessionsEndTheTrouble",
	"account-full":       "admin TestAFullAccountIsNamedWhileNobodyCanLead",
}

// ofTheBucket are the findings that TestTheFixOfEachFindingAboutABucketEndsIt and TestTheFixOfEachFindingAboutReplicasEndsIt follow.
var ofTheBucket = []string{
	"no-ttl", "ttl-out-of-range", "history", "stream-settings", "memory-replicated", "message-size", "bucket-full", "ttl-short", "ttl-long", "memory", "one-replica", "even-replicas",
	"discard-old", "no-markers", "markers-long", "releases-expire", "republish",
}

// ofTheServers are the findings that TestTheFixOfEachFindingAboutTheServersOfABucketEndsIt follows.
var ofTheServers = []string{"no-stream-leader", "replicas-offline", "replicas-lagging"}

// withoutFix are the findings about which nothing is to be done, and the problem of a bucket for sessions that only Start names.
var withoutFix = []string{"expect-release", "session-keys", "sessions"}

func TestTheFixOfEachFindingEndsTheTroubleThatItIsFor(t *testing.T) {
	inRealTime(t)
	for code, troubles := range fixes {
		for name, trouble := range troubles {
			t.Run(code+", "+name, func(t *testing.T) {
				t.Parallel()
				f := newFixing(t, code)
				trouble(f)
				f.Expect(f.found).To(BeTrue(), "it looks for the finding")
			})
		}
	}
}

// The codes are those of the source: the calls that add a finding, and the constants.
func TestTheFixOfEveryFindingIsFollowedByATest(t *testing.T) {
	g := NewWithT(t)
	listed := slices.Concat(slices.Collect(maps.Keys(fixes)), slices.Collect(maps.Keys(followedElsewhere)), ofTheBucket, ofTheServers, withoutFix)
	declared := map[string]bool{}
	for pattern, code := range map[string]*regexp.Regexp{
		"../../admin/check*.go":            regexp.MustCompile(`(?:\.(?:add|warn|refused|expect)\(|\bexpect\(|code, consequence = )(?:[^"\n(]*(?:\([^)\n]*\))?, )?"([a-z]+(?:-[a-z]+)*)"`),
		"../../internal/kv/info.go":        regexp.MustCompile(`\badd\("([a-z-]+)"`),
		"../../internal/cli/checkup/*.go":  regexp.MustCompile(`\bcode[A-Z]\w+ += "([a-z-]+)"`),
		"../../admin/check.go":             regexp.MustCompile(`(?m)^//\t([a-z-]+(?:, [a-z-]+)*)   `),
		"../../internal/cli/checkup/he*go": regexp.MustCompile(`(?m)^    ([a-z]+-[a-z-]+(?:, [a-z-]+)*)   `),
	} {
		files, err := filepath.Glob(pattern)
		g.Expect(err).NotTo(HaveOccurred())
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			text, err := os.ReadFile(file)
			g.Expect(err).NotTo(HaveOccurred())
			for _, m := range code.FindAllStringSubmatch(string(text), -1) {
				for _, c := range strings.Split(m[1], ", ") {
					declared[c] = true
				}
			}
		}
	}
	g.Expect(len(declared)).To(BeNumerically(">", 45))
	g.Expect(listed).To(ConsistOf(slices.Collect(maps.Keys(declared))))
	for code, test := range followedElsewhere {
		folder, name, _ := strings.Cut(test, " ")
		files, err := filepath.Glob("../../" + folder + "/*_test.go")
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(slices.ContainsFunc(files, func(file string) bool {
			text, err := os.ReadFile(file)
			return err == nil && strings.Contains(string(text), "func "+name+"(")
		})).To(BeTrue(), "%s: there is no test %s", code, test)
	}
}

// fixing is a server with a bucket and users, and a user as whom the commands run.
type fixing struct {
	*fixture
	code       string // of the finding
	found      bool   // the finding was looked for
	ttl        time.Duration
	server     *server.Server
	options    server.Options
	candidates []*election.Election
}

// observes is what a user may publish that only reads.
var observes = []string{"$JS.API.STREAM.INFO.KV_LEADER_ELECTION", "$JS.API.DIRECT.GET.KV_LEADER_ELECTION.>", "$JS.API.CONSUMER.CREATE.KV_LEADER_ELECTION.>", "$JS.API.CONSUMER.DELETE.KV_LEADER_ELECTION.*"}

func newFixing(t *testing.T, code string) *fixing {
	t.Helper()
	mayPublish := func(subjects ...string) *server.Permissions {
		return &server.Permissions{Publish: &server.SubjectPermission{Allow: subjects}, Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX.>"}}}
	}
	config := `
		accounts: {
			ELECTIONS: { jetstream: enabled, users: [{user: admin, password: p}, {user: limited, password: p}, {user: observer, password: p}, {user: asks-nobody, password: p}] }
			ELSEWHERE: { jetstream: enabled, users: [{user: elsewhere, password: p}] }
		}`
	options := &server.Options{JetStream: true, JetStreamMaxStore: maxStore}
	NewWithT(t).Expect(options.ProcessConfigString(config)).To(Succeed())
	f := &fixing{code: code, ttl: 4 * time.Second, server: natstest.StartNode(t, "server", options), options: *options}
	f.fixture = fixtureOn(t, f.server.ClientURL(), "admin", election.BucketConfig{TTL: f.ttl})
	f.permit("observer", mayPublish(observes...))
	f.permit("asks-nobody", mayPublish(observes...))
	return f
}

func (f *fixing) must(err error) {
	f.T.Helper()
	f.Expect(err).NotTo(HaveOccurred())
}

// runs expects the fix to begin with a text, and runs the first command in that.
func (f *fixing) runs(fix, text string) {
	f.T.Helper()
	f.Expect(fix).To(HavePrefix(text))
	f.ok(commands(text)[0]...)
}

// findings returns what check finds, or its error. An argument is a string, or a pointer to one that the test changes.
func (f *fixing) findings(args ...any) ([]checkup.ElectionFinding, error) {
	f.T.Helper()
	line := []string{"check", "--json"}
	if !slices.Contains(args, any("--timeout")) {
		line = append(line, "--timeout", "5s") // which passes where nobody answers
	}
	for _, a := range args {
		if p, ok := a.(*string); ok {
			a = *p
		}
		line = append(line, fmt.Sprint(a))
	}
	_, stdout, stderr := f.run(line...)
	var r struct {
		Error    string
		Findings []checkup.ElectionFinding
	}
	f.Expect(json.Unmarshal([]byte(stdout), &r)).To(Succeed(), stdout+stderr)
	if r.Error != "" {
		return nil, errors.New(r.Error)
	}
	return r.Findings, nil
}

// tryToFind returns a finding, nil if there is none, or the error of the check.
func (f *fixing) tryToFind(code string, args ...any) (found *checkup.ElectionFinding, err error) {
	f.T.Helper()
	all, err := f.findings(args...)
	if i := slices.IndexFunc(all, func(e checkup.ElectionFinding) bool { return e.Code == code }); i >= 0 {
		found = &all[i]
	}
	return found, err
}

// lookUp returns a finding; nil if there is none. It looks until a look is answered: where a server that knows does not within half a second, as on a busy
// host, another says that JetStream is temporarily unavailable.
func (f *fixing) lookUp(code string, args ...any) (found *checkup.ElectionFinding) {
	f.T.Helper()
	f.Eventually(func() (err error) { found, err = f.tryToFind(code, args...); return err }).Should(Succeed())
	return found
}

// finds expects a finding, and returns its fix.
func (f *fixing) finds(code string, args ...any) (fix string) {
	f.T.Helper()
	return f.findsThat(code, Not(BeEmpty()), args...)
}

// findsThat expects a finding whose message and fix match, and returns its fix. The answer of a candidate may come too late for one look.
func (f *fixing) findsThat(code string, says OmegaMatcher, args ...any) (fix string) {
	f.T.Helper()
	var found *checkup.ElectionFinding
	f.Eventually(func() (text string, err error) {
		if found, err = f.tryToFind(code, args...); found != nil {
			text = found.Message + ". Fix: " + found.Fix
		}
		return text, err
	}).WithTimeout(4*clitest.Timeout).Should(says, code) // a look may fail that a slow replica answers
	f.found = true
	f.T.Logf("%s: %s. Fix: %s", code, found.Message, found.Fix)
	return found.Fix
}

// message returns the message of a finding.
func (f *fixing) message(code string, args ...any) string {
	f.T.Helper()
	found := f.lookUp(code, args...)
	f.Expect(found).NotTo(BeNil())
	return found.Message
}

// mend expects the finding, does what its fix says, and expects the finding to be gone.
func (f *fixing) mend(follow func(fix string), args ...any) {
	f.T.Helper()
	f.mendThat(Not(BeEmpty()), follow, args...)
}

// mendThat is mend where the finding also depends on what candidates answer, and its message and fix must match.
func (f *fixing) mendThat(says OmegaMatcher, follow func(fix string), args ...any) {
	f.T.Helper()
	follow(f.findsThat(f.code, says, args...))
	f.Eventually(func() (any, error) { return f.tryToFind(f.code, args...) }).Should(BeNil(), "the trouble is over")
}

// campaign starts a candidate that campaigns for jobs until the end of the test.
func (f *fixing) campaign(name string, opts ...election.Option) *election.Election {
	f.T.Helper()
	return f.campaignIn(f.Bucket, name, opts...)
}

func (f *fixing) campaignIn(bucket *election.Bucket, name string, opts ...election.Option) *election.Election {
	f.T.Helper()
	return f.notified(clitest.Campaign(f.T, bucket, name, "jobs", opts...))
}

// heldBack starts a candidate that its program keeps from campaigning.
func (f *fixing) heldBack(name string) *election.Election {
	f.T.Helper()
	e, err := election.NewElection(name, "jobs", f.Bucket)
	f.must(err)
	e.Pause()
	clitest.Start(f.T, e)
	return f.notified(e)
}

// notified returns a candidate that has started when it is notified of changes.
func (f *fixing) notified(e *election.Election) *election.Election {
	f.T.Helper()
	f.candidates = append(f.candidates, e)
	f.Eventually(func() string { return e.Status().Notifications }).ShouldNot(BeEmpty())
	return e
}

// leads waits until a candidate leads.
func (f *fixing) leads(e *election.Election) {
	f.T.Helper()
	f.Eventually(e.IsLeader).Should(BeTrue())
}

// linked returns a connection that the test can disturb, with the bucket.
func (f *fixing) linked() (*faultproxy.Link, *election.Bucket) {
	f.T.Helper()
	link := faultproxy.New(func() (net.Conn, error) { return net.Dial("tcp", strings.TrimPrefix(f.url, "nats://")) })
	f.T.Cleanup(link.Close)
	nc := natstest.Connect(f.T, link, nats.UserInfo("admin", "p"))
	js, err := jetstream.New(nc)
	f.must(err)
	bucket, err := election.OpenBucket(f.T.Context(), js, cli.DefaultBucket)
	f.must(err)
	return link, bucket
}

// answer has somebody answer for a candidate of the key, until stop is called.
func (f *fixing) answer(key string, candidate map[string]any) (stop func()) {
	f.T.Helper()
	candidate["key"] = key
	body, err := json.Marshal(map[string]any{"candidates": []any{candidate}})
	f.must(err)
	sub, err := f.Client.Conn.Subscribe("election-control.LEADER_ELECTION.candidates."+key, func(m *nats.Msg) { _ = m.Respond(body) })
	f.must(err)
	f.must(f.Client.Conn.Flush())
	return func() { _ = sub.Unsubscribe() }
}

// putForEver stores a record that does not expire.
func (f *fixing) putForEver(key string) {
	f.T.Helper()
	body, err := json.Marshal(clitest.LeaderRecord("evil", nil))
	f.must(err)
	_, err = f.Client.JetStream.PublishMsg(f.T.Context(), &nats.Msg{Subject: "$KV.LEADER_ELECTION." + key, Data: body, Header: nats.Header{"Nats-TTL": {"never"}}})
	f.must(err)
}

// awaitAge waits until the record under jobs is that old.
func (f *fixing) awaitAge(age time.Duration) {
	f.T.Helper()
	entry, err := f.Bucket.Get(f.T.Context(), "jobs")
	f.must(err)
	time.Sleep(time.Until(entry.Created().Add(age)))
}

// purge removes all records.
func (f *fixing) purge() {
	f.T.Helper()
	f.must(f.stream().Purge(f.T.Context()))
}

// changeTTL changes the TTL of the bucket, as 'nats kv edit' does.
func (f *fixing) changeTTL(ttl time.Duration) {
	f.T.Helper()
	f.changeStream(func(c *jetstream.StreamConfig) {
		c.MaxAge = ttl
		if ttl > 0 {
			c.Duplicates = min(ttl, 2*time.Minute)
		}
	})
}
