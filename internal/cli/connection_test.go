package cli

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/cli/embedded"
	"github.com/natscampaign/election/internal/dial"
	"github.com/natscampaign/election/internal/natsconn"
	"github.com/natscampaign/election/internal/test/natstest"
)

// resolve returns the options with which the flags would connect.
func resolve(g Gomega, c ConnectionFlags) nats.Options {
	if c.Timeout == 0 {
		c.Timeout = time.Second
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

func TestTheDefaultServerIsDialledWithoutFlagsAndContext(t *testing.T) {
	g := NewWithT(t)
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	g.Expect(resolve(g, ConnectionFlags{}).Servers).To(BeEmpty(), "nats.go then dials its default server")
	c := ConnectionFlags{Timeout: time.Second}
	_, servers, err := c.plan(nil)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(servers).To(Equal(nats.DefaultURL))
	g.Expect(c.NamesServer()).To(BeFalse())
}

func TestAMissingHomeDirectoryMeansNoContext(t *testing.T) {
	g := NewWithT(t)
	t.Setenv("XDG_CONFIG_HOME", "")
	t.Setenv("HOME", "")
	g.Expect(resolve(g, ConnectionFlags{Server: "nats://a:1"}).Servers).To(Equal([]string{"nats://a:1"}))
}

func TestFlagsSetTheOptionsOfTheConnection(t *testing.T) {
	g := NewWithT(t)
	o := resolve(g, ConnectionFlags{Server: "nats://a:1, b:2,", User: "u", Password: "p", tlsFirst: true, inboxPrefix: "_IN", Timeout: 3 * time.Second})
	g.Expect(o.Servers).To(Equal([]string{"nats://a:1", "b:2"}))
	g.Expect([]string{o.User, o.Password, o.Token, o.InboxPrefix}).To(Equal([]string{"u", "p", "", "_IN"}))
	g.Expect(o.TLSHandshakeFirst).To(BeTrue())
	g.Expect(o.Timeout).To(Equal(3 * time.Second))
}

func TestAUserWithoutPasswordIsAToken(t *testing.T) {
	g := NewWithT(t)
	o := resolve(g, ConnectionFlags{User: "s3cret"})
	g.Expect([]string{o.User, o.Token}).To(Equal([]string{"", "s3cret"}))
}

func TestATokenGivenByAFlagReplacesTheUserOfTheEnvironment(t *testing.T) {
	g := NewWithT(t)
	for _, c := range []struct {
		flags ConnectionFlags
		want  []string
	}{
		{ConnectionFlags{token: "t"}, []string{"", "", "t"}},
		{ConnectionFlags{token: "t", tokenSet: true, User: "u", Password: "p"}, []string{"", "", "t"}},
		{ConnectionFlags{token: "t", User: "u", Password: "p"}, []string{"u", "p", ""}},
	} {
		o := resolve(g, c.flags)
		g.Expect([]string{o.User, o.Password, o.Token}).To(Equal(c.want))
	}
}

func TestFlagsOverrideTheContext(t *testing.T) {
	g := NewWithT(t)
	natstest.KeepContext(t, "prod", `{"url":"nats://ctx:1","user":"cu","password":"cp","inbox_prefix":"_CTX"}`, true)

	for _, c := range []ConnectionFlags{{}, {Context: "prod"}} {
		o := resolve(g, c)
		g.Expect(o.Servers).To(Equal([]string{"nats://ctx:1"}))
		g.Expect([]string{o.User, o.Password, o.InboxPrefix}).To(Equal([]string{"cu", "cp", "_CTX"}))
	}
	o := resolve(g, ConnectionFlags{Server: "nats://flag:2"})
	g.Expect(o.Servers).To(Equal([]string{"nats://flag:2"}))
	g.Expect(o.User).To(Equal("cu"))

	o = resolve(g, ConnectionFlags{User: "token"})
	g.Expect([]string{o.User, o.Password, o.Token}).To(Equal([]string{"", "", "token"}), "the flags replace all credentials of the context")
}

func TestASelectedContextDoesNotNameAServer(t *testing.T) {
	g := NewWithT(t)
	natstest.KeepContext(t, "prod", `{"url":"nats://ctx:1"}`, true)
	g.Expect((&ConnectionFlags{}).NamesServer()).To(BeFalse())
	g.Expect((&ConnectionFlags{Context: "prod"}).NamesServer()).To(BeTrue())
	g.Expect((&ConnectionFlags{Server: "x"}).NamesServer()).To(BeTrue())
}

func TestFlagsOverrideDomainAndPrefixOfTheContext(t *testing.T) {
	g := NewWithT(t)
	e, err := embedded.Start(embedded.Config{})
	g.Expect(err).NotTo(HaveOccurred())
	defer e.Stop()
	for context, want := range map[string][2]string{
		`{"url":"` + e.URL() + `","jetstream_domain":"hub"}`:         {"hub", ""},
		`{"url":"` + e.URL() + `","jetstream_api_prefix":"$JS.far"}`: {"", "$JS.far"},
		`{"url":"` + e.URL() + `"}`:                                  {"", ""},
	} {
		natstest.KeepContext(t, "c", context, false)
		s, err := (&ConnectionFlags{Context: "c", Timeout: timeLimit}).Connect()
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect([2]string{s.JetStream.Options().Domain, s.JetStream.Options().APIPrefix}).To(Equal(want))
		s.Conn.Close()
	}
	natstest.KeepContext(t, "c", `{"url":"`+e.URL()+`","jetstream_domain":"hub"}`, false)
	s, err := (&ConnectionFlags{Context: "c", jsPrefix: "$JS.mine", Timeout: timeLimit}).Connect()
	g.Expect(err).NotTo(HaveOccurred())
	defer s.Conn.Close()
	g.Expect(s.JetStream.Options().APIPrefix).To(Equal("$JS.mine"))
	g.Expect(s.JetStream.Options().Domain).To(BeEmpty())
}

func TestAllWrongFlagsAreReportedTogetherWithoutSecrets(t *testing.T) {
	g := NewWithT(t)
	_, err := (&ConnectionFlags{
		Server: "http://u:s3cret@h:1,nats://s3cret@:x", Password: "s3cret", creds: "/no/creds", tlsCert: "/no/cert",
		jsDomain: "d", jsPrefix: "p", Timeout: -time.Second,
	}).options()
	g.Expect(err).To(MatchError(And(
		ContainSubstring(`"http://h:1"`), ContainSubstring(`"nats://:x"`), ContainSubstring("--password needs --user"),
		ContainSubstring("--creds /no/creds"), ContainSubstring("--tlscert and --tlskey"), ContainSubstring("--js-domain"),
		ContainSubstring("--timeout -1s"), Not(ContainSubstring("s3cret")),
	)))
}

func TestAnUnknownContextIsReportedWithAFix(t *testing.T) {
	g := NewWithT(t)
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	_, err := (&ConnectionFlags{Context: "nope", Timeout: time.Second}).Connect()
	g.Expect(err).To(MatchError(And(ContainSubstring(`"nope"`), ContainSubstring("nats context ls"))))

	natstest.KeepContext(t, "gone", `{}`, true)
	g.Expect(os.Remove(filepath.Join(os.Getenv("XDG_CONFIG_HOME"), "nats", "context", "gone.json"))).To(Succeed())
	_, err = (&ConnectionFlags{Timeout: time.Second}).Connect()
	g.Expect(err).To(MatchError(And(ContainSubstring(`"gone"`), ContainSubstring("gone.json"), ContainSubstring("--no-context"), ContainSubstring("nats context select"))))
}

func TestAContextThatCannotBeUsedNamesTheFileAtFault(t *testing.T) {
	g := NewWithT(t)
	for content, at := range map[string]string{
		`{"url": `: "is not the JSON of a context", `[]`: "is not the JSON of a context", ``: "is not the JSON of a context",
		`{"creds":"/no/such.creds"}`: "/no/such.creds", `{"nkey":"/no/such.nkey"}`: "/no/such.nkey", `{"creds":"~/no/such.creds"}`: "/no/such.creds",
		`{"cert":"/no/such.crt","key":"/no/such.key"}`: "/no/such.crt", `{"ca":"/no/such.ca"}`: "/no/such.ca",
	} {
		natstest.KeepContext(t, "prod", content, true)
		path := dial.ContextFile("prod")
		g.Expect(path).To(BeAnExistingFile())
		for _, c := range []ConnectionFlags{{Context: "prod"}, {Context: path}, {}} {
			c.Timeout = time.Second
			g.Expect(c.Check()).To(MatchError(And(ContainSubstring(path), ContainSubstring(at), ContainSubstring("correct the"))), content)
		}
	}
	natstest.KeepContext(t, "prod", `{"user":"u","password":"p","creds":"/no/such.creds"}`, false)
	g.Expect((&ConnectionFlags{Context: "prod", Timeout: time.Second}).Check()).To(Succeed(), "the user is used, and not the file")
}

// HOME and the user's home directory differ under sudo and cron: a context was selected in the one and read in the other.
func TestAContextIsSelectedInTheFolderInWhichItIsRead(t *testing.T) {
	g := NewWithT(t)
	t.Setenv("XDG_CONFIG_HOME", "")
	home := t.TempDir()
	t.Setenv("HOME", home)
	folder := filepath.Join(home, ".config", "nats")
	g.Expect(os.MkdirAll(filepath.Join(folder, "context"), 0o700)).To(Succeed())
	g.Expect(os.WriteFile(filepath.Join(folder, "context.txt"), []byte("elsewhere"), 0o600)).To(Succeed())
	g.Expect(os.WriteFile(filepath.Join(folder, "context", "elsewhere.json"), []byte(`{"url":"nats://elsewhere:1"}`), 0o600)).To(Succeed())
	selects := dial.SelectedContext() == "elsewhere"
	reads := (&ConnectionFlags{Context: "elsewhere", Timeout: time.Second}).Check() == nil
	g.Expect(selects).To(Equal(reads))
}

func TestABrokenSelectedContextDoesNotDefeatAServerThatIsNamed(t *testing.T) {
	g := NewWithT(t)
	natstest.KeepContext(t, "broken", `{"url": `, true)
	e, err := embedded.Start(embedded.Config{})
	g.Expect(err).NotTo(HaveOccurred())
	defer e.Stop()
	c, err := (&ConnectionFlags{Server: e.URL(), Timeout: timeLimit}).Connect()
	g.Expect(err).NotTo(HaveOccurred())
	c.Conn.Close()
	_, err = (&ConnectionFlags{Timeout: time.Second}).Connect()
	g.Expect(err).To(MatchError(And(ContainSubstring("broken.json"), ContainSubstring("--no-context"))))
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

func TestWaitForBucketWaitsForTheServer(t *testing.T) {
	natstest.SkipIfShort(t)
	g := NewWithT(t)
	port := natstest.FreePort(t) // which nobody else takes while the server is away
	e, err := embedded.Start(embedded.Config{Port: port})
	g.Expect(err).NotTo(HaveOccurred())
	url := e.URL()
	e.Stop()

	s, err := (&ConnectionFlags{Server: url, Timeout: time.Second}).Connect(nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond))
	g.Expect(err).NotTo(HaveOccurred())
	defer s.Conn.Close()
	found := make(chan error, 1)
	go func() {
		_, err := s.WaitForBucket(t.Context(), "B", slog.New(slog.DiscardHandler))
		found <- err
	}()
	g.Consistently(found).WithTimeout(200 * time.Millisecond).ShouldNot(Receive())

	e, err = natstest.ListenAgain(func() (*embedded.Server, error) { return embedded.Start(embedded.Config{Port: port}) })
	g.Expect(err).NotTo(HaveOccurred())
	defer e.Stop()
	g.Eventually(found).WithTimeout(timeLimit).Should(Receive(MatchError(ContainSubstring(`no bucket "B"`))), "only the server can know that")
}

func TestWaitForBucketEndsWithItsContext(t *testing.T) {
	g := NewWithT(t)
	s, err := (&ConnectionFlags{Server: "nats://127.0.0.1:1", Timeout: time.Second}).Connect(nats.RetryOnFailedConnect(true))
	g.Expect(err).NotTo(HaveOccurred())
	defer s.Conn.Close()
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errProbe)
	_, err = s.WaitForBucket(ctx, "B", slog.New(slog.DiscardHandler))
	g.Expect(err).To(MatchError(errProbe))
}

// timeLimit bounds each wait of a test.
const timeLimit = 25 * time.Second

func TestPrefixesOfTheAPIAreThoseOfTheFlagsTheDomainsAndTheGivenOnes(t *testing.T) {
	g := NewWithT(t)
	g.Expect((&ConnectionFlags{}).APIPrefixes(nil, nil)).To(HaveEach(BeEmpty()))
	g.Expect((&ConnectionFlags{jsDomain: "hub"}).APIPrefixes([]string{"leaf"}, []string{"js.acme"})).To(ContainElements("$JS.hub.API", "$JS.leaf.API", "js.acme"))
	g.Expect((&ConnectionFlags{jsPrefix: "js.acme"}).APIPrefixes(nil, nil)).To(ContainElement("js.acme"))
}
