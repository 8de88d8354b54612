package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/choria-io/fisk"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/natscontext"

	"github.com/natscampaign/election/internal/natsconn"
)

// ConnFlags says how to reach NATS. Flags, environment and contexts are natscli's.
type ConnFlags struct {
	Server, User, Password, creds, nkey string
	tlsCert, tlsKey, TLSCA              string
	tlsFirst                            bool
	Context                             string
	NoContext                           bool
	jsDomain, jsPrefix, inboxPrefix     string
	Timeout                             time.Duration

	serverSet, contextSet, TimeoutSet bool // given on the command line itself
}

func (c *ConnFlags) Register(app *fisk.Application) {
	app.Flag("server", "NATS server urls").Short('s').Envar("NATS_URL").PlaceHolder("URL").IsSetByUser(&c.serverSet).StringVar(&c.Server)
	app.Flag("user", "Username, or a token when no password is given").Envar("NATS_USER").PlaceHolder("USER").StringVar(&c.User)
	app.Flag("password", "Password").Envar("NATS_PASSWORD").PlaceHolder("PASSWORD").StringVar(&c.Password)
	app.Flag("creds", "User credentials").Envar("NATS_CREDS").PlaceHolder("FILE").StringVar(&c.creds)
	app.Flag("nkey", "User NKEY").Envar("NATS_NKEY").PlaceHolder("FILE").StringVar(&c.nkey)
	app.Flag("tlscert", "TLS public certificate").Envar("NATS_CERT").PlaceHolder("FILE").StringVar(&c.tlsCert)
	app.Flag("tlskey", "TLS private key").Envar("NATS_KEY").PlaceHolder("FILE").StringVar(&c.tlsKey)
	app.Flag("tlsca", "TLS certificate authority chain").Envar("NATS_CA").PlaceHolder("FILE").StringVar(&c.TLSCA)
	app.Flag("tlsfirst", "Perform the TLS handshake before expecting the server greeting").UnNegatableBoolVar(&c.tlsFirst)
	app.Flag("timeout", "Time to wait for responses from NATS").Default("5s").Envar("NATS_TIMEOUT").IsSetByUser(&c.TimeoutSet).DurationVar(&c.Timeout)
	app.Flag("js-api-prefix", "Subject prefix for access to the JetStream API").PlaceHolder("PREFIX").StringVar(&c.jsPrefix)
	app.Flag("js-domain", "JetStream domain to access").PlaceHolder("DOMAIN").StringVar(&c.jsDomain)
	app.Flag("inbox-prefix", "Prefix for inboxes").PlaceHolder("PREFIX").StringVar(&c.inboxPrefix)
	app.Flag("context", "Configuration context of natscli").Envar("NATS_CONTEXT").PlaceHolder("NAME").IsSetByUser(&c.contextSet).StringVar(&c.Context)
	app.Flag("no-context", "Leave the selected context alone").UnNegatableBoolVar(&c.NoContext)
}

// Named says whether a server was named, be it by flag, environment or context flag. A context that is merely selected
// does not count: nobody rehearses failures on production by forgetting a flag.
func (c *ConnFlags) Named() bool { return c.Server != "" || c.Context != "" }

// NamedByFlag says whether a server was named on the command line itself.
func (c *ConnFlags) NamedByFlag() bool { return c.serverSet || c.contextSet }

// Session is a connection and the JetStream that its flags and context select.
type Session struct {
	Conn      *nats.Conn
	JetStream jetstream.JetStream
	Timeout   time.Duration // of a request
}

// Connect reaches NATS with the options that flags and context give, then extra.
func (c *ConnFlags) Connect(extra ...nats.Option) (*Session, error) {
	opts, err := c.options()
	if err != nil {
		return nil, err
	}
	opts = append(opts, extra...)
	dial, servers, err := c.plan(opts)
	if err != nil {
		return nil, err
	}
	nc, settings, err := dial(opts...)
	if err != nil {
		return nil, fmt.Errorf("cannot connect to %s: %w", servers, err)
	}
	if settings.NSCLookup != "" && c.creds == "" {
		nc.Close()
		return nil, errors.New("the context takes its credentials from nsc, which is not supported: write them to a file with 'nsc generate creds' and pass it with --creds")
	}
	js, err := c.jetStream(nc, settings)
	if err != nil {
		nc.Close()
		return nil, err
	}
	return &Session{Conn: nc, JetStream: js, Timeout: c.Timeout}, nil
}

// dial connects to whatever its options say.
type dial func(...nats.Option) (*nats.Conn, natscontext.Settings, error)

func dialContext(name string) dial {
	return func(opts ...nats.Option) (*nats.Conn, natscontext.Settings, error) {
		return natscontext.Connect(name, opts...)
	}
}

func dialPlain(opts ...nats.Option) (*nats.Conn, natscontext.Settings, error) {
	nc, err := nats.Connect("", opts...)
	return nc, natscontext.Settings{}, err
}

// errProbe ends a connection attempt once its options are known.
var errProbe = errors.New("options are known")

// plan finds the context, if there is one, and checks what would be dialled without dialling it. It returns the servers
// as messages may show them.
func (c *ConnFlags) plan(opts []nats.Option) (dial, string, error) {
	dial := dialContext(c.Context)
	if c.Context == "" && (c.NoContext || !contextSelected()) {
		dial = dialPlain // where there is no home directory, there is no context either
	}
	var urls []string
	probe := func(o *nats.Options) error {
		urls = slices.Clone(o.Servers)
		return errProbe
	}
	if _, _, err := dial(append(slices.Clip(opts), probe)...); !errors.Is(err, errProbe) {
		return nil, "", c.explain(err)
	}
	if len(urls) == 0 {
		urls = []string{nats.DefaultURL}
	}
	for i, u := range urls {
		if err := natsconn.CheckURL(u); err != nil {
			return nil, "", err
		}
		urls[i] = natsconn.WithoutSecrets(u)
	}
	return dial, strings.Join(urls, ", "), nil
}

// explain says where an error of the options came from.
func (c *ConnFlags) explain(err error) error {
	switch {
	case c.Context != "":
		return fmt.Errorf("--context: %w; 'nats context ls' shows the contexts there are", err)
	case contextSelected():
		return fmt.Errorf("the selected context: %w; select another with 'nats context select', or name one with --context", err)
	}
	return err
}

// options returns what the flags say, each overriding what a context said before it.
func (c *ConnFlags) options() ([]nats.Option, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	opts := []nats.Option{nats.Timeout(c.Timeout), natsconn.Servers(c.Server)}
	auth, err := c.credentials()
	if err != nil {
		return nil, err
	}
	opts = append(append(opts, auth...), natsconn.TLS(c.tlsCert, c.tlsKey, c.TLSCA)...)
	if c.tlsFirst {
		opts = append(opts, nats.TLSHandshakeFirst())
	}
	if c.inboxPrefix != "" {
		opts = append(opts, nats.CustomInboxPrefix(c.inboxPrefix))
	}
	return opts, nil
}

// check finds flags that cannot be used, or not together.
func (c *ConnFlags) check() error {
	var problems []error
	for _, f := range []struct{ flag, path string }{
		{"--creds", c.creds}, {"--nkey", c.nkey}, {"--tlscert", c.tlsCert}, {"--tlskey", c.tlsKey}, {"--tlsca", c.TLSCA},
	} {
		if f.path != "" && !natsconn.IsFile(f.path) {
			problems = append(problems, fmt.Errorf("%s %s: there is no such file", f.flag, f.path))
		}
	}
	if (c.tlsCert == "") != (c.tlsKey == "") {
		problems = append(problems, errors.New("--tlscert and --tlskey go together: give both or neither"))
	}
	if c.Password != "" && c.User == "" {
		problems = append(problems, errors.New("--password needs --user"))
	}
	if c.jsDomain != "" && c.jsPrefix != "" {
		problems = append(problems, errors.New("--js-domain and --js-api-prefix exclude each other: give one of them"))
	}
	if c.Context != "" && c.NoContext {
		problems = append(problems, errors.New("--context and --no-context exclude each other: give one of them"))
	}
	if c.Timeout <= 0 {
		problems = append(problems, fmt.Errorf("--timeout %v: give a positive duration such as 5s", c.Timeout))
	}
	for _, s := range natsconn.SplitURLs(c.Server) {
		problems = append(problems, natsconn.CheckURL(s))
	}
	return errors.Join(problems...)
}

// credentials returns the options for the credentials in the flags, if any, in place of all that a context has.
func (c *ConnFlags) credentials() ([]nats.Option, error) {
	opts, err := natsconn.Login(c.User, c.Password, c.creds, c.nkey)
	if err != nil {
		return nil, fmt.Errorf("--nkey %s: %w", c.nkey, err)
	}
	return opts, nil
}

// jetStream returns the JetStream of the domain or API prefix that the flags name, or else the context.
func (c *ConnFlags) jetStream(nc *nats.Conn, settings natscontext.Settings) (jetstream.JetStream, error) {
	domain, prefix := settings.JSDomain, settings.JSAPIPrefix
	if c.jsDomain != "" || c.jsPrefix != "" {
		domain, prefix = c.jsDomain, c.jsPrefix
	}
	timeout := jetstream.WithDefaultTimeout(c.Timeout)
	switch {
	case domain != "":
		return jetstream.NewWithDomain(nc, domain, timeout)
	case prefix != "":
		return jetstream.NewWithAPIPrefix(nc, prefix, timeout)
	}
	return jetstream.New(nc, timeout)
}

// contextSelected says whether natscli has a context selected.
func contextSelected() bool {
	config := os.Getenv("XDG_CONFIG_HOME")
	if config == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return false
		}
		config = filepath.Join(home, ".config")
	}
	name, err := os.ReadFile(filepath.Join(config, "nats", "context.txt"))
	return err == nil && strings.TrimSpace(string(name)) != ""
}

// FlagsTo returns the flags of a connection to a server, whatever is selected for others.
func FlagsTo(url string, timeout time.Duration) ConnFlags {
	return ConnFlags{Server: url, NoContext: true, Timeout: timeout}
}
