package deploy

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/nats-io/nats-server/v2/server"
	. "github.com/onsi/gomega"
)

// project loads the compose file, as docker compose does.
func project(t *testing.T) *types.Project {
	t.Helper()
	g := NewWithT(t)
	options, err := cli.NewProjectOptions([]string{"compose/compose.yaml"}, cli.WithResolvedPaths(true))
	g.Expect(err).NotTo(HaveOccurred())
	p, err := options.LoadProject(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	return p
}

func TestComposeNamesFilesThatExist(t *testing.T) {
	g := NewWithT(t)
	for _, s := range project(t).Services {
		for _, v := range s.Volumes {
			if v.Type == types.VolumeTypeBind {
				g.Expect(v.Source).To(BeAnExistingFile(), s.Name)
			}
		}
		if s.Build != nil {
			g.Expect(s.Build.Context).To(BeADirectory(), s.Name)
			g.Expect(filepath.Join(s.Build.Context, s.Build.Dockerfile)).To(BeARegularFile(), s.Name)
			g.Expect(filepath.Join(s.Build.Context, "go.mod")).To(BeARegularFile(), "the Dockerfile is built from the root of the repository")
		}
	}
}

// The servers of the compose file, with its nats.conf and its arguments. Only addresses and folders are other ones, as they would be in
// containers. The commands of the compose file make the bucket and campaign.
func TestTheServersOfTheComposeFileElectALeaderOnThreeReplicas(t *testing.T) {
	g := NewWithT(t)
	p := project(t)
	var names, routes []string
	for name := range p.Services {
		if strings.HasPrefix(name, "nats-") {
			names = append(names, name)
			routes = append(routes, fmt.Sprintf("nats://127.0.0.1:%d", freePort(t)))
		}
	}
	slices.Sort(names)
	g.Expect(names).To(HaveLen(3))
	var urls []string
	for i, name := range names {
		urls = append(urls, start(t, p.Services[name], routes[i], routes))
	}
	servers := strings.Join(urls, ",")

	bucket := []string(p.Services["bucket"].Command)
	var created struct {
		Replicas int     `json:"replicas"`
		TTL      float64 `json:"ttl_s"`
	}
	g.Eventually(func(g Gomega) {
		out, err := command(t, servers, append(slices.Clone(bucket), "--json")...).Output()
		g.Expect(err).NotTo(HaveOccurred(), string(out))
		g.Expect(json.Unmarshal(out, &created)).To(Succeed())
	}, 30*time.Second, 200*time.Millisecond).Should(Succeed())
	g.Expect(created.Replicas).To(Equal(3))
	g.Expect(created.TTL).To(BeEquivalentTo(15))
	g.Expect(command(t, servers, bucket...).Run()).To(Succeed(), "it may run again")

	// A bucket of the same servers whose elections take less time.
	quick := []string{"--bucket", "QUICK"}
	g.Expect(command(t, servers, append(quick, "bucket", "add", "--ttl", "2s", "--replicas", "3")...).Run()).To(Succeed())
	campaign := append(append(slices.Clone(quick), p.Services["candidate"].Command...), "--json")
	leading, stop := candidate(t, servers, append(slices.Clone(campaign), "--name", "one")...)
	g.Eventually(leading, 20*time.Second).Should(Receive())
	other, _ := candidate(t, servers, append(slices.Clone(campaign), "--name", "two")...)
	g.Consistently(other, time.Second).ShouldNot(Receive(), "one leads")
	stop()
	g.Eventually(other, 20*time.Second).Should(Receive())
}

func TestTheCandidateNamesTheSocketOfTheWitnessAndBothHaveItsVolume(t *testing.T) {
	g := NewWithT(t)
	p := project(t)
	args := []string(p.Services["witness"].Command)
	acceptsWitness(t, "compose.yaml", slices.Clone(args))
	socket := *value(t, args, "--socket")
	g.Expect(*p.Services["candidate"].Environment["ELECTION_WITNESS"]).To(Equal("unix://" + socket))
	for _, name := range []string{"witness", "candidate"} {
		s := p.Services[name]
		g.Expect(*s.Environment["NATS_URL"]).To(Equal(*p.Services["bucket"].Environment["NATS_URL"]), name)
		g.Expect(s.Volumes).To(HaveLen(1), name)
		g.Expect(s.Volumes[0].Source).To(Equal("witness"), name)
		g.Expect(s.Volumes[0].Target).To(Equal(filepath.Dir(socket)), name)
	}
	g.Expect(p.Volumes).To(HaveKey("witness"))
}

// start starts a server as a service of the compose file does, and returns its URL.
func start(t *testing.T, s types.ServiceConfig, route string, routes []string) string {
	t.Helper()
	g := NewWithT(t)
	args := slices.Clone([]string(s.Command))
	config, store := value(t, args, "--config"), value(t, args, "--store_dir")
	for _, v := range s.Volumes {
		switch v.Target {
		case *config:
			*config = v.Source
		case *store:
			*store = t.TempDir()
		}
	}
	g.Expect(*config).To(BeARegularFile(), "the compose file mounts it")
	g.Expect(*store).To(BeADirectory(), "the compose file has a volume there")
	conf, err := server.ProcessConfigFile(*config)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(conf.Routes).To(HaveLen(len(routes)))
	opts, err := server.ConfigureOptions(flag.NewFlagSet(s.Name, flag.ContinueOnError), append(args, "--addr", "127.0.0.1", "--port", "-1",
		"--cluster", route, "--routes", strings.Join(routes, ",")), func() {}, func() {}, func() {})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(opts.ServerName).To(Equal(s.Name))
	opts.HTTPPort, opts.NoSigs, opts.NoLog = 0, true, true
	srv, err := server.NewServer(opts)
	g.Expect(err).NotTo(HaveOccurred())
	srv.Start()
	t.Cleanup(func() { srv.Shutdown(); srv.WaitForShutdown() })
	g.Expect(srv.ReadyForConnections(10 * time.Second)).To(BeTrue())
	return srv.ClientURL()
}

// value returns the value of a flag in arguments.
func value(t *testing.T, args []string, flag string) *string {
	t.Helper()
	i := slices.Index(args, flag)
	NewWithT(t).Expect(i).To(And(BeNumerically(">=", 0), BeNumerically("<", len(args)-1)), "%q has no %s", args, flag)
	return &args[i+1]
}

// candidate starts a candidate. The channel receives when it leads; stop interrupts it and waits for its end.
func candidate(t *testing.T, servers string, args ...string) (leading chan string, stop func()) {
	t.Helper()
	g := NewWithT(t)
	cmd := command(t, servers, args...)
	out, err := cmd.StdoutPipe()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(cmd.Start()).To(Succeed())
	leading, ended := make(chan string, 1), make(chan struct{})
	go func() {
		defer close(ended)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if strings.Contains(lines.Text(), `"event":"leading"`) {
				leading <- lines.Text()
			}
		}
		_ = cmd.Wait()
	}()
	stop = func() {
		_ = cmd.Process.Signal(os.Interrupt)
		<-ended
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); <-ended })
	return leading, stop
}

// freePort returns a port that nobody listens to.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}
