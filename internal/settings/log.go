package settings

import (
	"context"
	"log/slog"
	"strings"
)

// Log returns the logger for WithLogger and WithDebug: one of them, both, or one that discards everything.
func (o *Options) Log() *slog.Logger {
	var handlers []slog.Handler
	if o.Logger != nil {
		handlers = append(handlers, o.Logger.Handler())
	}
	if o.Debug != nil {
		handlers = append(handlers, &debugHandler{write: o.Debug})
	}
	return slog.New(slog.NewMultiHandler(handlers...))
}

// debugHandler writes log lines of every level to a function in the manner of fmt.Printf.
type debugHandler struct {
	write func(format string, a ...any)
	attrs string
}

func (h *debugHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h *debugHandler) Handle(_ context.Context, r slog.Record) error {
	var line strings.Builder
	line.WriteString(r.Message)
	line.WriteString(h.attrs)
	r.Attrs(func(a slog.Attr) bool {
		line.WriteString(" " + a.String())
		return true
	})
	defer func() { _ = recover() }() // a debug function that panics must not cost the process
	h.write("%s", line.String())
	return nil
}

func (h *debugHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	with := *h
	for _, a := range attrs {
		with.attrs += " " + a.String()
	}
	return &with
}

func (h *debugHandler) WithGroup(string) slog.Handler { return h }
