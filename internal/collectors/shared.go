package collectors

import (
	"errors"
	"fmt"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// shared is a collector that several users of a registerer need once. The first user registers it, and the last one unregisters it.
type shared struct {
	prometheus.Collector
	users int // guarded by sharing
}

// sharing guards users together with the registration that depends on it.
var sharing sync.Mutex

// Share registers a collector with r, unless another user has registered an equal one. The returned function ends the use.
func Share(r prometheus.Registerer, c prometheus.Collector) (end func(), err error) {
	sharing.Lock()
	defer sharing.Unlock()
	s := &shared{Collector: c}
	if err := r.Register(s); err != nil {
		already, ok := errors.AsType[prometheus.AlreadyRegisteredError](err)
		if !ok {
			return nil, err
		}
		if s, ok = already.ExistingCollector.(*shared); !ok {
			return nil, fmt.Errorf("another collector has its names: %w", err)
		}
	}
	s.users++
	return func() {
		sharing.Lock()
		defer sharing.Unlock()
		if s.users--; s.users == 0 {
			r.Unregister(s)
		}
	}, nil
}
