package main

import (
	"fmt"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/test/clitest"
	"github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/natstest"
)

// onSmallDisk runs its arguments with a disk of 400 KB at the path $0. SIGUSR2 fills the disk; SIGUSR1 makes space and runs them again.
const onSmallDisk = `
mount -t tmpfs -o size=400k none "$0" || exit 9
"$@" & server=$!
trap 'head -c 1000000 /dev/zero >"$0/fill"' USR2
trap 'again=1; rm "$0/fill"; kill $server' USR1
trap 'kill $server; exit 1' TERM
until [ "$again" ]; do wait $server; done
wait $server
exec "$@"`

// Nothing answers on the port, so that only nats-server finds it in use.
func TestAPortThatIsTakenWithoutAListenerIsReported(t *testing.T) {
	g := NewWithT(t)
	port := natstest.FreePort(t)
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = unix.Close(socket) }()
	g.Expect(unix.Bind(socket, &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}})).To(Succeed())
	code, _, stderr := runInProcess("server", "--port", strconv.Itoa(port))
	g.Expect(code).To(Equal(cli.ExitFailure))
	g.Expect(stderr).To(And(ContainSubstring(fmt.Sprintf("election-cli: --port %d: cannot listen: ", port)), ContainSubstring("address already in use"),
		ContainSubstring("give another port, or 0 for a free port")))
}

// A server whose disk was full stores nothing more until it is restarted.
func TestAServerSaysThatItsDiskIsFullAndItsLeadersStandDownUntilItIsRestarted(t *testing.T) {
	if testing.Short() {
		t.Skip("leases run out in real time: not with -short")
	}
	t.Parallel()
	unshare := []string{"unshare", "--user", "--map-root-user", "--mount"}
	disk := t.TempDir()
	if out, err := exec.Command(unshare[0], append(unshare[1:], "mount", "-t", "tmpfs", "none", disk)...).CombinedOutput(); err != nil {
		t.Skipf("no disk can be mounted here: %v: %s", err, out)
	}
	g := NewWithT(t)
	port := strconv.Itoa(natstest.FreePort(t))
	cmd, _, _ := command(t, "server", "--port", port, "--store", disk)
	var err error
	cmd.Args = append(append(unshare, "sh", "-c", onSmallDisk, disk, cmd.Path), cmd.Args[1:]...)
	cmd.Path, err = exec.LookPath(unshare[0])
	g.Expect(err).NotTo(HaveOccurred())
	log := &fleettest.Log{}
	cmd.Stderr = log
	g.Expect(cmd.Start()).To(Succeed())
	defer func() {
		g.Expect(cmd.Process.Signal(unix.SIGTERM)).To(Succeed())
		g.Expect(cmd.Wait()).To(Succeed())
		g.Expect(log.String()).To(And(ContainSubstring("no space left on device"),
			ContainSubstring("The server is unhealthy: it may store nothing until it is restarted, after space was made on a full disk")))
	}()

	client, err := (&cli.ConnectionFlags{Server: "nats://127.0.0.1:" + port, NoContext: true, Timeout: clitest.Timeout}).Connect(
		nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
	g.Expect(err).NotTo(HaveOccurred())
	defer client.Conn.Close()
	g.Eventually(client.Conn.IsConnected).Should(BeTrue())
	bucket, err := election.CreateBucket(t.Context(), client.JetStream, election.BucketConfig{Name: cli.DefaultBucket, TTL: 2 * time.Second})
	g.Expect(err).NotTo(HaveOccurred())
	e, err := election.NewElection("a", "jobs", bucket, election.WithSplay(0))
	g.Expect(err).NotTo(HaveOccurred())
	go func() { _ = e.Start(t.Context()) }()
	defer clitest.Shutdown(t, e)
	leads := func() { g.Eventually(e.IsLeader).Should(BeTrue()) }
	leads()

	g.Expect(cmd.Process.Signal(unix.SIGUSR2)).To(Succeed())
	fill := func() { // each write needs a new page at last
		g.Expect(client.Conn.Publish("$KV."+cli.DefaultBucket+".fill", make([]byte, 4<<10))).To(Succeed())
	}
	g.Eventually(func() bool { fill(); return e.IsLeader() }).Should(BeFalse())
	// The server looks at its health from time to time. It must have said what it saw before it is killed.
	g.Eventually(func() string { fill(); return log.String() }).Should(ContainSubstring("The server is unhealthy"))
	g.Expect(cmd.Process.Signal(unix.SIGUSR1)).To(Succeed())
	leads()
}
