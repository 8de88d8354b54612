package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/onsi/gomega/gexec"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/examples/controller/internal/apiserver"
	"github.com/natscampaign/election/internal/cli/embedded"
)

// These tests show that a real manager, with its cache and its controller, starts and stops with leadership, that one process takes over
// from another, and that an update of a stale version or by an older term is refused. The API server is the small one of package apiserver:
// they show nothing about a real one's login, permissions, admission or behaviour under load.

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

const patience = 60 * time.Second

func build(t *testing.T) string {
	t.Helper()
	path := t.TempDir() + "/controller.exe"
	out, err := exec.Command("go", "build", "-o", path, ".").CombinedOutput()
	NewWithT(t).Expect(err).NotTo(HaveOccurred(), string(out))
	return path
}

// environment returns the environment without what configures the example, and with more.
func environment(more ...string) []string {
	var kept []string
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		if prefix, _, _ := strings.Cut(name, "_"); !slices.Contains([]string{"NATS", "ELECTION", "POD", "KUBERNETES"}, prefix) {
			kept = append(kept, v)
		}
	}
	return append(kept, more...)
}

func TestControllerRunsByItselfAndEnds(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 10 s")
	}
	g, path := NewWithT(t), build(t)
	for again := 0; ; again++ { // for longer with longer leases, if those did not outlast what the host was busy with
		cmd := exec.Command(path)
		cmd.Env = environment()
		if again > 0 {
			cmd.Args = append(cmd.Args, fmt.Sprintf("-for=%ds", 10*(again+1)))
			cmd.Env = append(cmd.Env, fmt.Sprintf("ELECTION_TTL=%ds", 2*(again+1)))
		}
		s, err := gexec.Start(cmd, nil, nil)
		g.Expect(err).NotTo(HaveOccurred())
		t.Cleanup(func() { <-s.Kill().Exited })
		g.Eventually(s, 2*patience).Should(gexec.Exit())
		text := string(s.Err.Contents())
		takesOver, err := MatchRegexp(`(?s)msg=Leading.*msg="Checksum written".*msg="Restarting a candidate.*msg=Leading.*msg="Checksum written"`).Match(text)
		g.Expect(err).NotTo(HaveOccurred())
		if s.ExitCode() == 0 && takesOver {
			return
		}
		g.Expect(again).To(BeNumerically("<", 3), text)
	}
}

func TestNextControllerTakesOverWhenTheLeaderIsTerminated(t *testing.T) {
	if testing.Short() || runtime.GOOS == "windows" {
		t.Skip("runs two processes, and needs SIGTERM")
	}
	g, path := NewWithT(t), build(t)
	nats, err := embedded.Start(embedded.Config{})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(nats.Stop)
	objects := apiserver.New()
	kubernetes := httptest.NewServer(objects)
	t.Cleanup(kubernetes.CloseClientConnections)
	start := func(name string) *gexec.Session {
		cmd := exec.Command(path, "-api", kubernetes.URL)
		cmd.Env = environment("NATS_URL="+nats.URL(), "ELECTION_NAME="+name, "ELECTION_TTL=30s", "ELECTION_SPLAY=0s", "ELECTION_STAND_DOWN=0s")
		s, err := gexec.Start(cmd, nil, nil)
		g.Expect(err).NotTo(HaveOccurred())
		t.Cleanup(func() { <-s.Kill().Exited })
		return s
	}
	token := func() string { return objects.Annotation("config-0", tokenAnnotation) }
	sum := func() string { return objects.Annotation("config-0", sumAnnotation) }

	a := start("a")
	g.Eventually(a.Err, patience).Should(gbytes.Say("msg=Leading name=a"))
	objects.Edit("config-0", map[string]string{"edit": "1"})
	g.Eventually(sum, patience).ShouldNot(BeEmpty())
	firstToken, firstSum := token(), sum()
	b := start("b")
	g.Eventually(b.Err, patience).Should(gbytes.Say("Leader seen.*leader=a"))

	a.Terminate()
	g.Eventually(b.Err, 10*time.Second).Should(gbytes.Say("msg=Leading name=b"), "long before the lease of 30 s would end")
	g.Eventually(a, patience).Should(gexec.Exit(0))
	objects.Edit("config-0", map[string]string{"edit": "2"})
	g.Eventually(sum, patience).ShouldNot(Equal(firstSum))
	g.Expect(token() > firstToken).To(BeTrue(), "by the next leader")
	b.Terminate()
	g.Eventually(b, patience).Should(gexec.Exit(0))
}

// reconcilerOf returns the reconciler of a term, as it would be on a leader that does not know of its loss.
func reconcilerOf(t *testing.T, url string, number uint64) *reconciler {
	t.Helper()
	*api = url
	t.Cleanup(func() { *api = "" })
	cluster, err := restConfig(slog.New(slog.DiscardHandler))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	c, err := client.New(cluster, client.Options{})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return &reconciler{Client: c, term: election.Term{Number: number, BucketCreated: time.Unix(1, 0)}, log: slog.New(slog.DiscardHandler)}
}

func TestAnOlderTermLeavesAloneWhatANewerOneHasWritten(t *testing.T) {
	g, ctx, objects := NewWithT(t), context.Background(), apiserver.New()
	kubernetes := httptest.NewServer(objects)
	t.Cleanup(kubernetes.Close)
	request := ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "default", Name: "config-0"}}
	objects.Edit("config-0", map[string]string{"edit": "1"})
	newer := reconcilerOf(t, kubernetes.URL, 9)
	_, err := newer.Reconcile(ctx, request)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(objects.Annotation("config-0", tokenAnnotation)).To(Equal(newer.term.Token()))

	objects.Edit("config-0", map[string]string{"edit": "2"})
	before := objects.Annotation("config-0", sumAnnotation)
	_, err = reconcilerOf(t, kubernetes.URL, 8).Reconcile(ctx, request)
	g.Expect(err).To(MatchError(errNewerLeader))
	g.Expect(objects.Annotation("config-0", sumAnnotation)).To(Equal(before))
	_, err = newer.Reconcile(ctx, request)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(objects.Annotation("config-0", sumAnnotation)).NotTo(Equal(before))
}

func TestAnUpdateOfAStaleVersionIsRefused(t *testing.T) {
	g, ctx, objects := NewWithT(t), context.Background(), apiserver.New()
	kubernetes := httptest.NewServer(objects)
	t.Cleanup(kubernetes.Close)
	objects.Edit("config-0", map[string]string{"edit": "1"})
	c := reconcilerOf(t, kubernetes.URL, 9).Client
	read := corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "config-0"}}
	g.Expect(c.Get(ctx, client.ObjectKeyFromObject(&read), &read)).To(Succeed())
	objects.Edit("config-0", map[string]string{"edit": "2"})
	g.Expect(c.Update(ctx, &read)).To(MatchError(ContainSubstring("was read, and")))
}
