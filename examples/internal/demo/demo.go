// Package demo lets an example run by itself. On a server of yours, which NATS_URL or NATS_CONTEXT names, an example is one candidate and
// runs until it is interrupted. Without one, it starts a server in its own process, runs three candidates there, and ends after ten
// seconds. Nothing in this package belongs into a program of yours.
package demo

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/natscampaign/election/internal/cli/embedded"
)

// Candidate is what an example does as the candidate of the given name. It returns nil soon after ctx ended.
type Candidate func(ctx context.Context, log *slog.Logger, name string) error

// Rolling runs candidates until ctx ends. Without a server of yours it restarts each of them once, one after the other, as a rolling
// deployment does. It reads the command line.
func Rolling(ctx context.Context, log *slog.Logger, c Candidate) error { return run(ctx, log, c, true) }

// AtOnce runs candidates that end by themselves, all at the same time. It reads the command line.
func AtOnce(ctx context.Context, log *slog.Logger, c Candidate) error { return run(ctx, log, c, false) }

// Alone reports whether the environment names no server, so that the example runs by itself. [Rolling] and [AtOnce] set NATS_URL: call
// Alone before them.
func Alone() bool { return os.Getenv("NATS_URL") == "" && os.Getenv("NATS_CONTEXT") == "" }

func run(ctx context.Context, log *slog.Logger, c Candidate, rolling bool) error {
	number, length := 1, time.Duration(0)
	if Alone() {
		number, length = 3, 10*time.Second
	}
	flag.IntVar(&number, "candidates", number, "candidates in this process")
	flag.DurationVar(&length, "for", length, "end after this time; 0 runs until interrupted")
	flag.Parse()
	if number < 1 || flag.NArg() > 0 {
		return fmt.Errorf("-candidates %d, arguments %q: give at least one candidate, and no arguments", number, flag.Args())
	}
	base := cmp.Or(os.Getenv("ELECTION_NAME"), os.Getenv("POD_NAME"))
	if !Alone() {
		rolling = false
	} else {
		s, err := embedded.Start(embedded.Config{Log: log})
		if err != nil {
			return err
		}
		defer s.Stop()
		base = cmp.Or(base, "candidate")
		setenv("NATS_URL", s.URL())
		setenv("ELECTION_TTL", "2s") // short, so that something happens within seconds
		setenv("ELECTION_SPLAY", "0s")
		log.Info("Started a NATS server in this process, as NATS_URL names none", "url", s.URL(), "candidates", number, "for", length)
	}
	if base == "" { // two terminals of one host are two candidates
		host, _ := os.Hostname()
		base = fmt.Sprintf("%s-%d", cmp.Or(host, "host"), os.Getpid())
	}
	if length > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, length)
		defer cancel()
	}
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var all sync.WaitGroup
	errs := make([]error, number)
	for i := range number {
		name := base
		if number > 1 {
			name = fmt.Sprintf("%s-%d", base, i+1)
		}
		restart := time.Duration(0)
		if rolling {
			restart = length / time.Duration(number+1) * time.Duration(i+1)
		}
		all.Go(func() {
			if errs[i] = lives(ctx, log, c, name, restart); errs[i] != nil {
				fail(errs[i]) // so that the others end too
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// lives runs a candidate until ctx ends. After the time restart, unless that is 0, it stops the candidate and starts it again.
func lives(ctx context.Context, log *slog.Logger, c Candidate, name string, restart time.Duration) error {
	if restart > 0 {
		first, cancel := context.WithCancel(ctx)
		defer cancel()
		timer := time.AfterFunc(restart, func() {
			log.Info("Restarting a candidate, as a deployment does", "name", name)
			cancel()
		})
		defer timer.Stop()
		if err := uninterrupted(first, c(first, log, name)); err != nil || first.Err() == nil || ctx.Err() != nil {
			return err
		}
	}
	return uninterrupted(ctx, c(ctx, log, name))
}

// uninterrupted returns the error of a candidate, unless its context has ended, for example before it had a connection.
func uninterrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)) {
		return nil
	}
	return err
}

// setenv sets a variable of the environment that is not set.
func setenv(variable, value string) {
	if os.Getenv(variable) == "" {
		_ = os.Setenv(variable, value)
	}
}
