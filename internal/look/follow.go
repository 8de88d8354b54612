package look

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/terminal"
	"github.com/natscampaign/election/internal/timeutil"
	"github.com/natscampaign/election/observe"
)

// Follow connects, waits for the server and the bucket if need be, and tells what happens under the keys until ctx ends.
// Close the connection.
func Follow(ctx context.Context, t *cli.Env, fail context.CancelCauseFunc, command string, log *slog.Logger, keys ...string) (*View, <-chan observe.Event, error) {
	s, err := t.Connection.Join("election-cli "+command, fail, log)
	if err != nil {
		return nil, nil, err
	}
	complained := false
	for {
		v, events, err := observeOn(ctx, t, s, log, keys)
		if err == nil {
			return v, events, nil
		}
		// The server that is to keep the consumer may just have gone, although the bucket was found.
		if _, hopeless := errors.AsType[hopelessness](err); !hopeless && ctx.Err() == nil {
			if !complained {
				log.Warn("Elections cannot be observed yet, trying again", "bucket", t.Bucket, "error", err)
				complained = true
			}
			err = timeutil.Pause(ctx, cli.RetryPause)
		}
		if err != nil {
			s.Conn.Close()
			return nil, nil, err
		}
	}
}

// hopelessness is an error that waiting does not mend.
type hopelessness struct{ error }

// Unwrap returns the error itself.
func (h hopelessness) Unwrap() error { return h.error }

// observeOn is one attempt to follow.
func observeOn(ctx context.Context, t *cli.Env, s *cli.Session, log *slog.Logger, keys []string) (*View, <-chan observe.Event, error) {
	bucket, err := s.AwaitBucket(ctx, t.Bucket, log)
	if err != nil {
		return nil, nil, hopelessness{err}
	}
	v, err := Of(ctx, s, bucket, election.WithLogger(log))
	if err != nil {
		return nil, nil, err
	}
	events, err := v.Observer.Observe(ctx, keys...)
	return v, events, err
}

// Sentence tells an event to people. What its writer chose is printable already.
func Sentence(e observe.Event) string {
	name, term := e.Leader.Name, ""
	if e.Leader.Term != 0 {
		term = fmt.Sprintf(", term %d", e.Leader.Term)
	}
	held := ""
	if d := e.At.Sub(e.Leader.Since); !e.Leader.Since.IsZero() && d > 0 {
		held = fmt.Sprintf(", %s after it was elected", terminal.Human(d))
	}
	switch e.Kind {
	case observe.Elected:
		return fmt.Sprintf("%s won %s; it leads once the stand-down is over", name, e.Key)
	case observe.Leading:
		return fmt.Sprintf("%s leads %s%s", name, e.Key, term)
	case observe.Renewed:
		return fmt.Sprintf("%s renewed %s%s", name, e.Key, term)
	case observe.Released:
		return fmt.Sprintf("%s released %s%s%s", name, e.Key, term, held)
	case observe.Expired:
		return fmt.Sprintf("%s did not renew %s in time%s%s", name, e.Key, term, held)
	}
	return fmt.Sprintf("%s was evicted from %s%s%s", name, e.Key, term, held)
}
