package terminal

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"sync"
)

// LogHandler is a slog.Handler that writes each record as one line for people: time, level, message, attributes.
type LogHandler struct {
	out   *lockedWriter
	style Style
	level slog.Level
	attrs []slog.Attr
	group string
}

// lockedWriter keeps concurrent lines apart. Handlers that With methods derive share one.
type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

// NewLogHandler returns a handler that writes records of at least the given level to w.
func NewLogHandler(w io.Writer, s Style, level slog.Level) *LogHandler {
	return &LogHandler{out: &lockedWriter{w: w}, style: s, level: level}
}

// Enabled reports whether the handler writes records of the level.
func (h *LogHandler) Enabled(_ context.Context, level slog.Level) bool { return level >= h.level }

// WithAttrs returns a handler that adds attrs to each record.
func (h *LogHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	c := *h
	c.attrs = append(c.attrs[:len(c.attrs):len(c.attrs)], qualify(h.group, attrs)...)
	return &c
}

// WithGroup returns a handler that puts name before the keys of later attributes.
func (h *LogHandler) WithGroup(name string) slog.Handler {
	c := *h
	c.group += name + "."
	return &c
}

// Handle writes one record.
func (h *LogHandler) Handle(_ context.Context, r slog.Record) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s  %s  %s", h.style.Paint(Faint, r.Time.Format(TimeOfDayLayout)), h.paintLevel(r.Level), r.Message)
	for _, a := range h.attrs {
		h.attr(&b, a)
	}
	r.Attrs(func(a slog.Attr) bool {
		h.attr(&b, qualify(h.group, []slog.Attr{a})[0])
		return true
	})
	b.WriteByte('\n')
	h.out.mu.Lock()
	defer h.out.mu.Unlock()
	_, err := h.out.w.Write(b.Bytes())
	return err
}

func (h *LogHandler) attr(b *bytes.Buffer, a slog.Attr) {
	if a.Equal(slog.Attr{}) {
		return
	}
	value := a.Value.Resolve()
	v := fmt.Sprint(value.Any())
	if value.Kind() == slog.KindTime {
		v = value.Time().Format("2006-01-02T15:04:05.000Z07:00")
	}
	if v == "" || strings.ContainsFunc(v, func(r rune) bool { return r <= ' ' || r == '"' || !strconv.IsPrint(r) }) {
		v = strconv.Quote(v) // an untrusted value must not control the terminal
	}
	fmt.Fprintf(b, "  %s%s", h.style.Paint(Faint, a.Key+"="), v)
}

func (h *LogHandler) paintLevel(l slog.Level) string {
	name := fmt.Sprintf("%-5s", l)
	switch {
	case l >= slog.LevelError:
		return h.style.Paint(Red, name)
	case l >= slog.LevelWarn:
		return h.style.Paint(Yellow, name)
	}
	return h.style.Paint(Faint, name)
}

func qualify(group string, attrs []slog.Attr) []slog.Attr {
	if group == "" {
		return attrs
	}
	named := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		named[i] = slog.Attr{Key: group + a.Key, Value: a.Value}
	}
	return named
}
