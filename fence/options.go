package fence

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/collectors"
	"github.com/natscampaign/election/internal/validate"
)

// Option configures a [Stream] or a [Bucket].
type Option func(*options)

type options struct {
	registerer prometheus.Registerer
	namespace  string
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

// WithRegisterer counts writes in a counter of r, which all handles with the same r share, and which stays there. Default: none; nil is
// none.
func WithRegisterer(r prometheus.Registerer) Option {
	return func(o *options) {
		if o.registerer = r; validate.IsNil(r) {
			o.registerer = nil
		}
	}
}

// WithMetricsNamespace sets the prefix of the counter's name, as election.WithMetricsNamespace does. Default: none.
func WithMetricsNamespace(namespace string) Option {
	return func(o *options) { o.namespace = namespace }
}

// WithEpochKey sets the key under which a [Bucket]'s epochs begin. Use a key that stores nothing else, for this election alone, and the same
// for all its candidates and all their handles. Default: "epoch." and the election's key. A [Stream] refuses this option.
func WithEpochKey(key string) Option {
	return func(o *options) { o.epochKey = &key }
}

// writes counts one handle's writes. The zero writes counts nothing.
type writes struct {
	stored, fenced, failed prometheus.Counter
}

// newWrites returns the counters of a term's writes to a stream, all of them registered from the start.
func newWrites(o options, t election.Term, stream string) (writes, error) {
	if err := validate.Namespace(o.namespace); err != nil {
		return writes{}, err
	}
	if o.registerer == nil {
		return writes{}, nil
	}
	name := prometheus.BuildFQName(o.namespace, "", "election_fence_writes_total")
	all := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: name, Help: "Writes of leaders that the server stores only until a newer term begins, by their result.",
	}, []string{"bucket", "election", "identity", "stream", "result"})
	if err := o.registerer.Register(all); err != nil {
		already, ok := errors.AsType[prometheus.AlreadyRegisteredError](err)
		if !ok {
			return writes{}, fmt.Errorf("WithRegisterer: %w", err)
		}
		if all, ok = already.ExistingCollector.(*prometheus.CounterVec); !ok {
			return writes{}, fmt.Errorf("WithRegisterer: %s is a %T there: use a registerer of its own", name, already.ExistingCollector)
		}
	}
	bucket, identity := collectors.LabelsOf(t)
	identity = cmp.Or(identity, t.Name)
	of := func(result string) prometheus.Counter {
		return all.WithLabelValues(bucket, t.Key, identity, stream, result)
	}
	return writes{of("stored"), of("fenced"), of("failed")}, nil
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
