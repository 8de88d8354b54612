// Package watch has what watchers of nats.go need beside themselves.
package watch

import (
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// patience is how long a watcher that was stopped may go on telling.
const patience = 2 * time.Second

// Stop ends a watcher. What it has yet to say is taken from it, for the client waits until somebody does.
func Stop(w jetstream.KeyWatcher) {
	go func() {
		for late := time.After(patience); ; {
			select {
			case _, ok := <-w.Updates():
				if !ok {
					return
				}
			case <-late:
				return
			}
		}
	}()
	_ = w.Stop()
}
