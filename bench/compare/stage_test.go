package compare

import (
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// stage is where one comparison runs.
type stage struct {
	*testing.T
	*comparison
	*world
	*journal
	endpoint string
}

func (s *stage) check(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// freeAddress returns where nobody listens.
func (s *stage) freeAddress() string {
	s.Helper()
	l, err := net.Listen("tcp", serverAddress+":0")
	s.check(err)
	defer l.Close()
	return l.Addr().String()
}

// run starts a server that listens at the endpoint, and waits until it does.
func (s *stage) run(cmd *exec.Cmd) {
	s.Helper()
	var log strings.Builder
	cmd.Stdout, cmd.Stderr = &log, &log
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &unix.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = unix.SIGINT // or the server outlives a comparison that is killed
	s.check(cmd.Start())
	s.Cleanup(func() {
		_ = cmd.Process.Signal(unix.SIGINT)
		_ = cmd.Wait()
		if s.Failed() {
			s.Log(log.String())
		}
	})
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		conn, err := net.Dial("tcp", s.endpoint)
		if err == nil {
			_ = conn.Close()
			return
		}
		if time.Now().After(end) {
			s.Fatal("the server does not start:", err)
		}
	}
}

// start has the process campaign for a key.
func (s *stage) startElection(p *process, key string) { p.tell("start", key) }

// leads waits until the process leads, and returns since when.
func (s *stage) leads(p *process, key string, after, limit time.Duration) (time.Duration, bool) {
	var e event
	ok := s.await(limit, func() (ok bool) { e, ok = s.first(leads, key, p, after); return })
	return e.At, ok
}

// requests returns how many the process has sent for the keys.
func (s *stage) requests(p *process, keys []string) (sum int64) {
	s.Helper()
	since := now()
	p.tell("count")
	for _, key := range keys {
		var e event
		if !s.await(10*time.Second, func() (ok bool) { e, ok = s.first(counted, key, p, since); return }) {
			s.Error("a candidate does not count its requests")
		}
		sum += e.Count
	}
	return sum
}
