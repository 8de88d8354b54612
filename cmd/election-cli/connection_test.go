package main

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/natsconn"
)

// resolve returns what the flags make of the options of a connection.
func resolve(g Gomega, c connFlags) nats.Options {
	if c.timeout == 0 {
		c.timeout = time.Second
	}
	opts, err := c.options()
	g.Expect(err).NotTo(HaveOccurred())
	dial, _, err := c.plan(opts)
	g.Expect(err).NotTo(HaveOccurred())
	var resolved nats.Options
	_, _, err = dial(append(opts, func(o *nats.Options) error {
		resolved = *o
		return errProbe
	})...)
	g.Expect(err).To(MatchError(errProbe))
	return resolved
}

// keepContext writes a context as natscli keeps it, and selects it if asked to.
func keepContext(t *testing.T, name, content string, selected bool) {
	t.Helper()
	g := NewWithT(t)
	config := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", config)
	g.Expect(os.MkdirAll(filepath.Join(config, "nats", "context"), 0o755)).To(Succeed())
	g.Expect(os.WriteFile(filepath.Join(config, "nats", "context", name+".json"), []byte(content), 0o600)).To(Succeed())
	if selected {
		g.Expect(os.WriteFile(filepath.Join(config, "nats", "context.txt"), []byte(name+"\n"), 0o600)).To(Succeed())
	}
}

func TestWithoutFlagsAndContextTheDefaultServerIsDialled(t *testing.T) {
	g := NewWithT(t)
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	g.Expect(resolve(g, connFlags{}).Servers).To(BeEmpty(), "which is what nats.go takes for its default")
	c := connFlags{timeout: time.Second}
	_, servers, err := c.plan(nil)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(servers).To(Equal(nats.DefaultURL))
	g.Expect(c.given()).To(BeFalse())
}

func TestWithoutAHomeDirectoryThereIsNoContext(t *testing.T) {
	g := NewWithT(t)
	t.Setenv("XDG_CONFIG_HOME", "")
	t.Setenv("HOME", "")
	g.Expect(contextSelected()).To(BeFalse())
	g.Expect(resolve(g, connFlags{server: "nats://a:1"}).Servers).To(Equal([]string{"nats://a:1"}))
}

func TestFlagsBecomeOptionsOfTheConnection(t *testing.T) {
	g := NewWithT(t)
	o := resolve(g, connFlags{server: "nats://a:1, b:2,", user: "u", password: "p", tlsFirst: true, inboxPrefix: "_IN", timeout: 3 * time.Second})
	g.Expect(o.Servers).To(Equal([]string{"nats://a:1", "b:2"}))
	g.Expect([]string{o.User, o.Password, o.Token, o.InboxPrefix}).To(Equal([]string{"u", "p", "", "_IN"}))
	g.Expect(o.TLSHandshakeFirst).To(BeTrue())
	g.Expect(o.Timeout).To(Equal(3 * time.Second))
}

func TestAUserWithoutPasswordIsAToken(t *testing.T) {
	g := NewWithT(t)
	o := resolve(g, connFlags{user: "s3cret"})
	g.Expect([]string{o.User, o.Token}).To(Equal([]string{"", "s3cret"}))
}

func TestFlagsOverrideTheContext(t *testing.T) {
	g := NewWithT(t)
	keepContext(t, "prod", `{"url":"nats://ctx:1","user":"cu","password":"cp","inbox_prefix":"_CTX"}`, true)

	for _, c := range []connFlags{{}, {context: "prod"}} {
		o := resolve(g, c)
		g.Expect(o.Servers).To(Equal([]string{"nats://ctx:1"}))
		g.Expect([]string{o.User, o.Password, o.InboxPrefix}).To(Equal([]string{"cu", "cp", "_CTX"}))
	}
	o := resolve(g, connFlags{server: "nats://flag:2"})
	g.Expect(o.Servers).To(Equal([]string{"nats://flag:2"}))
	g.Expect(o.User).To(Equal("cu"))

	o = resolve(g, connFlags{user: "token"})
	g.Expect([]string{o.User, o.Password, o.Token}).To(Equal([]string{"", "", "token"}), "nothing of the context's credentials is left")
}

func TestASelectedContextIsNoServerToDrillOn(t *testing.T) {
	g := NewWithT(t)
	keepContext(t, "prod", `{"url":"nats://ctx:1"}`, true)
	g.Expect((&connFlags{}).given()).To(BeFalse())
	g.Expect((&connFlags{context: "prod"}).given()).To(BeTrue())
	g.Expect((&connFlags{server: "x"}).given()).To(BeTrue())
}

func TestAnEmbeddedServerIsReachedWhateverContextIsSelected(t *testing.T) {
	g := NewWithT(t)
	e, err := startEmbedded(embeddedConfig{})
	g.Expect(err).NotTo(HaveOccurred())
	defer e.stop()
	keepContext(t, "far", `{"url":"nats://h:1","socks_proxy":"socks5://p:1","jetstream_domain":"hub","user":"u","password":"p"}`, true)
	flags := e.flags(time.Second)
	s, err := flags.connect(directOnly)
	g.Expect(err).NotTo(HaveOccurred())
	defer s.nc.Close()
	g.Expect(s.nc.Opts.User).To(BeEmpty())
	g.Expect(s.js.Options().Domain).To(BeEmpty())
}

func TestDomainAndPrefixOfTheContextAreHonouredUnlessFlagsSayOtherwise(t *testing.T) {
	g := NewWithT(t)
	e, err := startEmbedded(embeddedConfig{})
	g.Expect(err).NotTo(HaveOccurred())
	defer e.stop()
	for context, want := range map[string][2]string{
		`{"url":"` + e.url() + `","jetstream_domain":"hub"}`:         {"hub", ""},
		`{"url":"` + e.url() + `","jetstream_api_prefix":"$JS.far"}`: {"", "$JS.far"},
		`{"url":"` + e.url() + `"}`:                                  {"", ""},
	} {
		keepContext(t, "c", context, false)
		s, err := (&connFlags{context: "c", timeout: time.Second}).connect()
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect([2]string{s.js.Options().Domain, s.js.Options().APIPrefix}).To(Equal(want))
		s.nc.Close()
	}
	keepContext(t, "c", `{"url":"`+e.url()+`","jetstream_domain":"hub"}`, false)
	s, err := (&connFlags{context: "c", jsPrefix: "$JS.mine", timeout: time.Second}).connect()
	g.Expect(err).NotTo(HaveOccurred())
	defer s.nc.Close()
	g.Expect(s.js.Options().APIPrefix).To(Equal("$JS.mine"))
	g.Expect(s.js.Options().Domain).To(BeEmpty())
}

func TestWrongFlagsAreNamedTogetherAndWithoutSecrets(t *testing.T) {
	g := NewWithT(t)
	_, err := (&connFlags{
		server: "http://u:s3cret@h:1,nats://s3cret@:x", password: "s3cret", creds: "/no/creds", tlsCert: "/no/cert",
		jsDomain: "d", jsPrefix: "p", timeout: -time.Second,
	}).options()
	g.Expect(err).To(MatchError(And(
		ContainSubstring(`"http://h:1"`), ContainSubstring(`"nats://:x"`), ContainSubstring("--password needs --user"),
		ContainSubstring("--creds /no/creds"), ContainSubstring("--tlscert and --tlskey"), ContainSubstring("--js-domain"),
		ContainSubstring("--timeout -1s"), Not(ContainSubstring("s3cret")),
	)))
}

func TestAnUnknownContextIsNamedWithAWayOut(t *testing.T) {
	g := NewWithT(t)
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	_, err := (&connFlags{context: "nope", timeout: time.Second}).connect()
	g.Expect(err).To(MatchError(And(ContainSubstring(`"nope"`), ContainSubstring("nats context ls"))))

	keepContext(t, "gone", `{}`, true)
	g.Expect(os.Remove(filepath.Join(os.Getenv("XDG_CONFIG_HOME"), "nats", "context", "gone.json"))).To(Succeed())
	_, err = (&connFlags{timeout: time.Second}).connect()
	g.Expect(err).To(MatchError(And(ContainSubstring(`"gone"`), ContainSubstring("nats context select"))))
}

func TestAContextThroughAProxyIsNoLinkThatADrillCanCut(t *testing.T) {
	g := NewWithT(t)
	keepContext(t, "far", `{"url":"nats://h:1","socks_proxy":"socks5://p:1"}`, false)
	_, err := (&connFlags{context: "far", timeout: time.Second}).connect(directOnly)
	g.Expect(err).To(MatchError(ContainSubstring("a proxy, which a drill cannot cut")))
}

func TestURLsAreShownWithoutSecrets(t *testing.T) {
	g := NewWithT(t)
	for in, out := range map[string]string{
		"nats://u:p@h:1":     "nats://h:1",
		"token@h":            "nats://h",
		"tls://a@b:c@h:4222": "tls://h:4222",
		"wss://h/path?k=v":   "wss://h/path",
	} {
		g.Expect(natsconn.WithoutSecrets(in)).To(Equal(out))
	}
}

func TestWrongCredentialsEndADrillAndACampaign(t *testing.T) {
	g := NewWithT(t)
	s, err := server.NewServer(&server.Options{Host: loopback, Port: server.RANDOM_PORT, Authorization: "right", NoLog: true, NoSigs: true})
	g.Expect(err).NotTo(HaveOccurred())
	s.Start()
	defer s.WaitForShutdown()
	defer s.Shutdown()
	g.Expect(s.ReadyForConnections(serverPatience)).To(BeTrue())

	for _, command := range [][]string{{"drill"}, {"campaign", "key"}} {
		code, stdout, stderr := try(append(command, "--user", "s3cret", "-s", s.ClientURL())...)
		g.Expect(code).To(Equal(exitError))
		g.Expect(stderr).To(MatchRegexp("(?i)authorization violation"))
		g.Expect(stdout + stderr).NotTo(ContainSubstring("s3cret"))
	}
	code, _, stderr := try("campaign", "key", "--user", "right", "-s", s.ClientURL(), "--timeout", "500ms")
	g.Expect(code).To(Equal(exitError))
	g.Expect(stderr).To(ContainSubstring("has no JetStream for this account"))
}

func TestAMissingBucketIsNamedWithTheWayToMakeIt(t *testing.T) {
	g := NewWithT(t)
	e, err := startEmbedded(embeddedConfig{})
	g.Expect(err).NotTo(HaveOccurred())
	defer e.stop()
	code, _, stderr := try("campaign", "key", "--bucket", "SOME", "-s", e.url())
	g.Expect(code).To(Equal(exitError))
	g.Expect(stderr).To(And(ContainSubstring(`no bucket "SOME"`), ContainSubstring("'election-cli bucket add --bucket SOME'")))
}

func TestAServerThatComesLaterIsWaitedFor(t *testing.T) {
	g := NewWithT(t)
	e, err := startEmbedded(embeddedConfig{})
	g.Expect(err).NotTo(HaveOccurred())
	url, port := e.url(), e.server.Addr().(*net.TCPAddr).Port
	e.stop()

	s, err := (&connFlags{server: url, timeout: time.Second}).connect(nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond))
	g.Expect(err).NotTo(HaveOccurred())
	defer s.nc.Close()
	found := make(chan error, 1)
	go func() {
		_, err := s.awaitBucket(t.Context(), "B", slog.New(slog.DiscardHandler))
		found <- err
	}()
	g.Consistently(found).WithTimeout(200 * time.Millisecond).ShouldNot(Receive())

	e, err = startEmbedded(embeddedConfig{port: port})
	g.Expect(err).NotTo(HaveOccurred())
	defer e.stop()
	g.Eventually(found).WithTimeout(patience).Should(Receive(MatchError(ContainSubstring(`no bucket "B"`))), "which only the server can know")
}

func TestWaitingForAServerEndsWithTheContext(t *testing.T) {
	g := NewWithT(t)
	s, err := (&connFlags{server: "nats://127.0.0.1:1", timeout: time.Second}).connect(nats.RetryOnFailedConnect(true))
	g.Expect(err).NotTo(HaveOccurred())
	defer s.nc.Close()
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errProbe)
	_, err = s.awaitBucket(ctx, "B", slog.New(slog.DiscardHandler))
	g.Expect(err).To(MatchError(errProbe))
}
