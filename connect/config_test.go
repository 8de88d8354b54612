package connect_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/connect"
)

// environment sets these variables and no others that FromEnv reads.
func environment(t *testing.T, set map[string]string) {
	t.Helper()
	for _, variable := range []string{
		"ELECTION_NAME", "ELECTION_KEY", "POD_NAME", "HOSTNAME", "KUBERNETES_SERVICE_HOST", "NATS_URL", "NATS_CONTEXT", "NATS_CREDS", "NATS_NKEY", "NATS_USER",
		"NATS_PASSWORD", "NATS_CERT", "NATS_KEY", "NATS_CA", "NATS_TLS_FIRST",
	} {
		t.Setenv(variable, "")
	}
	for variable, value := range set {
		t.Setenv(variable, value)
	}
}

func TestEveryVariableOfTheEnvironmentIsRead(t *testing.T) {
	g := NewWithT(t)
	file := filepath.Join(t.TempDir(), "file")
	g.Expect(os.WriteFile(file, nil, 0o600)).To(Succeed())
	environment(t, map[string]string{
		"ELECTION_NAME": "web-1", "ELECTION_KEY": "scheduler", "ELECTION_BUCKET": "B", "ELECTION_TTL": "20s", "ELECTION_REPLICAS": "3", "ELECTION_MAX_BYTES": "1M",
		"ELECTION_MUST_EXIST": "true", "ELECTION_CHORIA_COMPATIBLE": "1", "ELECTION_INTERVAL": "5s", "ELECTION_SPLAY": "0s",
		"ELECTION_STAND_DOWN": "2s", "ELECTION_LEASE_MARGIN": "300ms", "ELECTION_RELEASE_TIMEOUT": "4s",
		"ELECTION_METADATA": "zone=a, rack=7=8", "ELECTION_PLAIN_VALUE": "true", "ELECTION_PRIORITY": "-3", "ELECTION_PREEMPTION": "t", "ELECTION_RELINQUISH": "@daily", "ELECTION_INBOX_PREFIX": "_INBOX_web",
		"NATS_URL": "nats://a, tls://b:1", "NATS_CONTEXT": "prod", "NATS_CREDS": file, "NATS_NKEY": file, "NATS_USER": "u",
		"NATS_PASSWORD": "p", "NATS_CERT": file, "NATS_KEY": file, "NATS_CA": file, "NATS_TLS_FIRST": "true",
	})
	g.Expect(connect.FromEnv("")).To(Equal(connect.Config{
		Name: "web-1", Key: "scheduler", Bucket: "B", TTL: 20 * time.Second, Replicas: 3, MaxBytes: 1 << 20, MustExist: true, ChoriaCompatible: true,
		Interval: new(5 * time.Second), Splay: new(time.Duration(0)), StandDown: new(2 * time.Second),
		LeaseMargin: new(300 * time.Millisecond), ReleaseTimeout: new(4 * time.Second),
		Metadata: map[string]string{"zone": "a", "rack": "7=8"}, PlainValue: true, Priority: -3, Preemption: true, Relinquish: "@daily", InboxPrefix: "_INBOX_web",
		URL: "nats://a, tls://b:1", Context: "prod", Creds: file, NKey: file, User: "u", Password: "p", TLSCert: file, TLSKey: file, TLSCA: file, TLSFirst: true,
	}))
}

func TestEmptyVariableCountsAsNotSet(t *testing.T) {
	g := NewWithT(t)
	environment(t, map[string]string{"ELECTION_TTL": "", "ELECTION_SPLAY": "", "ELECTION_CHORIA_COMPATIBLE": "", "ELECTION_PRIORITY": "", "ELECTION_METADATA": ""})
	g.Expect(connect.FromEnv("")).To(Equal(connect.Config{}))
}

func TestNameComesFromTheElectionElseThePodElseTheHost(t *testing.T) {
	g := NewWithT(t)
	own := fmt.Sprint("host-", os.Getpid())
	for _, c := range []struct {
		set  map[string]string
		name string
	}{
		{map[string]string{"CRON_NAME": "own", "POD_NAME": "pod", "HOSTNAME": "host"}, "own"},
		{map[string]string{"POD_NAME": "pod", "HOSTNAME": "host"}, "pod"},
		{map[string]string{"CRON_NAME": "", "POD_NAME": "", "HOSTNAME": "host"}, own},
		{map[string]string{"CRON_NAME": "", "POD_NAME": "", "HOSTNAME": "host", "KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "host"},
	} {
		environment(t, map[string]string{"CRON_NAME": ""})
		environment(t, c.set)
		cfg, err := connect.FromEnv("CRON")
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(cfg.Name).To(Equal(c.name))
	}
}

func TestProcessesOfOneHostHaveDifferentNamesByDefault(t *testing.T) {
	g := NewWithT(t)
	if os.Getenv("PRINT_NAME") != "" {
		cfg, err := connect.FromEnv("")
		g.Expect(err).NotTo(HaveOccurred())
		fmt.Printf("name=%s\n", cfg.Name)
		return
	}
	names := map[string]bool{}
	for range 2 {
		cmd := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), "PRINT_NAME=1", "HOSTNAME=web-1", "POD_NAME=", "ELECTION_NAME=", "KUBERNETES_SERVICE_HOST=")
		out, err := cmd.Output()
		g.Expect(err).NotTo(HaveOccurred())
		_, name, _ := strings.Cut(string(out), "name=")
		name, _, _ = strings.Cut(name, "\n")
		g.Expect(name).To(MatchRegexp(`^web-1-[0-9]+$`))
		names[name] = true
	}
	g.Expect(names).To(HaveLen(2))
}

func TestErrorNamesEveryBadVariableWithItsValueButNoSecret(t *testing.T) {
	g := NewWithT(t)
	environment(t, map[string]string{
		"ELECTION_NAME": " x", "ELECTION_KEY": "no key", "ELECTION_BUCKET": "no.bucket", "ELECTION_TTL": "30", "ELECTION_REPLICAS": "2", "ELECTION_MAX_BYTES": "100",
		"ELECTION_MUST_EXIST": "yep", "ELECTION_CHORIA_COMPATIBLE": "2", "ELECTION_INTERVAL": "1ms", "ELECTION_SPLAY": "-2s",
		"ELECTION_STAND_DOWN":   "2h",
		"ELECTION_LEASE_MARGIN": "soon", "ELECTION_RELEASE_TIMEOUT": "-3s", "ELECTION_METADATA": "a=b,c", "ELECTION_PLAIN_VALUE": "on",
		"ELECTION_PRIORITY": "high", "ELECTION_PREEMPTION": "si", "ELECTION_RELINQUISH": "now", "ELECTION_INBOX_PREFIX": "_INBOX.>",
		"NATS_URL": "nats://ok,http://me:secret1@host?secret2", "NATS_CREDS": "/no/creds", "NATS_NKEY": "/no/nkey", "NATS_PASSWORD": "secret3",
		"NATS_CERT": "/no/cert", "NATS_CA": "/no/ca",
	})
	cfg, err := connect.FromEnv("")
	g.Expect(cfg).To(Equal(connect.Config{}))
	g.Expect(err).To(MatchError(election.ErrInvalidOption))
	lines := strings.Split(err.Error(), "\n")
	g.Expect(lines).To(HaveLen(26))
	for variable, value := range map[string]string{
		"ELECTION_NAME": `" x"`, "ELECTION_KEY": `"no key"`, "ELECTION_BUCKET": `"no.bucket"`, "ELECTION_TTL": `"30"`, "ELECTION_REPLICAS": "2 replicas", "ELECTION_MAX_BYTES": "100 bytes",
		"ELECTION_MUST_EXIST": `"yep"`, "ELECTION_CHORIA_COMPATIBLE": `"2"`, "ELECTION_INTERVAL": "(1ms)", "ELECTION_SPLAY": "(-2s)", "ELECTION_STAND_DOWN": "(2h0m0s)",
		"ELECTION_LEASE_MARGIN": `"soon"`, "ELECTION_RELEASE_TIMEOUT": "(-3s)", "ELECTION_METADATA": `"c"`, "ELECTION_PLAIN_VALUE": `"on"`,
		"ELECTION_PRIORITY": `"high"`, "ELECTION_PREEMPTION": `"si"`, "ELECTION_RELINQUISH": `"now"`, "ELECTION_INBOX_PREFIX": `"_INBOX.>"`,
		"NATS_URL": `"http://host"`, "NATS_CREDS": "/no/creds", "NATS_NKEY": "/no/nkey", "NATS_PASSWORD": "NATS_USER", "NATS_CERT": "/no/cert", "NATS_CA": "/no/ca",
	} {
		g.Expect(lines).To(ContainElement(And(HavePrefix(variable), ContainSubstring(value), MatchRegexp(`: (use|write|give|set|correct|trim) `))), variable)
	}
	g.Expect(err.Error()).NotTo(ContainSubstring("secret"))
}

func TestZeroIsNoSilentDefault(t *testing.T) {
	g := NewWithT(t)
	environment(t, map[string]string{"ELECTION_TTL": "0s", "ELECTION_RELINQUISH": "0s"})
	_, err := connect.FromEnv("")
	g.Expect(err).To(MatchError(And(ContainSubstring("ELECTION_TTL"), ContainSubstring("ELECTION_RELINQUISH"))))
}

func TestHalfOfATLSPairIsRefused(t *testing.T) {
	g := NewWithT(t)
	environment(t, map[string]string{"NATS_KEY": os.Args[0]})
	_, err := connect.FromEnv("")
	g.Expect(err).To(MatchError(ContainSubstring("NATS_CERT")))
}

func TestConfigShowsNoSecretInAnyFormat(t *testing.T) {
	g := NewWithT(t)
	var log strings.Builder
	for _, cfg := range []connect.Config{
		{Name: "web-1", URL: "nats://me:secret@host:4222,secret@other", User: "me", Password: "secret", Splay: new(time.Second)},
		{Name: "web-1", URL: "nats://secret@host:4222", User: "secret", Splay: new(time.Second)},
	} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
			fmt.Fprintf(&log, verb, cfg)
			fmt.Fprintf(&log, verb, &cfg)
		}
		slog.New(slog.NewTextHandler(&log, nil)).Info("Configured", "config", cfg)
		slog.New(slog.NewJSONHandler(&log, nil)).Info("Configured", "config", cfg)
		b, err := json.Marshal(cfg)
		g.Expect(err).NotTo(HaveOccurred())
		log.Write(b)
		g.Expect(fmt.Sprint(cfg)).To(And(ContainSubstring("Name:web-1"), ContainSubstring("nats://host:4222"), ContainSubstring("Splay:1s")))
	}
	g.Expect(log.String()).NotTo(ContainSubstring("secret"))
}
