package serving

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/cli/terminal"
	"github.com/natscampaign/election/internal/timeutil"
	"github.com/natscampaign/election/internal/validate"
)

// Handler serves the page, its files and events, and the handler of the candidate.
func (p *statusPage) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", p.servePage)
	mux.HandleFunc("GET /events", p.serveEvents)
	mux.HandleFunc("GET /status.css", serveFile("text/css; charset=utf-8", pageCSS))
	mux.HandleFunc("GET /status.js", serveFile("text/javascript; charset=utf-8", pageJS))
	if p.candidate.Load() == nil {
		mux.HandleFunc("GET /healthz", p.serveHealth)
	} else {
		candidate := func(w http.ResponseWriter, r *http.Request) { p.candidate.Load().Handler().ServeHTTP(w, r) }
		mux.HandleFunc("/leader", candidate)
		mux.HandleFunc("/healthz", candidate)
	}
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

// serveFile returns a handler that writes the text.
func serveFile(contentType, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		_, _ = w.Write([]byte(text)) // fails only if the reader has disconnected
	}
}

// selected returns the election that a request asks for; nil for the list of all. It answers a request for one that the page does not know.
func (p *statusPage) selected(w http.ResponseWriter, r *http.Request) (key string, e *entry, ok bool) {
	if key = cmp.Or(r.URL.Query().Get("key"), p.elections.only); key == "" {
		return "", nil, true
	}
	if e = p.elections.election(key); e == nil {
		p.serveUnknown(w, key)
	}
	return key, e, e != nil
}

// serveUnknown answers a request for an election that the page does not know.
func (p *statusPage) serveUnknown(w http.ResponseWriter, key string) {
	d := pageData{pageHead: p.head(time.Now(), time.Time{})}
	d.Title, d.Headline, d.HeadlineClass, d.Interval, d.Fixed = terminal.Printable(key), "No election "+terminal.Quote(key)+" is known here", "vacant", 30, true
	switch err := validate.Key(key); {
	case err != nil:
		d.Why = "It is not a key: use letters, digits, dots, and - _ = /."
	case p.elections.only != "":
		d.Why = "This page is about another election."
	default:
		d.Why, d.Fix, d.Command = "Nobody has led it within the last hour.", fixVacancy, d.command(key, vacant, nil)
	}
	p.render(w, http.StatusNotFound, "unknownpage", d)
}

// render writes a page.
func (p *statusPage) render(w http.ResponseWriter, code int, name string, data any) {
	var b strings.Builder
	if err := pageTemplate.ExecuteTemplate(&b, name, data); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(b.String())) // fails only if the reader has disconnected
}

// servePage serves the list of elections, or one election with the candidates that answer now.
func (p *statusPage) servePage(w http.ResponseWriter, r *http.Request) {
	key, e, ok := p.selected(w, r)
	if !ok {
		return
	}
	if own := p.candidate.Load(); own != nil && !strings.Contains(r.Header.Get("Accept"), "text/html") {
		h, _ := e.snapshot()
		serveLeaderName(w, leaderName(h, own))
		return
	}
	if e == nil {
		data, _ := p.list(r.Context(), 0, true)
		p.render(w, http.StatusOK, "listpage", data)
		return
	}
	data, _ := p.data(r.Context(), key, e, true)
	p.render(w, http.StatusOK, "page", data)
}

// leaderName returns the name of the leader; empty if nobody leads. A candidate leads by its own lease, and not by what is stored.
func leaderName(h snapshot, own *election.Election) string {
	status := own.Status()
	switch {
	case own.IsLeader():
		return status.Name
	case h.condition != led || h.holder.Instance == status.Instance:
		return ""
	}
	return h.holder.Name
}

// serveLeaderName answers programs, which do not ask for HTML as browsers do, in the words of the sidecar leader-elector of Kubernetes.
func serveLeaderName(w http.ResponseWriter, name string) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(struct { // fails only if the reader has disconnected
		Name string `json:"name"`
	}{name})
}

// serveHealth answers probes of a page that has no candidate: whether it observes the elections.
func (p *statusPage) serveHealth(w http.ResponseWriter, _ *http.Request) {
	healthy := p.view.Load() != nil && p.notice() == ""
	w.Header().Set("Content-Type", "application/json")
	if !healthy {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	fmt.Fprintf(w, "{\"healthy\":%v}\n", healthy)
}

// serveEvents sends the main part of the page as server-sent events: at once, at each change, and at each refresh interval.
func (p *statusPage) serveEvents(w http.ResponseWriter, r *http.Request) {
	key, e, ok := p.selected(w, r)
	if !ok {
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	if r.Method == http.MethodHead {
		return
	}
	select {
	case p.readers <- struct{}{}:
		defer func() { <-p.readers }()
	default:
		w.Header().Set("Retry-After", "60")
		http.Error(w, "too many readers follow the events already: open the page instead", http.StatusServiceUnavailable)
		return
	}
	next := (&listFeed{statusPage: p}).next
	if e != nil {
		next = func(ctx context.Context) (string, <-chan struct{}, error) {
			data, changed := p.data(ctx, key, e, false)
			text, err := message("", "main", data)
			return text, changed, err
		}
	}
	p.send(r.Context(), w, next)
}

// send sends the messages that next returns, until the reader disconnects.
func (p *statusPage) send(ctx context.Context, w http.ResponseWriter, next func(context.Context) (text string, changed <-chan struct{}, err error)) {
	control := http.NewResponseController(w)
	for {
		text, changed, err := next(ctx)
		if err != nil {
			p.log.Error("Cannot render the status page", "error", err)
			return
		}
		_ = control.SetWriteDeadline(time.Now().Add(writeTimeout))
		if _, err := w.Write([]byte(text)); err != nil || control.Flush() != nil || timeutil.Pause(ctx, minRefreshInterval) != nil {
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

// listFeed is what one reader receives of the list of elections: first the whole list, and then those elections that changed.
type listFeed struct {
	*statusPage
	version uint64
	header  string // the last one
}

// next returns the next message. Without a change that is a comment, which keeps the connection alive.
func (f *listFeed) next(ctx context.Context) (string, <-chan struct{}, error) {
	data, changed := f.list(ctx, f.version, false)
	f.version = data.version
	header, err := message("", "listheader", data)
	if err != nil {
		return "", nil, err
	}
	before := f.header
	f.header = header
	switch {
	case data.whole:
		text, err := message("", "list", data)
		return text, changed, err
	case len(data.Rows) == 0 && header == before:
		return ":\n\n", changed, nil
	}
	text, err := message("rows", "listrows", data)
	return text, changed, err
}

// message renders a template as a server-sent event.
func message(event, name string, data any) (string, error) {
	var b strings.Builder
	if err := pageTemplate.ExecuteTemplate(&b, name, data); err != nil {
		return "", err
	}
	text := "data: " + strings.ReplaceAll(b.String(), "\n", "\ndata: ") + "\n\n"
	if event != "" {
		text = "event: " + event + "\n" + text
	}
	return text, nil
}
