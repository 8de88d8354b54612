package serving

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/prometheus/exporter-toolkit/web"
	"go.yaml.in/yaml/v2"
)

const (
	loopback    = "127.0.0.1"
	stopTimeout = time.Second // the time that requests have to end when the servers stop
)

// endpoint is what the address of one flag serves.
type endpoint struct {
	Flag    string // such as --metrics
	Address string // the value of the flag
	Pattern string // for [http.ServeMux]
	Path    string // of the URL in the log
	Handler http.Handler
	Started string // the message in the log
}

// webServers serve endpoints until they are stopped.
type webServers struct {
	list   []*http.Server
	cancel context.CancelFunc // ends the contexts of all requests
}

// serve serves endpoints: those with the same address share a server. The name of the web configuration file may be empty. serve reads that
// file and listens on all addresses before it returns, so that a mistake is reported at once. The error names the flag.
//
// A web configuration file, in the format of the exporters of Prometheus, adds TLS, passwords, response headers and a rate limit. The file is
// read again for each connection and request, so certificates and passwords can be replaced without a restart.
func serve(endpoints []endpoint, configFile string, log *slog.Logger) (*webServers, error) {
	scheme, err := readScheme(configFile)
	if err != nil {
		return nil, fmt.Errorf("--web-config %s: %w; the format is that of https://prometheus.io/docs/prometheus/latest/configuration/https/", configFile, err)
	}
	sites, err := listen(endpoints)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &webServers{cancel: cancel}
	for _, site := range sites {
		s.serve(ctx, site, configFile, log)
	}
	for _, e := range endpoints {
		address, _ := e.listenAddress()
		log.Info(e.Started, "url", scheme+"://"+sites[address].listener.Addr().String()+e.Path)
	}
	return s, nil
}

// readScheme validates a web configuration file, and returns the scheme of the URLs that are served with it.
func readScheme(configFile string) (string, error) {
	if configFile == "" {
		return "http", nil
	}
	if err := web.Validate(configFile); err != nil {
		return "", err
	}
	text, err := os.ReadFile(configFile)
	if err != nil {
		return "", err
	}
	var config web.Config
	if err := yaml.Unmarshal(text, &config); err != nil {
		return "", err
	}
	if config.TLSConfig.IsEnabled() {
		return "https", nil
	}
	return "http", nil
}

// site is one address with its endpoints.
type site struct {
	listener net.Listener
	mux      *http.ServeMux
}

// listen listens on the addresses of the endpoints, once on each.
func listen(endpoints []endpoint) (map[string]site, error) {
	sites := map[string]site{}
	for _, e := range endpoints {
		if err := e.addTo(sites); err != nil {
			for _, s := range sites {
				_ = s.listener.Close()
			}
			return nil, fmt.Errorf("%s %s: %w; give an address such as :9222, for this host only, or 0.0.0.0:9222", e.Flag, e.Address, err)
		}
	}
	return sites, nil
}

// addTo adds the endpoint to the site of its address, and listens there if there is no site yet.
func (e endpoint) addTo(sites map[string]site) error {
	address, err := e.listenAddress()
	if err != nil {
		return err
	}
	if _, found := sites[address]; !found {
		l, err := net.Listen("tcp", address)
		if err != nil {
			return err
		}
		sites[address] = site{l, http.NewServeMux()}
	}
	sites[address].mux.Handle(e.Pattern, e.Handler)
	return nil
}

// listenAddress returns the address to listen on. A port alone, such as :8222, is on the loopback interface only.
func (e endpoint) listenAddress() (string, error) {
	host, port, err := net.SplitHostPort(e.Address)
	return net.JoinHostPort(cmp.Or(host, loopback), port), err
}

// serve starts the server of a site.
func (s *webServers) serve(ctx context.Context, site site, configFile string, log *slog.Logger) {
	server := &http.Server{
		Handler: site.mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
		BaseContext: func(net.Listener) context.Context { return ctx },
		ErrorLog:    slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	s.list = append(s.list, server)
	go func() {
		flags := &web.FlagConfig{WebConfigFile: &configFile}
		if err := web.Serve(site.listener, server, flags, slog.New(withoutInfo{log.Handler()})); !errors.Is(err, http.ErrServerClosed) {
			log.Error("The web server stopped unexpectedly", "address", site.listener.Addr().String(), "error", err)
		}
	}()
}

// withoutInfo drops what the toolkit says when all is well, because serve logs the URLs.
type withoutInfo struct{ slog.Handler }

// Enabled reports whether the level is at least that of a warning.
func (withoutInfo) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }

// Stop stops the servers. It ends the contexts of the requests in progress, and gives the requests one second to end.
func (s *webServers) Stop() {
	s.cancel()
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	for _, server := range s.list {
		if server.Shutdown(ctx) != nil {
			_ = server.Close()
		}
	}
}
