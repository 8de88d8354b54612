package sim

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
)

// The errors of requests. Candidates decide by what the errors mean, see core.Result; the texts are for the journal.
var (
	errTimeout      = context.DeadlineExceeded
	errCanceled     = context.Canceled
	errNotConnected = nats.ErrReconnectBufExceeded
	errClosed       = fmt.Errorf("request: %w", nats.ErrConnectionClosed)
	errRefused      = errors.New("wrong last sequence")
	errConflict     = errors.New("wrong last sequence, while another write is in flight")
)
