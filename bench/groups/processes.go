package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/group"
)

const (
	bucketName = "GROUPS"
	groupName  = "shards"
)

// process is a child process, which is told what to do by lines on its input, and tells by lines of JSON.
type process struct {
	cmd  *exec.Cmd
	in   *bufio.Writer
	stop func() error
}

// spawn starts this program again in a role. receive is called with each line that it writes.
func spawn(role string, receive func(line []byte), args ...string) (*process, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(path, append([]string{"-role", role}, args...)...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			receive(lines.Bytes())
		}
	}()
	return &process{cmd: cmd, in: bufio.NewWriter(in), stop: in.Close}, nil
}

// tell writes one line to the process.
func (p *process) tell(format string, a ...any) error {
	fmt.Fprintf(p.in, format+"\n", a...)
	return p.in.Flush()
}

// kill kills the process.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// end has the process end, as its input does.
func (p *process) end() {
	_ = p.stop()
	_ = p.cmd.Wait()
}

// load is what a server has received and sent since it was started.
type load struct {
	InMsgs, OutMsgs, InBytes, OutBytes int64
	CPU                                time.Duration
}

// serve runs a server, whose port and folder are its arguments, and describes its load for each line of the input, until that ends.
func serve() error {
	var port int
	if _, err := fmt.Sscan(os.Args[len(os.Args)-2], &port); err != nil {
		return err
	}
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: port, JetStream: true, StoreDir: os.Args[len(os.Args)-1], NoSigs: true, NoLog: true})
	if err != nil {
		return err
	}
	s.Start()
	if !s.ReadyForConnections(30 * time.Second) {
		return fmt.Errorf("the server is not ready")
	}
	out := json.NewEncoder(os.Stdout)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		v, err := s.Varz(nil)
		if err != nil {
			return err
		}
		if err := out.Encode(load{v.InMsgs, v.OutMsgs, v.InBytes, v.OutBytes, cpuTime()}); err != nil {
			return err
		}
	}
	s.Shutdown()
	return nil
}

// event is what a process with members tells.
type event struct {
	At   int64  // in Unix nanoseconds
	Kind string // "begin" and "end" of work, "left" of a member
	Name string // of the member
	Key  string
	Text string // why work ended; why a member left, if not in order
}

// takePart runs members, each with a connection of its own to the server whose port is the last argument, as the input says: "start <name>", "stop <name>",
// "crash <name>". It ends as the input does.
func takePart() error {
	url := "nats://127.0.0.1:" + os.Args[len(os.Args)-1]
	w := &worker{url: url, out: json.NewEncoder(os.Stdout), members: map[string]*member{}, log: slog.New(slog.DiscardHandler)}
	if *logs != "" {
		file, err := os.Create(filepath.Join(*logs, fmt.Sprintf("%d.log", os.Getpid())))
		if err != nil {
			return err
		}
		w.log = slog.New(slog.NewTextHandler(file, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	for i := range *keys {
		w.keys = append(w.keys, fmt.Sprintf("k%05d", i))
	}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		what, name, _ := strings.Cut(lines.Text(), " ")
		switch what {
		case "start":
			go w.start(name)
		case "stop":
			go w.of(name).leave()
		case "crash":
			go w.of(name).crash()
		}
	}
	return nil
}

// worker runs members.
type worker struct {
	url  string
	keys []string
	log  *slog.Logger

	mu      sync.Mutex // guards what follows
	out     *json.Encoder
	members map[string]*member
}

// member is a member whose group is nil until it is connected.
type member struct {
	ready chan struct{} // closed when the group is there
	group *group.Group
	nc    *nats.Conn
}

func (m *member) leave() {
	<-m.ready
	m.group.Stop()
}

// crash ends the connection, so that the member releases nothing and tells nobody.
func (m *member) crash() {
	<-m.ready
	m.nc.Close()
}

func (w *worker) of(name string) *member {
	w.mu.Lock()
	defer w.mu.Unlock()
	m := w.members[name]
	if m == nil {
		m = &member{ready: make(chan struct{})}
		w.members[name] = m
	}
	return m
}

func (w *worker) tell(kind, name, key, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = w.out.Encode(event{time.Now().UnixNano(), kind, name, key, text})
}

// start runs one member until it leaves or crashes.
func (w *worker) start(name string) {
	m, text := w.of(name), ""
	defer func() { w.tell("left", name, "", text) }()
	nc, err := nats.Connect(w.url, nats.MaxReconnects(-1), nats.ReconnectWait(250*time.Millisecond), nats.ReconnectBufSize(-1), nats.RetryOnFailedConnect(true),
		nats.Timeout(10*time.Second), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err != nil {
		text = err.Error()
		return
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err == nil {
		var bucket *election.Bucket
		for { // a server that starts, or that hundreds connect to at once, takes its time
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			bucket, err = election.OpenBucket(ctx, js, bucketName)
			cancel()
			if err == nil {
				break
			}
			time.Sleep(time.Second)
		}
		m.nc = nc
		m.group, err = group.New(name, groupName, w.keys, bucket, group.WithLogger(w.log))
	}
	if err != nil {
		text = err.Error()
		return
	}
	close(m.ready)
	err = m.group.Run(context.Background(), func(ctx context.Context, key string, _ election.Term) error {
		w.tell("begin", name, key, "")
		<-ctx.Done()
		reason, ended := "stopped", (*election.TermEndedError)(nil)
		if errors.As(context.Cause(ctx), &ended) {
			reason = string(ended.Reason)
		}
		w.tell("end", name, key, reason)
		return nil
	})
	if err != nil {
		text = err.Error()
	}
}
