package fence

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/prometheus/client_golang/prometheus"
)

// Option configures a [Stream] or a [Bucket].
type Option func(*options)

type options struct {
	registerer prometheus.Registerer
	epochKey   *string
}

func optionsOf(opts []Option) (o options) {
	for _, opt := range opts {
		if opt != nil {
			opt(&o)
		}
	}
	return o
}

// WithRegisterer counts writes in r, in a counter that all handles that are given the same r share, and that stays there.
// Default: none; nil is none.
func WithRegisterer(r prometheus.Registerer) Option {
	return func(o *options) {
		if o.registerer = r; r == nil || reflect.ValueOf(r).Kind() == reflect.Pointer && reflect.ValueOf(r).IsNil() {
			o.registerer = nil
		}
	}
}

// WithEpochKey sets the key under which a [Bucket]'s epochs begin. It must be one that nothing else is kept under, of this
// election alone, and the same for all its candidates. Default: "epoch." and the election's key. A [Stream] refuses it.
func WithEpochKey(key string) Option {
	return func(o *options) { o.epochKey = &key }
}

const (
	resultStored = "stored"
	resultFenced = "fenced"
	resultFailed = "failed"
)

// writes counts one handle's writes. The zero writes counts nothing.
type writes struct {
	stored, fenced, failed prometheus.Counter
}

// newWrites returns the counters of a handle, all of them shown from the start.
func newWrites(r prometheus.Registerer, election, identity, stream string) (writes, error) {
	if r == nil {
		return writes{}, nil
	}
	all := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "election_fenced_writes_total",
		Help: "Writes of leaders that the server takes only until a newer term begins, by what became of them.",
	}, []string{"election", "identity", "stream", "result"})
	if err := r.Register(all); err != nil {
		var already prometheus.AlreadyRegisteredError
		if !errors.As(err, &already) {
			return writes{}, fmt.Errorf("WithRegisterer: %w", err)
		}
		existing, ok := already.ExistingCollector.(*prometheus.CounterVec)
		if !ok {
			return writes{}, fmt.Errorf("WithRegisterer: election_fenced_writes_total is a %T there; give a registerer of its own", already.ExistingCollector)
		}
		all = existing
	}
	of := func(result string) prometheus.Counter {
		return all.WithLabelValues(election, identity, stream, result)
	}
	return writes{of(resultStored), of(resultFenced), of(resultFailed)}, nil
}

// count counts a write that ended with err.
func (w writes) count(err error) {
	switch {
	case w.stored == nil:
	case err == nil:
		w.stored.Inc()
	case errors.Is(err, ErrFenced):
		w.fenced.Inc()
	default:
		w.failed.Inc()
	}
}
