package statuspage

import (
	"net/http"
	"strings"
	"time"

	"github.com/natscampaign/election/internal/timeutil"
)

// Handler serves the page, its files and events, and the handler of the candidate.
func (p *Page) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", p.servePage)
	mux.HandleFunc("GET /events", p.serveEvents)
	mux.HandleFunc("GET /status.css", serveFile("text/css; charset=utf-8", pageCSS))
	mux.HandleFunc("GET /status.js", serveFile("text/javascript; charset=utf-8", pageJS))
	candidate := func(w http.ResponseWriter, r *http.Request) { p.candidate.Load().Handler().ServeHTTP(w, r) }
	mux.HandleFunc("/leader", candidate)
	mux.HandleFunc("/healthz", candidate)
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

// servePage serves the page with the candidates that answer now.
func (p *Page) servePage(w http.ResponseWriter, r *http.Request) {
	data, _ := p.data(r.Context(), true)
	var b strings.Builder
	if err := pageTemplate.Execute(&b, data); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	serveFile("text/html; charset=utf-8", b.String())(w, r)
}

// serveEvents sends the main part of the page as server-sent events: at once, at each change, and at each refresh interval.
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
		http.Error(w, "too many readers follow the events already: open the page instead", http.StatusServiceUnavailable)
		return
	}
	control := http.NewResponseController(w)
	ctx := r.Context()
	for {
		data, changed := p.data(ctx, false)
		var b strings.Builder
		if err := pageTemplate.ExecuteTemplate(&b, "main", data); err != nil {
			p.log.Error("Cannot render the status page", "error", err)
			return
		}
		_ = control.SetWriteDeadline(time.Now().Add(writeTimeout))
		message := "data: " + strings.ReplaceAll(b.String(), "\n", "\ndata: ") + "\n\n"
		if _, err := w.Write([]byte(message)); err != nil || control.Flush() != nil || timeutil.Pause(ctx, minRefreshInterval) != nil {
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
