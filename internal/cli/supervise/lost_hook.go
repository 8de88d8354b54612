//go:build linux || darwin

package supervise

import (
	"context"
	"errors"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/cli"
)

const (
	// lostHookTimeout is how long a lost hook may run.
	lostHookTimeout = 10 * time.Second
	// endedReason is the variable of the environment that tells a lost hook why leadership ended.
	endedReason = "ELECTION_ENDED_REASON"
)

// lostHook is a program of the user that runs whenever leadership has ended. It runs beside all else that this process does, because a
// handover must not wait for it: another host may lead already. A nil *lostHook does nothing.
type lostHook struct {
	*runner
	path    string
	one     sync.Mutex // held while the hook runs, so that its runs do not overlap
	pending sync.WaitGroup
}

// findLostHook returns the lost hook; nil if there is none.
func (r *runner) findLostHook() (*lostHook, error) {
	if r.LostHook == "" {
		return nil, nil
	}
	path, err := findProgram(r.LostHook)
	if exit, ok := errors.AsType[*cli.ExitError](err); ok {
		return nil, &cli.ExitError{Code: exit.Code, Message: "--lost-hook: " + exit.Message}
	}
	return &lostHook{runner: r, path: path}, nil
}

// follow runs the hook once the term is over and the work has returned. ctx is that of the work, whose cause has the reason.
func (h *lostHook) follow(ctx context.Context, returned <-chan struct{}, t election.Term) {
	if h == nil {
		return
	}
	h.pending.Go(func() {
		<-ctx.Done()
		<-returned
		ended, ok := errors.AsType[*election.TermEndedError](context.Cause(ctx))
		switch {
		case !ok:
		case ended.Reason == election.ReasonWorkEnded && h.notRenewed.Load() == t.Number: // the work ended just because of that
			h.run(t, election.ReasonDeadline)
		default:
			h.run(t, ended.Reason)
		}
	})
}

// run runs the hook once, and kills its process group if the hook takes too long.
func (h *lostHook) run(t election.Term, reason election.Reason) {
	h.one.Lock()
	defer h.one.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), lostHookTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, h.path)
	cmd.Args, cmd.Env, cmd.Err = []string{h.LostHook}, append(h.environment(&t), endedReason+"="+string(reason)), nil
	cmd.Stdout, cmd.Stderr = h.Stdout, h.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for the program
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	cmd.WaitDelay = time.Second // for a process outside the group that keeps the output open
	if err := ownChildren.start(cmd); err != nil {
		h.log.Warn("Lost hook cannot be started", "error", err)
		return
	}
	err := ownChildren.wait(cmd)
	switch {
	case ctx.Err() != nil:
		h.log.Warn("Lost hook took too long and was killed", "term", t.Number, "reason", string(reason), "timeout", lostHookTimeout)
	case err != nil:
		h.log.Warn("Lost hook failed", "term", t.Number, "reason", string(reason), "error", err)
	default:
		h.log.Debug("Lost hook has run", "term", t.Number, "reason", string(reason))
	}
}

// wait waits until all runs of the hook have ended.
func (h *lostHook) wait() {
	if h != nil {
		h.pending.Wait()
	}
}
