package serving

import (
	"cmp"
	"encoding/json"
	"errors"
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

// selected returns the key of the election that a request asks for; empty for the list of all. It answers a request for an election that the
// page does not know.
func (p *statusPage) selected(w http.ResponseWriter, r *http.Request) (key string, ok bool) {
	key = cmp.Or(r.URL.Query().Get("key"), p.elections.only)
	if ok = key == "" || p.elections.has(key); !ok {
		p.serveUnknown(w, key)
	}
	return key, ok
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
	key, ok := p.selected(w, r)
	if !ok {
		return
	}
	if own := p.candidate.Load(); own != nil && !strings.Contains(r.Header.Get("Accept"), "text/html") {
		serveLeaderName(w, p.leaderName(own))
		return
	}
	if key == "" {
		data, _ := p.list(r.Context(), nil, true)
		p.render(w, http.StatusOK, "listpage", data)
	} else if data, _ := p.data(r.Context(), key, true); data != nil {
		p.render(w, http.StatusOK, "page", data)
	} else {
		p.serveUnknown(w, key)
	}
}

// leaderName returns the name of the leader; empty if nobody leads. A candidate leads by its own lease, and not by what is stored.
func (p *statusPage) leaderName(own *election.Election) string {
	l, status := p.elections, own.Status()
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.byKey[l.only]
	switch {
	case own.IsLeader():
		return status.Name
	case e.condition(l.clock.Now()) != led || e.holder.Instance == status.Instance:
		return ""
	}
	return e.holder.Name
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
	healthy := p.observes()
	w.Header().Set("Content-Type", "application/json")
	if !healthy {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	fmt.Fprintf(w, "{\"healthy\":%v}\n", healthy)
}

// serveEvents sends the parts of the page that change as server-sent events: all at once, and then at each change and at each refresh interval.
func (p *statusPage) serveEvents(w http.ResponseWriter, r *http.Request) {
	key, ok := p.selected(w, r)
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
	control := http.NewResponseController(w)
	for f := newFeed(p, key); ; {
		text, changed, err := f.next(r.Context())
		if err != nil {
			if !errors.Is(err, errForgotten) {
				p.log.Error("Cannot render the status page", "error", err)
			}
			return
		}
		_ = control.SetWriteDeadline(time.Now().Add(writeTimeout))
		if _, err := w.Write([]byte(text)); err != nil || control.Flush() != nil || timeutil.Pause(r.Context(), minRefreshInterval) != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-changed:
		case <-time.After(refreshInterval):
		}
	}
}
