package deploy

import (
	"bufio"
	"bytes"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// manifest is one file of kubernetes/.
type manifest struct {
	file       string
	template   corev1.PodTemplateSpec
	selector   *metav1.LabelSelector // of the deployment; nil for a job
	disruption *policyv1.PodDisruptionBudget
}

// manifests decodes every file, strictly: a field that Kubernetes does not know is an error.
func manifests(t *testing.T) []manifest {
	t.Helper()
	g := NewWithT(t)
	files, err := filepath.Glob("kubernetes/*.yaml")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(files).To(HaveLen(5))
	var list []manifest
	for _, file := range files {
		content, err := os.ReadFile(file)
		g.Expect(err).NotTo(HaveOccurred())
		m := manifest{file: file}
		for _, text := range bytes.Split(content, []byte("\n---\n")) {
			var kind metav1.TypeMeta
			g.Expect(yaml.Unmarshal(text, &kind)).To(Succeed(), file)
			switch kind.APIVersion + " " + kind.Kind {
			case "apps/v1 Deployment":
				var d appsv1.Deployment
				g.Expect(yaml.UnmarshalStrict(text, &d)).To(Succeed(), file)
				m.template, m.selector = d.Spec.Template, d.Spec.Selector
				g.Expect(*d.Spec.Replicas).To(BeNumerically(">=", 2), "%s: with one candidate nobody takes over", file)
				g.Expect(d.Spec.Strategy.RollingUpdate.MaxUnavailable.IntValue()).To(BeZero(), "%s: the new candidate is there before an old one stops", file)
			case "batch/v1 Job":
				var j batchv1.Job
				g.Expect(yaml.UnmarshalStrict(text, &j)).To(Succeed(), file)
				m.template = j.Spec.Template
			case "policy/v1 PodDisruptionBudget":
				m.disruption = new(policyv1.PodDisruptionBudget)
				g.Expect(yaml.UnmarshalStrict(text, m.disruption)).To(Succeed(), file)
			default:
				t.Errorf("%s: there is no check for %s %s", file, kind.APIVersion, kind.Kind)
			}
		}
		g.Expect(m.template.Spec.Containers).NotTo(BeEmpty(), file)
		list = append(list, m)
	}
	return list
}

// containers returns all containers of a manifest, sidecars first.
func (m manifest) containers() []corev1.Container {
	return slices.Concat(m.template.Spec.InitContainers, m.template.Spec.Containers)
}

func TestManifestsSelectTheirOwnPods(t *testing.T) {
	for _, m := range manifests(t) {
		if m.selector == nil {
			continue
		}
		g := NewWithT(t)
		for _, selector := range []*metav1.LabelSelector{m.selector, m.disruption.Spec.Selector, m.template.Spec.TopologySpreadConstraints[0].LabelSelector} {
			g.Expect(selector.MatchLabels).NotTo(BeEmpty(), m.file)
			for label, value := range selector.MatchLabels {
				g.Expect(m.template.Labels).To(HaveKeyWithValue(label, value), m.file)
			}
		}
	}
}

// The restricted level of Kubernetes' Pod Security Standards, and a root file system that cannot be written.
func TestPodsHaveNoPrivileges(t *testing.T) {
	for _, m := range manifests(t) {
		g := NewWithT(t)
		pod := m.template.Spec
		g.Expect(*pod.AutomountServiceAccountToken).To(BeFalse(), m.file)
		g.Expect(*pod.SecurityContext.RunAsNonRoot).To(BeTrue(), m.file)
		g.Expect(*pod.SecurityContext.RunAsUser).To(BeEquivalentTo(65532), "%s: the user of the image", m.file)
		g.Expect(pod.SecurityContext.SeccompProfile.Type).To(Equal(corev1.SeccompProfileTypeRuntimeDefault), m.file)
		for _, c := range m.containers() {
			g.Expect(*c.SecurityContext.AllowPrivilegeEscalation).To(BeFalse(), "%s: %s", m.file, c.Name)
			g.Expect(*c.SecurityContext.ReadOnlyRootFilesystem).To(BeTrue(), "%s: %s", m.file, c.Name)
			g.Expect(c.SecurityContext.Capabilities.Drop).To(ConsistOf(corev1.Capability("ALL")), "%s: %s", m.file, c.Name)
			g.Expect(c.Resources.Requests).To(And(HaveKey(corev1.ResourceCPU), HaveKey(corev1.ResourceMemory)), "%s: %s", m.file, c.Name)
			g.Expect(c.Resources.Limits).To(And(HaveKey(corev1.ResourceMemory), Not(HaveKey(corev1.ResourceCPU))), "%s: %s", m.file, c.Name)
		}
	}
}

func TestVolumesAndPortsThatContainersUseExist(t *testing.T) {
	for _, m := range manifests(t) {
		g := NewWithT(t)
		volumes := map[string]bool{}
		for _, v := range m.template.Spec.Volumes {
			volumes[v.Name] = true
			if v.EmptyDir != nil { // of the socket of a witness
				g.Expect(v.EmptyDir.SizeLimit).NotTo(BeNil(), m.file)
				continue
			}
			g.Expect(*v.Secret.DefaultMode).To(BeEquivalentTo(0o440), "%s: readable by the group of the pod, and nobody else", m.file)
		}
		for _, c := range m.containers() {
			for _, mount := range c.VolumeMounts {
				g.Expect(volumes).To(HaveKey(mount.Name), "%s: %s", m.file, c.Name)
			}
			ports := map[string]bool{}
			for _, p := range c.Ports {
				ports[p.Name] = true
			}
			for _, p := range []*corev1.Probe{c.StartupProbe, c.LivenessProbe, c.ReadinessProbe} {
				if p != nil {
					g.Expect(ports).To(HaveKey(p.HTTPGet.Port.StrVal), "%s: %s", m.file, c.Name)
					g.Expect(p.HTTPGet.Path).To(Equal("/healthz"), "%s: a standby must pass every probe", m.file)
				}
			}
			if c.LivenessProbe != nil {
				g.Expect(c.LivenessProbe.FailureThreshold).To(BeNumerically(">=", 2), "%s: a process that was paused takes a moment to recover", m.file)
			}
		}
	}
}

// A pod that is killed before it has released the key keeps the next leader waiting until the key expires.
func TestPodsMayTakeAsLongAsTheyNeedToStop(t *testing.T) {
	ttl := 15 * time.Second // of the bucket
	for _, m := range manifests(t) {
		if m.selector == nil {
			continue
		}
		g := NewWithT(t)
		need := ttl // the release timeout
		for _, c := range m.containers() {
			if l := c.Lifecycle; l != nil && l.PreStop != nil {
				need += time.Duration(l.PreStop.Sleep.Seconds) * time.Second
			}
			if i := slices.Index(c.Args, "--stop-timeout"); i >= 0 {
				timeout, err := time.ParseDuration(c.Args[i+1])
				g.Expect(err).NotTo(HaveOccurred())
				need = timeout + 5*time.Second
			}
		}
		g.Expect(time.Duration(*m.template.Spec.TerminationGracePeriodSeconds)*time.Second).To(BeNumerically(">=", need), m.file)
	}
}

func TestASidecarStopsAfterTheProgram(t *testing.T) {
	g := NewWithT(t)
	seen := 0
	for _, m := range manifests(t) {
		for _, c := range m.template.Spec.InitContainers {
			seen++
			g.Expect(c.RestartPolicy).To(HaveValue(Equal(corev1.ContainerRestartPolicyAlways)), "%s: %s", m.file, c.Name)
		}
	}
	g.Expect(seen).To(Equal(2))
}

func TestTheProgramNamesTheSocketOfItsWitnessAndBothHaveItsFolder(t *testing.T) {
	g := NewWithT(t)
	seen := 0
	for _, m := range manifests(t) {
		for _, c := range m.template.Spec.InitContainers {
			if c.Args[0] != "witness" {
				continue
			}
			seen++
			socket := c.Args[slices.Index(c.Args, "--socket")+1]
			program := m.template.Spec.Containers[0]
			g.Expect(program.Env).To(ContainElement(corev1.EnvVar{Name: "ELECTION_WITNESS", Value: "unix://" + socket}))
			for _, mounts := range [][]corev1.VolumeMount{c.VolumeMounts, program.VolumeMounts} {
				g.Expect(mounts).To(ContainElement(corev1.VolumeMount{Name: "election", MountPath: filepath.Dir(socket)}))
			}
		}
	}
	g.Expect(seen).To(Equal(1))
}

// A port alone would be served on the loopback interface of the pod, where neither the kubelet nor Prometheus asks.
func TestWhatTheCommandServesIsServedToOtherHosts(t *testing.T) {
	g := NewWithT(t)
	seen := 0
	for _, m := range manifests(t) {
		for _, c := range m.containers() {
			for i, flag := range c.Args {
				if flag != "--metrics" && flag != "--status" {
					continue
				}
				seen++
				host, port, err := net.SplitHostPort(c.Args[i+1])
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(host).To(Equal("0.0.0.0"), "%s: %s", m.file, flag)
				g.Expect(slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return strconv.Itoa(int(p.ContainerPort)) == port })).To(BeTrue(), "%s: %s", m.file, flag)
			}
		}
	}
	g.Expect(seen).To(Equal(2))
}

func TestTheCommandAcceptsTheArgumentsOfManifests(t *testing.T) {
	seen := 0
	for _, m := range manifests(t) {
		for _, c := range m.containers() {
			args := slices.Concat(c.Command, c.Args)
			if len(args) == 0 {
				continue
			}
			if args[0] == "election-cli" {
				args = args[1:]
			}
			seen++
			accepts(t, m.file, args)
		}
	}
	NewWithT(t).Expect(seen).To(Equal(4))
}

// accepts expects the command to connect, or to try to, which it does once it has accepted its arguments.
func accepts(t *testing.T, where string, args []string) {
	t.Helper()
	args = slices.Clone(args)
	for i, a := range args {
		args[i] = strings.NewReplacer("$(POD_NAME)", "pod-1", "0.0.0.0:8222", "127.0.0.1:0", "0.0.0.0:9222", "127.0.0.1:0", "/usr/local/bin/scheduler", binary).Replace(a)
	}
	before, after := args, []string(nil)
	if i := slices.Index(args, "--"); i >= 0 {
		before, after = args[:i:i], args[i:]
	}
	if before[0] == "witness" {
		acceptsWitness(t, where, before)
		return
	}
	if before[0] != "bucket" {
		before = append(before, "--connect-timeout", "50ms")
	}
	out, err := command(t, "nats://127.0.0.1:1", append(before, after...)...).CombinedOutput()
	g := NewWithT(t)
	g.Expect(err).To(HaveOccurred(), where)
	g.Expect(string(out)).To(ContainSubstring("connection refused"), "%s: %q", where, args)
}

// acceptsWitness expects the command to be ready, which it is before it connects.
func acceptsWitness(t *testing.T, where string, args []string) {
	t.Helper()
	g := NewWithT(t)
	folder, err := os.MkdirTemp("/tmp", "witness-") // the path of a socket must be short
	g.Expect(err).NotTo(HaveOccurred())
	defer os.RemoveAll(folder)
	args[slices.Index(args, "--socket")+1] = filepath.Join(folder, "socket")
	cmd := command(t, "nats://127.0.0.1:1", args...)
	stderr, err := cmd.StderrPipe()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(cmd.Start()).To(Succeed())
	line, _ := bufio.NewReader(stderr).ReadString('\n')
	g.Expect(line).To(ContainSubstring("Witness is ready"), where)
	g.Expect(cmd.Process.Signal(os.Interrupt)).To(Succeed())
	g.Expect(cmd.Wait()).To(Succeed(), where)
}
