//go:build !windows

package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/cli/events"
	"github.com/natscampaign/election/internal/test/clitest"
)

func TestACampaignLeadsOnlyWhileTheProgramBesideItIsHealthy(t *testing.T) {
	inRealTime(t)
	skipWithoutInterrupts(t)
	t.Parallel()
	g := NewWithT(t)
	var healthy atomic.Bool
	asked := make(chan struct{}, 1000)
	program := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !healthy.Load() {
			w.WriteHeader(http.StatusInternalServerError)
		}
		asked <- struct{}{}
	}))
	t.Cleanup(program.Close)
	server := newFixture(t, 15*time.Second).Server
	one := startCampaign(t, "-s", server.URL(), "--name", "web-1", "--interval", "500ms", "--health-url", program.URL)
	one.next(events.Started)
	for range 5 {
		g.Eventually(asked).Should(Receive())
	}
	g.Expect(one.lines).NotTo(Receive(), "it does not campaign before the program is healthy")
	healthy.Store(true)
	one.next(events.Elected)
	one.next(events.Leading)
	two := startCampaign(t, "-s", server.URL(), "--name", "web-2", "--interval", "500ms")
	two.next(events.Started)
	two.next(events.Following)
	healthy.Store(false)
	g.Expect(one.next(events.Lost).Reason).To(Equal("unhealthy"))
	g.Expect(two.next(events.Elected).Reason).To(Equal("released"))
	two.next(events.Leading)
	one.next(events.Released)
	for one.next(events.Following).Term == 0 { // it has seen the other as leader-elect
	}
	one.interrupt(events.Stopped)
	two.interrupt(events.Lost, events.Released, events.Stopped)
	g.Expect(one.stderr.String()).To(And(ContainSubstring("Health check fails, not campaigning"), ContainSubstring("status 500 Internal Server Error")))
}

func TestTheLeaderFileIsRemovedWhenTheProgramBesideItIsNotHealthy(t *testing.T) {
	inRealTime(t)
	skipWithoutInterrupts(t)
	t.Parallel()
	f := newFixture(t, 15*time.Second)
	heartbeat := filepath.Join(t.TempDir(), "heartbeat")
	NewWithT(t).Expect(os.WriteFile(heartbeat, nil, 0o600)).To(Succeed())
	c, path, _ := startLeaderFile(t, f.Server.URL(), "--health-file", heartbeat, "--health-max-age", "1m", "--health-failures", "1")
	long := time.Now().Add(-time.Hour)
	c.g.Expect(os.Chtimes(heartbeat, long, long)).To(Succeed())
	c.g.Expect(c.next(events.Lost).Reason).To(Equal("unhealthy"))
	c.g.Expect(absent(path)).To(BeTrue())
	f.Eventually(f.isReleased).Should(BeTrue())
	c.interrupt(events.Released, events.Stopped)
	c.g.Expect(c.stderr.String()).To(ContainSubstring("must change within 1m0s"))
}

func TestRunEndsTheProgramWhenTheHealthCommandFails(t *testing.T) {
	inRealTime(t)
	t.Parallel()
	f := newLongLeaseFixture(t)
	f.Expect(os.WriteFile(f.file("healthy"), nil, 0o600)).To(Succeed())
	w := f.start("echo $$ >pid; exec sleep 1000", "--health-command", "test -e healthy")
	pid := f.pidIn("pid")
	f.Expect(os.Remove(f.file("healthy"))).To(Succeed())
	f.expectDead(pid, clitest.Timeout)
	f.Eventually(f.isReleased).Should(BeTrue())
	f.expectReleased()
	f.Expect(os.Remove(f.file("pid"))).To(Succeed())
	f.Expect(os.WriteFile(f.file("healthy"), nil, 0o600)).To(Succeed())
	f.pidIn("pid") // it leads again
	w.terminate(128 + int(syscall.SIGTERM))
	f.Expect(w.stderr.String()).To(ContainSubstring("--health-command: test -e healthy: exit status 1"))
}
