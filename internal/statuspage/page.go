// Package statuspage serves a page about one election: its leader, its candidates and the events of the last hour, by server-sent
// events as they happen. The page changes nothing and asks for no password. It reads nothing while nobody looks at it, and serves a
// bounded number of readers.
package statuspage

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/admin"
	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/embedded"
	"github.com/natscampaign/election/internal/look"
	"github.com/natscampaign/election/internal/terminal"
	"github.com/natscampaign/election/internal/timeutil"
)

const (
	// askInterval is the time from one reading of the candidates to the next, and statusTick that from one reading of the page
	// to the next while nothing changes. Nothing is read while nobody looks.
	askInterval     = 3 * time.Second
	refreshInterval = 2 * time.Second
	// minInterval is the least time between two.
	minInterval = 200 * time.Millisecond
	// writeTimeout is how long a reader may take to take what he is sent.
	writeTimeout = 10 * time.Second
	// maxReaders is how many may follow at a time.
	maxReaders = 32
)

// Page is a page about one election, and what it knows. It offers nothing that changes anything.
type Page struct {
	name, key string
	log       *slog.Logger
	server    *http.Server
	address   net.Addr
	ctx       context.Context // ends with the page
	cancel    context.CancelFunc
	readers   chan struct{}  // holds one for each that follows
	following sync.WaitGroup // what follow began

	candidate atomic.Pointer[election.Election]
	watching  atomic.Pointer[look.View] // nil until the election is observed
	chronicle *chronicle
	trouble   atomic.Pointer[string] // why the election is not observed; nil if it is, or will soon be

	mu     sync.Mutex
	asking chan struct{} // closed when candidates have been asked; nil unless they are being asked
	asked  time.Time     // when that began the last time
	stand  []admin.Candidate
	deaf   error // why they could not be asked
}

// Serve listens on address, so that a wrong one is known before anything else begins. Until the server is reached
// the page says so.
func Serve(address, name, key string, log *slog.Logger) (*Page, error) {
	local, err := loopbackUnlessNamed(address)
	if err != nil {
		return nil, fmt.Errorf("--status %s: %w", address, err)
	}
	p, err := newPage(name, key, log)
	if err != nil {
		return nil, cli.InFlags(err)
	}
	l, err := net.Listen("tcp", local)
	if err != nil {
		return nil, fmt.Errorf("--status %s: %w; give an address such as 127.0.0.1:8222 or :8222", address, err)
	}
	p.address = l.Addr()
	p.server = &http.Server{
		Handler: p.handler(), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
		BaseContext: func(net.Listener) context.Context { return p.ctx },
		ErrorLog:    slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	go func() {
		if err := p.server.Serve(l); err != http.ErrServerClosed {
			log.Error("The status page is no longer served", "error", err)
		}
	}()
	log.Info("Status is served", "url", "http://"+l.Addr().String()+"/")
	return p, nil
}

// newPage returns one that answers for a candidate that was not started, until there is one that can be.
func newPage(name, key string, log *slog.Logger) (*Page, error) {
	e, err := election.NewElection(name, key, cli.Unbound{})
	if err != nil {
		return nil, err
	}
	p := &Page{name: name, key: key, log: log, readers: make(chan struct{}, maxReaders), chronicle: newChronicle()}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.candidate.Store(e)
	return p, nil
}

// loopbackUnlessNamed returns an address to listen on: who names only a port means this host, not all the world.
func loopbackUnlessNamed(address string) (string, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", fmt.Errorf("%w; give an address such as 127.0.0.1:8222 or :8222", err)
	}
	if host == "" {
		host = embedded.Loopback
	}
	return net.JoinHostPort(host, port), nil
}

// Follow lets the page tell of a candidate's election from now on.
func (p *Page) Follow(s *cli.Session, bucket *election.Bucket, e *election.Election) {
	p.candidate.Store(e)
	p.following.Go(func() {
		for {
			err := p.observe(s, bucket)
			if p.ctx.Err() != nil {
				return
			}
			if text := terminal.Printable(err.Error()); p.trouble.Swap(&text) == nil {
				p.log.Warn("The status page cannot observe the election, trying again", "error", err)
			}
			if timeutil.Pause(p.ctx, askInterval) != nil {
				return
			}
		}
	})
}

// observe tells the chronicle what happens, until the page ends or it is known why it cannot.
func (p *Page) observe(s *cli.Session, bucket *election.Bucket) error {
	v, err := look.Of(p.ctx, s, bucket, election.WithLogger(p.log))
	if err != nil {
		return err
	}
	events, err := v.Observer.Observe(p.ctx, p.key)
	if err != nil {
		return err
	}
	p.trouble.Store(nil)
	p.watching.Store(v)
	p.chronicle.begin(v.Clock)
	for e := range events {
		p.chronicle.told(e)
	}
	return p.ctx.Err()
}

// candidates returns who stands. If that is a few seconds old, or of a time before the last change, they are asked again;
// who is patient, or comes first, waits for it, and others are told as of a change.
func (p *Page) candidates(ctx context.Context, patient bool) ([]admin.Candidate, error) {
	v := p.watching.Load()
	if v == nil {
		return nil, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	stale := time.Since(p.asked) >= askInterval || p.asked.Before(p.chronicle.lastChange())
	if stale && p.asking == nil && p.ctx.Err() == nil {
		p.asking = make(chan struct{})
		p.following.Go(func() { p.ask(v) })
	}
	if asking := p.asking; asking != nil && (patient || p.asked.IsZero()) {
		p.mu.Unlock()
		select {
		case <-asking:
		case <-ctx.Done():
		}
		p.mu.Lock()
	}
	return p.stand, p.deaf
}

// ask asks who stands, for all that want to know.
func (p *Page) ask(v *look.View) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(p.ctx, askInterval)
	defer cancel()
	stand, deaf := v.Admin.Candidates(ctx, p.key)
	p.mu.Lock()
	p.asked, p.stand, p.deaf = began, stand, deaf
	close(p.asking)
	p.asking = nil
	p.mu.Unlock()
	p.chronicle.tell()
}

// Stop ends the page, and lets requests under way end.
func (p *Page) Stop() {
	p.mu.Lock() // nobody begins to ask any more
	p.cancel()
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if p.server.Shutdown(ctx) != nil {
		_ = p.server.Close()
	}
	p.following.Wait()
}

// handler serves the page, its events, and what the candidate answers to load balancers and probes.
func (p *Page) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", p.servePage)
	mux.HandleFunc("GET /events", p.serveEvents)
	mux.HandleFunc("GET /status.css", serveFile("text/css; charset=utf-8", pageCSS))
	mux.HandleFunc("GET /status.js", serveFile("text/javascript; charset=utf-8", pageJS))
	answer := func(w http.ResponseWriter, r *http.Request) { p.candidate.Load().Handler().ServeHTTP(w, r) }
	mux.HandleFunc("/leader", answer)
	mux.HandleFunc("/healthz", answer)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-store")
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout))
		mux.ServeHTTP(w, r)
	})
}

func serveFile(kind, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind)
		_, _ = w.Write([]byte(text)) // who asked may be gone
	}
}

func (p *Page) servePage(w http.ResponseWriter, r *http.Request) {
	sheet, _ := p.sheet(r.Context(), true)
	var b strings.Builder
	if err := pageTemplate.Execute(&b, sheet); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	serveFile("text/html; charset=utf-8", b.String())(w, r)
}

// serveEvents sends what the page shows, and again as soon as it changes, by server-sent events.
func (p *Page) serveEvents(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	if r.Method == http.MethodHead {
		return
	}
	select {
	case p.readers <- struct{}{}:
		defer func() { <-p.readers }()
	default:
		w.Header().Set("Retry-After", "60")
		http.Error(w, "too many follow already: read the page instead", http.StatusServiceUnavailable)
		return
	}
	control := http.NewResponseController(w)
	ctx := r.Context()
	for {
		sheet, changed := p.sheet(ctx, false)
		var b strings.Builder
		if err := pageTemplate.ExecuteTemplate(&b, "main", sheet); err != nil {
			p.log.Error("The status page cannot be rendered", "error", err)
			return
		}
		_ = control.SetWriteDeadline(time.Now().Add(writeTimeout))
		message := "data: " + strings.ReplaceAll(b.String(), "\n", "\ndata: ") + "\n\n"
		if _, err := w.Write([]byte(message)); err != nil || control.Flush() != nil || timeutil.Pause(ctx, minInterval) != nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-time.After(refreshInterval):
		}
	}
}
