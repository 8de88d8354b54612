package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/choria-io/fisk"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/natscontext"

	"github.com/natscampaign/election/internal/dial"
	"github.com/natscampaign/election/internal/natsconn"
)

// ConnectionFlags are the flags that select a NATS server and the credentials. Flags, environment variables and contexts are
// those of natscli.
type ConnectionFlags struct {
	Server, User, Password, token, creds, nkey string
	tlsCert, tlsKey, TLSCA                     string
	tlsFirst                                   bool
	Context                                    string
	NoContext                                  bool
	jsDomain, jsPrefix, inboxPrefix            string
	Timeout                                    time.Duration
	connectTimeout                             time.Duration // of ConnectWithRetry; 0 is without limit

	serverSet, tokenSet, contextSet, TimeoutSet, connectTimeoutSet bool // by a flag, not by the environment

	refused *refusals // on connections of Connect; nil if nobody asks
}

// Register adds the flags to an application.
func (c *ConnectionFlags) Register(app *fisk.Application) {
	c.refused = &refusals{}
	app.Flag("server", "NATS server urls (default nats://127.0.0.1:4222, or as in the context)").Short('s').Envar("NATS_URL").PlaceHolder("URL").IsSetByUser(&c.serverSet).StringVar(&c.Server)
	app.Flag("user", "Username, or a token when no password is given").Envar("NATS_USER").PlaceHolder("USER").StringVar(&c.User)
	app.Flag("password", "Password").Envar("NATS_PASSWORD").PlaceHolder("PASSWORD").StringVar(&c.Password)
	app.Flag("token", "Token, in place of --user").Envar("NATS_TOKEN").PlaceHolder("TOKEN").IsSetByUser(&c.tokenSet).StringVar(&c.token)
	app.Flag("creds", "User credentials").Envar("NATS_CREDS").PlaceHolder("FILE").StringVar(&c.creds)
	app.Flag("nkey", "User NKEY").Envar("NATS_NKEY").PlaceHolder("FILE").StringVar(&c.nkey)
	app.Flag("tlscert", "TLS public certificate").Envar("NATS_CERT").PlaceHolder("FILE").StringVar(&c.tlsCert)
	app.Flag("tlskey", "TLS private key").Envar("NATS_KEY").PlaceHolder("FILE").StringVar(&c.tlsKey)
	app.Flag("tlsca", "TLS certificate authority chain").Envar("NATS_CA").PlaceHolder("FILE").StringVar(&c.TLSCA)
	app.Flag("tlsfirst", "Perform the TLS handshake before expecting the server greeting").Envar("NATS_TLS_FIRST").UnNegatableBoolVar(&c.tlsFirst)
	app.Flag("tls-first", "The same as --tlsfirst, as nsc spells it").Hidden().UnNegatableBoolVar(&c.tlsFirst)
	DurationVar(app.Flag("timeout", "Time to wait for responses from NATS").Default("5s").Envar("NATS_TIMEOUT").IsSetByUser(&c.TimeoutSet), &c.Timeout)
	app.Flag("js-api-prefix", "Subject prefix for access to the JetStream API").PlaceHolder("PREFIX").StringVar(&c.jsPrefix)
	app.Flag("js-domain", "JetStream domain to access").PlaceHolder("DOMAIN").StringVar(&c.jsDomain)
	app.Flag("inbox-prefix", "Prefix for inboxes").Envar("ELECTION_INBOX_PREFIX").PlaceHolder("PREFIX").StringVar(&c.inboxPrefix)
	app.Flag("context", "Configuration context of natscli").Envar("NATS_CONTEXT").PlaceHolder("NAME").IsSetByUser(&c.contextSet).StringVar(&c.Context)
	app.Flag("no-context", "Ignore the selected context").UnNegatableBoolVar(&c.NoContext)
}

// RegisterConnectTimeout adds the flag for the commands that wait for an unreachable server.
func (c *ConnectionFlags) RegisterConnectTimeout(cmd *fisk.CmdClause) {
	DurationVar(cmd.Flag("connect-timeout", "Longest time to wait for the first connection to a server (default no limit)").IsSetByUser(&c.connectTimeoutSet), &c.connectTimeout)
}

// WaitsForServer reports whether a flag says for how long to wait for an unreachable server.
func (c *ConnectionFlags) WaitsForServer() bool { return c.connectTimeoutSet }

// NamesServer reports whether flags or the environment name a server or a context. A context that is only selected does not
// count: a drill without flags must never run on a production server.
func (c *ConnectionFlags) NamesServer() bool { return c.Server != "" || c.Context != "" }

// NamesServerByFlag reports whether a flag names a server or a context.
func (c *ConnectionFlags) NamesServerByFlag() bool { return c.serverSet || c.contextSet }

// Connect connects to NATS with the options of the context, overridden by those of the flags, and then by extra.
func (c *ConnectionFlags) Connect(extra ...nats.Option) (*Client, error) {
	opts, err := c.options()
	if err != nil {
		return nil, err
	}
	opts = append(append(opts, nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { c.refused.add(err) })), extra...)
	dial, servers, err := c.plan(opts)
	if err != nil {
		return nil, err
	}
	first := false // as the flags or the context say
	nc, settings, err := dial(append(opts, func(o *nats.Options) error { first = o.TLSHandshakeFirst; return nil })...)
	if err != nil {
		return nil, fmt.Errorf("cannot connect to %s: %w", servers, explainDial(err, servers, first))
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
	return &Client{Conn: nc, JetStream: js, Timeout: c.Timeout}, nil
}

// Check returns the error that Connect would return because of the flags. It connects to nothing.
func (c *ConnectionFlags) Check() error {
	opts, err := c.options()
	if err != nil {
		return err
	}
	_, _, err = c.plan(opts)
	return err
}

// dialFunc connects with the given options.
type dialFunc func(...nats.Option) (*nats.Conn, natscontext.Settings, error)

// dialContext returns a function that connects with a context.
func dialContext(name string) dialFunc {
	return func(opts ...nats.Option) (*nats.Conn, natscontext.Settings, error) {
		return natscontext.Connect(name, opts...)
	}
}

// dialPlain connects without a context.
func dialPlain(opts ...nats.Option) (*nats.Conn, natscontext.Settings, error) {
	nc, err := nats.Connect("", opts...)
	return nc, natscontext.Settings{}, err
}

// errProbe stops a connection attempt before it dials, once the options are complete.
var errProbe = errors.New("options are complete")

// plan selects the function that dials, and validates the server URLs without dialling. It also returns the URLs without
// credentials, for messages.
func (c *ConnectionFlags) plan(opts []nats.Option) (dialFunc, string, error) {
	connect, err := c.dialer()
	if err != nil {
		return nil, "", err
	}
	var urls []string
	probe := func(o *nats.Options) error {
		urls = slices.Clone(o.Servers)
		return errProbe
	}
	if _, _, err := connect(append(slices.Clip(opts), probe)...); !errors.Is(err, errProbe) {
		return nil, "", c.explain(err)
	}
	if len(urls) == 0 {
		urls = []string{nats.DefaultURL}
	}
	for i, u := range urls {
		if err := dial.CheckURL(u); err != nil {
			return nil, "", err
		}
		urls[i] = natsconn.WithoutSecrets(u)
	}
	return connect, strings.Join(urls, ", "), nil
}

// dialer returns the function that dials: with the context that is named, or else that is selected, or without one.
func (c *ConnectionFlags) dialer() (dialFunc, error) {
	name := c.Context
	if name == "" && !c.NoContext {
		name = dial.SelectedContext()
	}
	if name == "" {
		return dialPlain, nil
	}
	err := dial.CheckContext(name)
	if err != nil && c.Context == "" && c.NamesServer() { // a selected context that is broken, and that nobody asked for
		return dialPlain, nil
	}
	return dialContext(dial.ContextFile(name)), c.explain(err)
}

// explain adds where the context comes from to an error about it, and what else can be done about one that is selected.
func (c *ConnectionFlags) explain(err error) error {
	switch {
	case err == nil:
		return nil
	case c.Context != "":
		return fmt.Errorf("--context or NATS_CONTEXT: %w", err)
	case !c.NoContext && dial.SelectedContext() != "":
		return fmt.Errorf("the selected context cannot be used: %w; give --no-context to leave it alone, name another with --context, or select another with 'nats context select'", err)
	}
	return err
}

// options returns the options that the flags give. Each overrides that of a context.
func (c *ConnectionFlags) options() ([]nats.Option, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	opts := []nats.Option{nats.Timeout(c.Timeout), dial.Servers(c.Server)}
	auth, err := c.credentials()
	if err != nil {
		return nil, err
	}
	opts = append(append(opts, auth...), dial.TLS(c.tlsCert, c.tlsKey, c.TLSCA, c.tlsFirst)...)
	if c.inboxPrefix != "" {
		opts = append(opts, nats.CustomInboxPrefix(c.inboxPrefix))
	}
	return opts, nil
}

// check returns an error for each flag that is invalid, or that excludes another flag.
func (c *ConnectionFlags) check() error {
	var problems Problems
	for _, f := range []struct{ flag, path string }{
		{"--creds", c.creds}, {"--nkey", c.nkey}, {"--tlscert", c.tlsCert}, {"--tlskey", c.tlsKey}, {"--tlsca", c.TLSCA},
	} {
		problems.If(f.path != "" && !dial.IsFile(f.path), "%s %s: there is no such file", f.flag, f.path)
	}
	problems.If((c.tlsCert == "") != (c.tlsKey == ""), "--tlscert and --tlskey go together: give both or neither")
	problems.If(c.Password != "" && c.User == "", "--password needs --user")
	problems.If(c.jsDomain != "" && c.jsPrefix != "", "--js-domain and --js-api-prefix exclude each other: give one of them")
	problems.If(c.Context != "" && c.NoContext, "--context and --no-context exclude each other: give one of them")
	problems.If(c.Timeout <= 0, "--timeout %v: give a positive duration such as 5s", c.Timeout)
	problems.If(c.connectTimeoutSet && c.connectTimeout <= 0, "--connect-timeout %v: give a positive duration such as 30s, or leave it out to wait without a limit", c.connectTimeout)
	problems.If(c.Server != "" && len(dial.SplitURLs(c.Server)) == 0, "--server or NATS_URL: %q names no server: write it as nats://HOST:PORT, or leave it out", c.Server)
	for _, s := range dial.SplitURLs(c.Server) {
		err := dial.CheckURL(s)
		problems.If(err != nil, "--server or NATS_URL: %w", err)
	}
	return problems.Err()
}

// credentials returns the options for the credentials in the flags. They replace all credentials of a context.
func (c *ConnectionFlags) credentials() ([]nats.Option, error) {
	user, password := c.User, c.Password
	if c.tokenSet || user == "" {
		user, password = c.token, ""
	}
	opts, err := dial.Login(user, password, c.creds, c.nkey)
	if err != nil {
		return nil, fmt.Errorf("--nkey %s: %w", c.nkey, err)
	}
	return opts, nil
}

// jetStream returns the JetStream context for the domain or the API prefix of the flags, or else of the natscli context.
func (c *ConnectionFlags) jetStream(nc *nats.Conn, settings natscontext.Settings) (jetstream.JetStream, error) {
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

// APIPrefixes returns the prefix of the JetStream API that the flags name, if they name one, those of the given domains, and the given prefixes.
func (c *ConnectionFlags) APIPrefixes(domains, prefixes []string) (all []string) {
	for _, domain := range append([]string{c.jsDomain}, domains...) {
		if domain != "" {
			all = append(all, "$JS."+domain+".API")
		}
	}
	return append(append(all, c.jsPrefix), prefixes...) // an empty one is the default
}

// Explain adds to the error of a command that got no answer what the server has refused meanwhile.
func (c *ConnectionFlags) Explain(err error) error { return c.refused.explain(err) }

// FlagsForServer returns flags that select one server, and ignore the selected context.
func FlagsForServer(url string, timeout time.Duration) ConnectionFlags {
	return ConnectionFlags{Server: url, NoContext: true, Timeout: timeout}
}
