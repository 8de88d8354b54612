//go:build linux

package compare

import (
	"context"
	"errors"
	"net"
	"os/exec"
	"sync/atomic"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
)

// redsyncCandidate calls Lock until it has the lock, and extends the lock every third of its expiry. It leads from then on
// until the time that Until tells, or until an extension finds that the lock is another's; an orderly stop unlocks.
type redsyncCandidate struct {
	place
	ttl  time.Duration
	rs   *redsync.Redsync
	sent *sentCommands
}

// sentCommands counts the commands of a Redis client.
type sentCommands struct{ n atomic.Int64 }

func (s *sentCommands) DialHook(next redis.DialHook) redis.DialHook { return next }
func (s *sentCommands) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		s.n.Add(1)
		return next(ctx, cmd)
	}
}

func (s *sentCommands) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		s.n.Add(int64(len(cmds)))
		return next(ctx, cmds)
	}
}

func startRedis(s *stage) {
	binary, err := exec.LookPath("redis-server")
	if err != nil {
		s.Skip("no redis-server is installed")
	}
	s.endpoint = s.freeAddress()
	host, port, err := net.SplitHostPort(s.endpoint)
	s.check(err)
	s.run(exec.Command(binary, "--bind", host, "--port", port, "--protected-mode", "no", "--save", "", "--appendonly", "no",
		"--dir", s.TempDir()))
}

func newRedsync(ctx context.Context, p place, c *comparison) (candidate, error) {
	redis.SetLogger(&logging.VoidLogger{}) // it reports each dial over the cut link otherwise
	client := redis.NewClient(&redis.Options{Addr: p.endpoint})
	if err := client.Ping(ctx).Err(); err != nil {
		return nil, err
	}
	sent := &sentCommands{}
	client.AddHook(sent)
	return &redsyncCandidate{p, c.ttl, redsync.New(goredis.NewPool(client)), sent}, nil
}

func (c *redsyncCandidate) campaign(ctx context.Context, report func(bool)) error {
	for ctx.Err() == nil {
		m := c.rs.NewMutex(c.key, redsync.WithExpiry(c.ttl))
		if m.LockContext(ctx) != nil {
			continue // it has waited between its tries
		}
		report(true)
		c.hold(ctx, m)
		report(false)
		if ctx.Err() != nil {
			_, err := m.UnlockContext(context.Background())
			return err
		}
	}
	return nil
}

// hold extends the lock, and returns when it is lost or ctx ends.
func (c *redsyncCandidate) hold(ctx context.Context, m *redsync.Mutex) {
	for {
		expired := time.After(time.Until(m.Until()))
		select {
		case <-time.After(c.ttl / 3):
		case <-expired:
			return
		case <-ctx.Done():
			return
		}
		extended := make(chan error, 1)
		go func() {
			_, err := m.Extend()
			extended <- err
		}()
		select {
		case err := <-extended:
			var taken *redsync.ErrTaken
			if errors.As(err, &taken) || errors.Is(err, redsync.ErrExtendFailed) || errors.Is(err, redsync.ErrLockAlreadyExpired) {
				return
			}
		case <-expired:
			return
		case <-ctx.Done():
			return
		}
	}
}

func (c *redsyncCandidate) requests() int64 { return c.sent.n.Load() }
