package main

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/admin"
	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/cli/look"
	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/test/clitest"
	"github.com/natscampaign/election/internal/test/natstest"
	"github.com/natscampaign/election/internal/timeutil"
)

// replicated is a bucket in a cluster of four servers, three of which have a replica.
type replicated struct {
	*fixing
	cluster *natstest.Cluster
}

// server returns a server by its name.
func (s *replicated) server(name string) *natstest.Server {
	s.T.Helper()
	servers := s.cluster.Servers()
	return servers[slices.IndexFunc(servers, func(n *natstest.Server) bool { return n.Name() == name })]
}

// followers returns the names of the servers of a replica that does not lead.
func (s *replicated) followers() (names []string) {
	s.T.Helper()
	for _, r := range s.stream().CachedInfo().Cluster.Replicas {
		names = append(names, r.Name)
	}
	return names
}

// down stops the servers of replicas, as many as there are names.
func (s *replicated) down(names ...string) {
	s.T.Helper()
	for _, name := range names {
		s.server(name).Stop()
	}
}

// start starts servers.
func (s *replicated) start(names ...string) {
	s.T.Helper()
	for _, name := range names {
		s.server(name).Resume(s.T)
	}
}

// problems returns the codes of what is wrong.
func (s *replicated) problems() (codes []string, err error) {
	s.T.Helper()
	all, err := s.findings()
	for _, f := range all {
		if f.Severity > admin.SeverityInfo {
			codes = append(codes, f.Code)
		}
	}
	return codes, err
}

// peers returns the replicas that info shows, by the names of their servers.
func (s *replicated) peers() map[string]look.Peer {
	s.T.Helper()
	var b look.BucketInfo
	s.read(cli.ExitOK, &b, "info")
	s.Expect(slices.ContainsFunc(b.Peers, func(p look.Peer) bool { return p.Leader })).To(BeTrue())
	peers := map[string]look.Peer{}
	for _, p := range b.Peers {
		peers[p.Name] = p
	}
	return peers
}

// awaitQuiet waits until nothing is wrong.
func (s *replicated) awaitQuiet() {
	s.T.Helper()
	s.Eventually(s.problems).Should(BeEmpty())
	s.Eventually(s.Client.Conn.IsConnected).Should(BeTrue())
}

// released is a record under which nobody leads.
func released() []byte {
	return record.Record{Name: "web-1", Instance: "i", Attempt: "i.1", Released: time.Now()}.Encode()
}

// maxDelay is how slow the network to a server becomes at most. A check takes as long, and so does what is under way when nobody writes any more.
const maxDelay = 8 * time.Second

// catchUpDelay is how slow the network to a server may be that catches up: it begins anew when it has received nothing for two seconds.
const catchUpDelay = time.Second

// slow has somebody write all the time, and slows down the network to a server with a replica until that lags: on a busy host, where fewer
// operations are under way at a time, ever more. Each step is short, so that the leader reaches the server in time. It returns the name of the server.
func (s *replicated) slow() (name string, stopWriting func()) {
	s.T.Helper()
	s.url = s.Client.Conn.ConnectedUrl()
	name = s.followers()[0]
	if s.server(name).URL() == s.url {
		name = s.followers()[1]
	}
	s.T.Cleanup(func() { s.cluster.Delay(name, 0) })
	ctx, stop := context.WithCancel(s.T.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			_, _ = s.Client.JetStream.PublishAsync("$KV.LEADER_ELECTION.mail", released())
			_ = timeutil.Pause(ctx, time.Millisecond) // servers replicate together, as one operation, what comes at once
		}
	}()
	stopWriting = func() { stop(); <-done }
	s.T.Cleanup(stopWriting)
	delay := time.Duration(0)
	s.Eventually(func() (any, error) {
		delay = min(delay+time.Second, maxDelay)
		s.cluster.Delay(name, delay)
		return s.tryToFind("replicas-lagging", "--timeout", clitest.Timeout)
	}).WithTimeout(4 * clitest.Timeout).WithPolling(time.Second).ShouldNot(BeNil())
	s.T.Log("the network takes ", delay)
	s.cluster.Delay(name, min(delay+time.Second/2, maxDelay)) // on a busy host it may lag now and then only
	return name, stopWriting
}

// serverTroubles are the troubles of the servers behind a bucket, by the code of the finding and by what distinguishes them.
var serverTroubles = []struct {
	code, name string
	make       func(*replicated)
}{
	{"replicas-offline", "a server is down", func(s *replicated) {
		name := s.followers()[0]
		s.Expect(s.peers()).To(And(HaveLen(3), HaveKeyWithValue(name, HaveField("Offline", false))))
		s.down(name)
		s.mendThat(HavePrefix("1 of 3 replicas are offline: "+name), func(fix string) {
			s.Expect(s.peers()).To(HaveKeyWithValue(name, Or(HaveField("Offline", true), HaveField("Current", false))))
			s.Expect(fix).To(HavePrefix("start " + name + " again, or mend the network between the servers; "))
			s.start(name)
		})
	}},
	{"replicas-lagging", "a server catches up", func(s *replicated) {
		name, stopWriting := s.slow()
		s.mend(func(fix string) {
			s.Expect(fix).To(HavePrefix("wait, if their servers were away: they catch up; else "))
			stopWriting()
			s.cluster.Delay(name, catchUpDelay)
			lags := func() (any, error) { return s.tryToFind("replicas-lagging", "--timeout", clitest.Timeout) }
			s.Eventually(lags).WithTimeout(4*clitest.Timeout).Should(BeNil(), "though the network is slow")
		}, "--timeout", clitest.Timeout)
	}},
	{"replicas-lagging", "the network to a server is slow", func(s *replicated) {
		name, _ := s.slow()
		s.mend(func(fix string) {
			s.Expect(fix).To(HaveSuffix("; else see what slows down the disks of these servers, or the network to them"))
			s.cluster.Delay(name, 0)
		}, "--timeout", clitest.Timeout)
	}},
	{"no-stream-leader", "two of three servers are down", func(s *replicated) {
		names := s.followers()
		s.down(names...)
		s.mend(func(fix string) {
			s.Expect(fix).To(MatchRegexp(`^start those of its servers that are down, or mend the network between them \(n\d, n\d, n\d\): a majority elects a leader within 10s$`))
			s.Expect(s.findsThat("replicas-offline", HavePrefix("2 of 3 replicas are offline"))).To(MatchRegexp(`^start n\d and n\d again, or mend the network between the servers$`))
			s.Expect(s.lookUp("write-refused")).To(BeNil(), "that is not for want of a permission")
			s.start(names[0])
		})
		s.start(names[1])
	}},
	{"replicas-offline", "a server is gone for good", func(s *replicated) { // which it stays: this is the last of these tests
		name := s.followers()[0]
		s.down(name)
		s.mend(func(fix string) {
			m := regexp.MustCompile(`; if it is gone for good, have another server take its replica: 'nats stream cluster peer-remove (\S+) (\S+)'$`).FindStringSubmatch(fix)
			s.Expect(m).NotTo(BeNil(), fix)
			s.Eventually(func() (string, error) { // a cluster without that server may have to elect a leader first
				reply, err := s.Client.Conn.Request("$JS.API.STREAM.PEER.REMOVE."+m[1], fmt.Appendf(nil, `{"peer": %q}`, m[2]), time.Second)
				if err != nil {
					return "", err
				}
				return string(reply.Data), nil
			}).Should(ContainSubstring(`"success":true`))
		})
		s.Expect(s.followers()).NotTo(ContainElement(name))
	}},
}

func TestTheFixOfEachFindingAboutTheServersOfABucketEndsIt(t *testing.T) {
	natstest.SkipIfShort(t)
	t.Parallel()
	cluster := natstest.StartCluster(t, 4)
	f := fixtureOn(t, cluster.URL(), "", election.BucketConfig{TTL: 30 * time.Second, Replicas: 3})
	for _, trouble := range serverTroubles {
		t.Run(trouble.code+", "+trouble.name, func(t *testing.T) {
			own := &fixture{Fixture: &clitest.Fixture{Gomega: NewWithT(t), T: t, Client: f.Client, Bucket: f.Bucket}, url: f.url}
			s := &replicated{&fixing{code: trouble.code, fixture: own}, cluster}
			s.awaitQuiet()
			trouble.make(s)
		})
	}
}
