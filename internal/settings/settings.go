// Package settings holds what the options of package election set, for the packages of this module that take the same options.
package settings

import (
	"context"
	"log/slog"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/timing"
)

// Settings is what more packages than the root read of its options.
type Settings struct {
	timing.Durations
	JetStream  jetstream.JetStream // nil unless WithJetStream gives it
	Logger     *slog.Logger
	Debug      func(format string, a ...any)
	Metadata   map[string]string
	PlainValue bool // the record is the bare name
	HasBackoff bool // campaigns come at other intervals than renewals
}

// Of returns what a list of options sets, and an error that names everything wrong with them for a candidate of the given name and key
// in the bucket. Package election sets it; options is its []Option. The indirection lets other packages take options whose details
// remain private.
var Of func(options any, name, key string, bucket jetstream.KeyValue) (Settings, error)

// ByArrival and ByChance are Options of package election for the candidates of locks and of slots. With ByArrival a release names those that
// wait, in the order in which they came; with ByChance it names nobody. Package election sets them.
var ByArrival, ByChance any

// SetInstance gives a candidate that has not started the instance of another, as a copy of its process has it. Package election sets it; e is
// its *Election.
var SetInstance func(e any, instance string)

// LastRequestFailed reports whether the last request of a candidate failed, of whatever kind: the candidate may be cut off. Package election
// sets it; e is its *Election.
var LastRequestFailed func(e any) bool

// Bucket returns the bucket with the connection that the options name, or that the bucket knows.
func (s *Settings) Bucket(bucket jetstream.KeyValue) *kv.Bucket { return kv.With(bucket, s.JetStream) }

// Log returns the logger for WithLogger and WithDebug: one of them, both, or one that discards everything.
func (s *Settings) Log() *slog.Logger {
	var handlers []slog.Handler
	if s.Logger != nil {
		handlers = append(handlers, s.Logger.Handler())
	}
	if s.Debug != nil {
		handlers = append(handlers, &debugHandler{write: s.Debug})
	}
	switch len(handlers) {
	case 0:
		return slog.New(slog.DiscardHandler)
	case 1:
		return slog.New(handlers[0])
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
